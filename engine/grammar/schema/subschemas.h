// Which keywords of a JSON schema have schemas in them. Thread-safety: pure.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/grammar/schema/json_value.h"

namespace kvant::grammar {

// The value is a schema; or a list of schemas; or an object of schemas.
inline constexpr std::array<std::string_view, 13> kSchemaKeywords = {"additionalProperties",
                                                                     "items",
                                                                     "additionalItems",
                                                                     "not",
                                                                     "contains",
                                                                     "propertyNames",
                                                                     "if",
                                                                     "then",
                                                                     "else",
                                                                     "unevaluatedProperties",
                                                                     "unevaluatedItems",
                                                                     "contentSchema",
                                                                     "extends"};
inline constexpr std::array<std::string_view, 5> kSchemaListKeywords = {"allOf", "anyOf", "oneOf",
                                                                        "prefixItems", "items"};
inline constexpr std::array<std::string_view, 6> kSchemaMapKeywords = {
    "properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"};

// Calls act(schema) for all schemas that stand directly in one.
template <class Act>
void ForEachSubschema(const JsonValue& schema, const Act& act) {
  for (const auto& [key, value] : schema.members) {
    const auto is_in = [&key](const auto& list) {
      return std::find(list.begin(), list.end(), std::string_view(key)) != list.end();
    };
    if (value->is(JsonValue::Kind::kObject) && is_in(kSchemaKeywords)) act(*value);
    if (value->is(JsonValue::Kind::kArray) && is_in(kSchemaListKeywords)) {
      for (const JsonValue* inner : value->items) act(*inner);
    }
    if (value->is(JsonValue::Kind::kObject) && is_in(kSchemaMapKeywords)) {
      for (const auto& [name, inner] : value->members) act(*inner);
    }
  }
}

}  // namespace kvant::grammar
