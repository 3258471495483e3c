// All keywords that are known, and what becomes of them. docs/constrained.md has them as a table.
// Thread-safety: pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvant::grammar {

enum class KeywordUse : uint8_t {
  kEnforced,
  kAnnotation,  // says nothing about values
  kMedium,      // an annotation that seems to say something: as an unknown keyword
  kRefused,
};

struct Keyword {
  std::string_view name;
  KeywordUse use;
};

inline constexpr std::array kKeywords = {
    // Any type.
    Keyword{"type", KeywordUse::kEnforced},
    Keyword{"enum", KeywordUse::kEnforced},
    Keyword{"const", KeywordUse::kEnforced},
    Keyword{"$ref", KeywordUse::kEnforced},
    Keyword{"allOf", KeywordUse::kEnforced},
    Keyword{"anyOf", KeywordUse::kEnforced},
    Keyword{"oneOf", KeywordUse::kEnforced},
    Keyword{"not", KeywordUse::kEnforced},
    Keyword{"if", KeywordUse::kEnforced},
    Keyword{"then", KeywordUse::kEnforced},
    Keyword{"else", KeywordUse::kEnforced},
    // Strings.
    Keyword{"minLength", KeywordUse::kEnforced},
    Keyword{"maxLength", KeywordUse::kEnforced},
    Keyword{"pattern", KeywordUse::kEnforced},
    Keyword{"format", KeywordUse::kEnforced},
    // Numbers.
    Keyword{"minimum", KeywordUse::kEnforced},
    Keyword{"maximum", KeywordUse::kEnforced},
    Keyword{"exclusiveMinimum", KeywordUse::kEnforced},
    Keyword{"exclusiveMaximum", KeywordUse::kEnforced},
    Keyword{"multipleOf", KeywordUse::kEnforced},
    // Arrays.
    Keyword{"items", KeywordUse::kEnforced},
    Keyword{"prefixItems", KeywordUse::kEnforced},
    Keyword{"additionalItems", KeywordUse::kEnforced},
    Keyword{"minItems", KeywordUse::kEnforced},
    Keyword{"maxItems", KeywordUse::kEnforced},
    Keyword{"uniqueItems", KeywordUse::kEnforced},
    Keyword{"contains", KeywordUse::kEnforced},
    Keyword{"minContains", KeywordUse::kEnforced},
    Keyword{"maxContains", KeywordUse::kEnforced},
    Keyword{"unevaluatedItems", KeywordUse::kEnforced},
    // Objects.
    Keyword{"properties", KeywordUse::kEnforced},
    Keyword{"required", KeywordUse::kEnforced},
    Keyword{"additionalProperties", KeywordUse::kEnforced},
    Keyword{"patternProperties", KeywordUse::kEnforced},
    Keyword{"propertyNames", KeywordUse::kEnforced},
    Keyword{"minProperties", KeywordUse::kEnforced},
    Keyword{"maxProperties", KeywordUse::kEnforced},
    Keyword{"dependentRequired", KeywordUse::kEnforced},
    Keyword{"dependentSchemas", KeywordUse::kEnforced},
    Keyword{"dependencies", KeywordUse::kEnforced},
    Keyword{"unevaluatedProperties", KeywordUse::kEnforced},
    // Names of schemas, and where they stand.
    Keyword{"$schema", KeywordUse::kEnforced},
    Keyword{"$id", KeywordUse::kAnnotation},
    Keyword{"id", KeywordUse::kAnnotation},
    Keyword{"$anchor", KeywordUse::kAnnotation},
    Keyword{"$dynamicAnchor", KeywordUse::kAnnotation},
    Keyword{"$defs", KeywordUse::kAnnotation},
    Keyword{"definitions", KeywordUse::kAnnotation},
    // Annotations, of the specification and of common programs.
    Keyword{"title", KeywordUse::kAnnotation},
    Keyword{"description", KeywordUse::kAnnotation},
    Keyword{"default", KeywordUse::kAnnotation},
    Keyword{"example", KeywordUse::kAnnotation},
    Keyword{"examples", KeywordUse::kAnnotation},
    Keyword{"deprecated", KeywordUse::kAnnotation},
    Keyword{"readOnly", KeywordUse::kAnnotation},
    Keyword{"writeOnly", KeywordUse::kAnnotation},
    Keyword{"$comment", KeywordUse::kAnnotation},
    Keyword{"contentEncoding", KeywordUse::kMedium},
    Keyword{"contentMediaType", KeywordUse::kMedium},
    Keyword{"contentSchema", KeywordUse::kMedium},
    // These would change a result.
    Keyword{"$dynamicRef", KeywordUse::kRefused},
    Keyword{"$recursiveRef", KeywordUse::kRefused},
    Keyword{"$recursiveAnchor", KeywordUse::kRefused},
    Keyword{"$vocabulary", KeywordUse::kRefused},
    Keyword{"extends", KeywordUse::kRefused},
    Keyword{"disallow", KeywordUse::kRefused},
    Keyword{"divisibleBy", KeywordUse::kRefused},
};

}  // namespace kvant::grammar
