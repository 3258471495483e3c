#include "engine/text/calls/tool_list.h"

#include <algorithm>
#include <utility>

#include "engine/jinja/template.h"
#include "kvant/tool_calls.h"

namespace kvant {
namespace {

using ToolJson = nlohmann::ordered_json;

constexpr size_t kToolNameMax = 256;
constexpr int kTypeDepthMax = 16;

bool IsToolName(const std::string& name) {
  return !name.empty() && name.size() <= kToolNameMax && std::ranges::all_of(name, [](char byte) {
    const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    return is_letter || (byte >= '0' && byte <= '9') ||
           std::string_view("_-.:/").find(byte) != std::string_view::npos;
  });
}

ToolTypes TypeNamed(const ToolJson& name) {
  if (name == "string") return kTypeText;
  if (name == "number" || name == "integer") return kTypeNumber;
  if (name == "boolean") return kTypeBoolean;
  if (name == "null") return kTypeNull;
  return name == "object" || name == "array" ? kTypeOther : kTypeAny;
}

ToolTypes TypeOfValue(const ToolJson& value) {
  if (value.is_string()) return kTypeText;
  if (value.is_number()) return kTypeNumber;
  if (value.is_boolean()) return kTypeBoolean;
  return value.is_null() ? kTypeNull : kTypeOther;
}

ToolTypes TypesOfSchema(const ToolJson& schema, int depth) {
  if (!schema.is_object() || depth == kTypeDepthMax) return kTypeAny;
  ToolTypes types = kTypeAny;
  if (const auto type = schema.find("type"); type != schema.end()) {
    types = 0;
    if (!type->is_array()) types = TypeNamed(*type);
    if (type->is_array()) {
      for (const ToolJson& name : *type) types |= TypeNamed(name);
    }
  }
  if (const auto value = schema.find("const"); value != schema.end()) types &= TypeOfValue(*value);
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    ToolTypes among = 0;
    for (const ToolJson& value : *values) among |= TypeOfValue(value);
    types &= among;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto choices = schema.find(key);
    if (choices == schema.end() || !choices->is_array()) continue;
    ToolTypes among = 0;
    for (const ToolJson& choice : *choices) among |= TypesOfSchema(choice, depth + 1);
    types &= among;
  }
  return types == 0 ? kTypeAny : types;
}

Error ToolError(size_t index, std::string_view key, std::string_view expected,
                const ToolJson& found) {
  std::string text = found.dump(-1, ' ', false, ToolJson::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return MakeError(ErrorCode::kInvalid, "the tools: /{}{}: expected {}, found {}", index, key,
                   expected, text);
}

Result<ToolEntry> ParseTool(const ToolJson& tool, size_t index) {
  if (!tool.is_object()) return ToolError(index, "", "an object", tool);
  const ToolJson none;
  const auto member = [&none](const ToolJson& object, const char* key) -> const ToolJson& {
    const auto found = object.find(key);
    return found == object.end() ? none : *found;
  };
  const ToolJson& type = member(tool, "type");
  if (!type.is_null() && type != "function") {
    return ToolError(index, "/type", "\"function\"", type);
  }
  const ToolJson& function = member(tool, "function");
  if (!function.is_object()) return ToolError(index, "/function", "an object", function);
  const ToolJson& name = member(function, "name");
  if (!name.is_string() || !IsToolName(name.get<std::string>())) {
    return ToolError(index, "/function/name", "a name of letters, digits and _ - . : /", name);
  }
  ToolEntry entry;
  entry.name = name.get<std::string>();
  const ToolJson& description = member(function, "description");
  if (!description.is_null() && !description.is_string()) {
    return ToolError(index, "/function/description", "a text", description);
  }
  if (description.is_string()) entry.description = description.get<std::string>();
  entry.parameters = member(function, "parameters");
  if (!entry.parameters.is_null() && !entry.parameters.is_object()) {
    return ToolError(index, "/function/parameters", "a JSON schema", entry.parameters);
  }
  const ToolJson& strict = member(function, "strict");
  if (!strict.is_null() && !strict.is_boolean()) {
    return ToolError(index, "/function/strict", "true or false", strict);
  }
  entry.is_strict = strict == true;
  return entry;
}

}  // namespace

Result<ToolList> ToolList::Parse(std::string_view json) {
  ToolList list;
  if (json.empty()) return list;
  // Checks the text, and that nothing in it is nested too deeply.
  KVANT_TRY(jinja::ValueOfJson(json, "the tools"));
  const ToolJson tools = ToolJson::parse(json, nullptr, false);
  if (!tools.is_array()) {
    return MakeError(ErrorCode::kInvalid, "the tools: expected a JSON array, found a {}",
                     tools.type_name());
  }
  if (tools.size() > kToolsMax) {
    return MakeError(ErrorCode::kInvalid, "the tools: expected at most {}, found {}", kToolsMax,
                     tools.size());
  }
  for (const ToolJson& tool : tools) {
    KVANT_ASSIGN(ToolEntry entry, ParseTool(tool, list.tools_.size()));
    if (list.Find(entry.name) != nullptr) {
      return ToolError(list.tools_.size(), "/function/name", "a name that no other tool has",
                       entry.name);
    }
    list.tools_.push_back(std::move(entry));
  }
  return list;
}

const ToolEntry* ToolList::Find(std::string_view name) const {
  const auto found = std::ranges::find(tools_, name, &ToolEntry::name);
  return found == tools_.end() ? nullptr : &*found;
}

ToolTypes ToolList::TypesOf(std::string_view tool, std::string_view parameter) const {
  const ToolEntry* entry = Find(tool);
  if (entry == nullptr) return kTypeAny;
  const auto properties = entry->parameters.find("properties");
  if (properties == entry->parameters.end() || !properties->is_object()) return kTypeAny;
  const auto schema = properties->find(std::string(parameter));
  return schema == properties->end() ? kTypeAny : TypesOfSchema(*schema, 0);
}

Status CheckTools(std::string_view tools) {
  KVANT_TRY(ToolList::Parse(tools));
  return {};
}

}  // namespace kvant
