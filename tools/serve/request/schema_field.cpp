#include "tools/serve/request/schema_field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "tools/serve/request/ordered_body.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {
namespace {

const Json* ValueAt(const Json& body, const std::vector<std::string>& path) {
  const Json* place = &body;
  for (const std::string& name : path) {
    if (!place->is_object() || !place->contains(name)) return nullptr;
    place = &place->at(name);
  }
  return place;
}

}  // namespace

Refusal FindSchema(std::string_view body, const std::vector<std::string>& path, std::string* field,
                   std::string* schema) {
  Json json;
  KVANT_REFUSE(ParseInOrder(RequestJson::parse(body), body, &json));
  const std::vector<std::vector<std::string>> paths = {
      path, {"text", "format", "schema"}, {"output_config", "format", "schema"}};
  *field = fmt::format("{}", fmt::join(path, "."));
  for (const std::vector<std::string>& one : paths) {
    const Json* const value = ValueAt(json, one);
    if (value == nullptr) continue;
    *field = fmt::format("{}", fmt::join(one, "."));
    if (!value->is_object() && !value->is_boolean()) {
      return WrongType(*field, "a JSON schema: an object, true or false",
                       formats::Json::parse(value->dump()));
    }
    *schema = value->dump();
    return {};
  }
  return WrongValue(*field, "expected a JSON schema, found nothing");
}

}  // namespace kvant::tools
