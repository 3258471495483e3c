#include "tools/serve/request/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/serve/request/ordered_body.h"

namespace kvant::tools {
namespace {

using ChoiceKind = ToolChoice::Kind;

// Where the parts of a tool lie in an interface.
struct ToolPlaces {
  std::string_view function;  // behind the place of the tool
  std::string_view schema;    // behind that
};
constexpr ToolPlaces kChatPlaces = {".function.", "parameters"};
constexpr ToolPlaces kMessagesPlaces = {".", "input_schema"};
constexpr ToolPlaces kResponsesPlaces = {".", "parameters"};

std::string PlaceOfTool(size_t index) { return fmt::format("tools[{}]", index); }

// Tools in the form of chats, and where each came from.
class ToolCollector {
 public:
  explicit ToolCollector(ToolPlaces places) : places_(places) {}

  void Add(size_t index, Json tool) {
    tools_.push_back(std::move(tool));
    indices_.push_back(index);
  }

  Refusal Finish(ToolFields* out) const {
    if (tools_.empty()) return {};
    out->tools = out->callable = Dump(tools_);
    if (const Status status = CheckTools(out->tools); !status.ok()) {
      return ErrorOf(status.error().message);
    }
    for (size_t i = 0; i < tools_.size(); ++i) {
      out->schemas.emplace_back(
          tools_[i]["function"]["name"].get<std::string>(),
          fmt::format("{}{}{}", PlaceOfTool(indices_[i]), places_.function, places_.schema));
    }
    return {};
  }

 private:
  // The library's message begins with the place in the array: "the tools: /0/function/name: ".
  ApiError ErrorOf(const std::string& message) const {
    constexpr std::string_view kBefore = "the tools: /";
    const std::string_view text = message;
    const size_t end = text.find(": ", kBefore.size());
    size_t index = 0;
    const char* const digits = text.data() + std::min(kBefore.size(), text.size());
    const auto [behind, code] = std::from_chars(digits, text.data() + text.size(), index);
    const bool is_known = text.starts_with(kBefore) && code == std::errc() &&
                          end != std::string_view::npos && index < indices_.size();
    if (!is_known) return WrongValue("tools", message);
    std::string place = PlaceOfTool(indices_[index]);
    constexpr std::string_view kFunction = "/function/";
    std::string_view key = text.substr(0, end).substr(static_cast<size_t>(behind - text.data()));
    if (key.starts_with(kFunction)) {
      key.remove_prefix(kFunction.size());
      place += fmt::format("{}{}", places_.function, key == "parameters" ? places_.schema : key);
    }
    return WrongValue(std::move(place), std::string(text.substr(end + 2)));
  }

  ToolPlaces places_;
  Json tools_ = Json::array();
  std::vector<size_t> indices_;
};

ApiError NoToolOf(const std::string& place, std::string_view name) {
  return WrongValue(place, fmt::format("expected the name of a tool, found '{}'", name));
}

// A name, which one of the tools has.
Refusal ReadName(const RequestJson& object, const std::string& place, const ToolFields& fields,
                 std::string* out) {
  const RequestJson* const name = Member(object, "name");
  const std::string where = place + ".name";
  if (name == nullptr || !name->is_string()) {
    return WrongMember(where, "the name of a tool", name);
  }
  *out = name->get<std::string>();
  for (const auto& [known, schema] : fields.schemas) {
    if (known == *out) return {};
  }
  return NoToolOf(where, *out);
}

// "auto", "none" or "required".
Refusal ReadMode(const RequestJson& mode, const std::string& place, ToolChoice* out) {
  if (mode != "auto" && mode != "none" && mode != "required") {
    return WrongType(place, "auto, none, required or an object", mode);
  }
  const bool is_parallel = out->is_parallel;
  *out = ToolChoice::Of(mode.get<std::string>());
  out->is_parallel = is_parallel;
  return {};
}

Refusal CheckChoice(const ToolFields& fields) {
  const bool needs_tools =
      fields.choice.kind == ChoiceKind::kRequired || fields.choice.kind == ChoiceKind::kNamed;
  if (needs_tools && fields.tools.empty()) {
    return WrongValue("tool_choice", "expected tools beside it, found none");
  }
  return {};
}

// ---- Both interfaces of OpenAI ------------------------------------------------------------------

// Whether a function stands in a member of its own, as in chats, or not, as in Responses.
enum class Nesting : uint8_t { kNested, kFlat };

// The object that has the name of a function.
Refusal FunctionOf(const RequestJson& value, std::string* place, Nesting nesting,
                   const RequestJson** out) {
  *out = &value;
  if (nesting == Nesting::kFlat) return {};
  *place += ".function";
  *out = Member(value, "function");
  if (*out == nullptr) return WrongValue(*place, "expected an object, found nothing");
  return {};
}

// {"mode", "tools"}: calls only of these tools, though the model is told of all.
Refusal ReadAllowed(const RequestJson& allowed, const std::string& place, Nesting nesting,
                    ToolFields* out) {
  const RequestJson* const mode = Member(allowed, "mode");
  if (mode == nullptr || (*mode != "auto" && *mode != "required")) {
    return WrongMember(place + ".mode", "auto or required", mode);
  }
  KVANT_REFUSE(ReadMode(*mode, place + ".mode", &out->choice));
  const RequestJson* const tools = Member(allowed, "tools");
  if (tools == nullptr || !tools->is_array() || tools->empty()) {
    return WrongMember(place + ".tools", "a list of at least one tool", tools);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < tools->size(); ++i) {
    std::string where = fmt::format("{}.tools[{}]", place, i);
    const RequestJson* function = nullptr;
    KVANT_REFUSE(FunctionOf((*tools)[i], &where, nesting, &function));
    KVANT_REFUSE(ReadName(*function, where, *out, &names.emplace_back()));
  }
  Json callable = Json::array();
  for (const Json& tool : Json::parse(out->tools)) {
    const auto name = tool["function"]["name"].get<std::string>();
    if (std::ranges::find(names, name) != names.end()) callable.push_back(tool);
  }
  out->callable = Dump(callable);
  return {};
}

Refusal ReadChoice(const RequestJson& body, Nesting nesting, ToolFields* out) {
  KVANT_REFUSE(ReadFlag(body, "parallel_tool_calls", &out->choice.is_parallel));
  const std::string place = "tool_choice";
  const RequestJson* const choice = Member(body, place);
  if (choice == nullptr) return {};
  if (!choice->is_object()) {
    KVANT_REFUSE(ReadMode(*choice, place, &out->choice));
    return CheckChoice(*out);
  }
  const std::string type = formats::JsonText(*choice, "type");
  if (type == "allowed_tools") {
    const bool is_flat = nesting == Nesting::kFlat;
    const RequestJson* const allowed = is_flat ? choice : Member(*choice, type);
    const std::string where = is_flat ? place : place + "." + type;
    if (allowed == nullptr) return WrongValue(where, "expected an object, found nothing");
    return ReadAllowed(*allowed, where, nesting, out);
  }
  if (type != "function") {
    const RequestJson* const found = Member(*choice, "type");
    return WrongMember(place + ".type", "function or allowed_tools", found);
  }
  std::string where = place;
  const RequestJson* function = nullptr;
  KVANT_REFUSE(FunctionOf(*choice, &where, nesting, &function));
  KVANT_REFUSE(ReadName(*function, where, *out, &out->choice.name));
  out->choice.kind = ChoiceKind::kNamed;
  return {};
}

// The list of tools, null where there is none.
Refusal ListOf(const RequestJson& body, const Json& ordered, const Json** out) {
  const RequestJson* const tools = Member(body, "tools");
  *out = nullptr;
  if (tools == nullptr) return {};
  if (!tools->is_array()) return WrongType("tools", "a list of tools", *tools);
  for (size_t i = 0; i < tools->size(); ++i) {
    if (!(*tools)[i].is_object()) return WrongType(PlaceOfTool(i), "an object", (*tools)[i]);
  }
  *out = MemberInOrder(ordered, "tools");
  return {};
}

// The type of a tool; `otherwise` where it has none.
Refusal TypeOf(const Json& tool, size_t index, std::string_view otherwise, std::string* out) {
  const Json* const type = MemberInOrder(tool, "type");
  *out = otherwise;
  if (type == nullptr) return {};
  if (!type->is_string()) return WrongType(PlaceOfTool(index) + ".type", "a text", *type);
  *out = type->get<std::string>();
  return {};
}

// A tool in the form of chats, of one whose parts have these names.
Json ToolOfChat(const Json& tool, std::string_view schema) {
  Json function = Json::object();
  for (const std::string_view name : {std::string_view("name"), std::string_view("description"),
                                      schema, std::string_view("strict")}) {
    const Json* const part = MemberInOrder(tool, name);
    if (part != nullptr) function[name == schema ? "parameters" : std::string(name)] = *part;
  }
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace

Refusal ToolsOfChat(const RequestJson& body, const Json& ordered, ToolFields* out) {
  const Json* tools = nullptr;
  KVANT_REFUSE(ListOf(body, ordered, &tools));
  ToolCollector collector(kChatPlaces);
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    std::string type;
    KVANT_REFUSE(TypeOf((*tools)[i], i, "function", &type));
    if (type != "function") {
      return NotSupported(PlaceOfTool(i) + ".type",
                          fmt::format("expected function, found '{}'", type));
    }
    const Json* const function = MemberInOrder((*tools)[i], "function");
    if (function == nullptr || !function->is_object()) {
      return WrongType(PlaceOfTool(i) + ".function", "an object",
                       function == nullptr ? RequestJson() : RequestJson(*function));
    }
    collector.Add(i, (*tools)[i]);
  }
  KVANT_REFUSE(collector.Finish(out));
  return ReadChoice(body, Nesting::kNested, out);
}

Refusal ToolsOfResponses(const RequestJson& body, const Json& ordered, ToolFields* out) {
  const Json* tools = nullptr;
  KVANT_REFUSE(ListOf(body, ordered, &tools));
  ToolCollector collector(kResponsesPlaces);
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    std::string type;
    KVANT_REFUSE(TypeOf((*tools)[i], i, "", &type));
    if (type.empty()) return WrongValue(PlaceOfTool(i) + ".type", "expected a text, found nothing");
    if (type == "function") {
      collector.Add(i, ToolOfChat((*tools)[i], kResponsesPlaces.schema));
    } else {
      out->skipped.push_back(type);
    }
  }
  KVANT_REFUSE(collector.Finish(out));
  return ReadChoice(body, Nesting::kFlat, out);
}

// ---- Anthropic's --------------------------------------------------------------------------------

Refusal ToolsOfMessages(const RequestJson& body, const Json& ordered, ToolFields* out) {
  const Json* tools = nullptr;
  KVANT_REFUSE(ListOf(body, ordered, &tools));
  ToolCollector collector(kMessagesPlaces);
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    std::string type;
    KVANT_REFUSE(TypeOf((*tools)[i], i, "custom", &type));
    if (type != "custom") {
      return NotSupported(
          PlaceOfTool(i) + ".type",
          fmt::format("expected custom, found '{}': the server has no tools of its own", type));
    }
    if (MemberInOrder((*tools)[i], kMessagesPlaces.schema) == nullptr) {
      return WrongValue(PlaceOfTool(i) + ".input_schema", "expected a JSON schema, found nothing");
    }
    collector.Add(i, ToolOfChat((*tools)[i], kMessagesPlaces.schema));
  }
  KVANT_REFUSE(collector.Finish(out));
  const RequestJson* const choice = Member(body, "tool_choice");
  if (choice == nullptr) return {};
  if (!choice->is_object()) return WrongType("tool_choice", "an object", *choice);
  bool is_single = false;
  if (const RequestJson* const flag = Member(*choice, "disable_parallel_tool_use")) {
    if (!flag->is_boolean()) {
      return WrongType("tool_choice.disable_parallel_tool_use", "true or false", *flag);
    }
    is_single = flag->get<bool>();
  }
  const std::string type = formats::JsonText(*choice, "type");
  if (type == "tool") {
    KVANT_REFUSE(ReadName(*choice, "tool_choice", *out, &out->choice.name));
    out->choice.kind = ChoiceKind::kNamed;
  } else if (type == "auto" || type == "any" || type == "none") {
    out->choice = ToolChoice::Of(type == "any" ? "required" : type);
  } else {
    const RequestJson* const found = Member(*choice, "type");
    return WrongMember("tool_choice.type", "auto, any, tool or none", found);
  }
  out->choice.is_parallel = !is_single;
  return CheckChoice(*out);
}

}  // namespace kvant::tools
