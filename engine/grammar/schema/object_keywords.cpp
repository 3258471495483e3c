// The keywords for objects.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/grammar/schema/keyword_reader.h"

namespace kvant::grammar {
namespace {

// Texts of a string's alternatives, as one set.
Result<TextSet> TextsOf(const std::vector<StringShape>& shapes) {
  TextSet all;
  for (const StringShape& shape : shapes) {
    TextSet one = shape.texts == nullptr ? AllTexts() : *shape.texts;
    if (shape.list.has_value()) {
      KVANT_ASSIGN(one, TheseTexts(*shape.list));
    } else if (!shape.length.is_all()) {
      KVANT_ASSIGN(const TextSet lengths, TextsOfLength(shape.length.least, shape.length.most));
      KVANT_ASSIGN(one, Combine(one, lengths, TextSetOp::kAnd));
    }
    KVANT_ASSIGN(all, Combine(all, one, TextSetOp::kOr));
  }
  return all;
}

}  // namespace

Result<std::vector<ObjectShape>> KeywordReader::ReadObjects() {
  ObjectShape shape;
  KVANT_ASSIGN(shape.count, Counts("minProperties", "maxProperties"));
  KVANT_ASSIGN(PropertyRule rule, ReadProperties());
  const bool says_something =
      !rule.order.empty() || !rule.patterns.empty() || rule.others != kAnything;
  if (says_something) shape.rules.push_back(std::make_shared<PropertyRule>(std::move(rule)));
  if (const JsonValue* required = Find("required")) {
    if (!required->is(JsonValue::Kind::kArray)) return Wrong(*required, "a list of names");
    for (const JsonValue* name : required->items) {
      if (!name->is(JsonValue::Kind::kString)) return Wrong(*name, "a name");
      shape.required.push_back(name->text);
    }
    std::vector<std::string> sorted = shape.required;
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      return Wrong(*required, "different names");
    }
  }
  KVANT_TRY(ReadPropertyNames(shape));
  if (shape.count.empty()) return std::vector<ObjectShape>();
  return std::vector<ObjectShape>{std::move(shape)};
}

Result<PropertyRule> KeywordReader::ReadProperties() {
  PropertyRule rule;
  if (const JsonValue* properties = Find("properties")) {
    if (!properties->is(JsonValue::Kind::kObject)) {
      return Wrong(*properties, "an object of schemas");
    }
    for (const auto& [name, schema] : properties->members) {
      KVANT_ASSIGN(const NeedId need, Schema(*schema));
      rule.order.push_back(name);
      rule.named.emplace(name, need);
    }
  }
  if (const JsonValue* patterns = Find("patternProperties")) {
    if (!patterns->is(JsonValue::Kind::kObject)) return Wrong(*patterns, "an object of schemas");
    for (const auto& [pattern, schema] : patterns->members) {
      KVANT_ASSIGN(const NeedId need, Schema(*schema));
      const auto texts = needs_.Pattern(pattern);
      if (!texts.ok()) return Placed(*schema, texts.error());
      rule.patterns.emplace_back(*texts, need);
    }
  }
  const JsonValue* others = Find("additionalProperties");
  const JsonValue* unevaluated = Find("unevaluatedProperties");
  if (unevaluated != nullptr) {
    KVANT_TRY(Schema(*unevaluated));
    for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}) {
      if (Find(key) == nullptr || unevaluated->is(JsonValue::Kind::kTrue)) continue;
      return Needs::At(*unevaluated, fmt::format("expected no '{}' beside it, found one", key),
                       ErrorCode::kNotSupported);
    }
    if (others == nullptr) others = unevaluated;
  }
  if (others != nullptr) {
    KVANT_ASSIGN(rule.others, Schema(*others));
  }
  return rule;
}

Status KeywordReader::ReadPropertyNames(ObjectShape& shape) {
  const JsonValue* names = Find("propertyNames");
  if (names == nullptr) return {};
  KVANT_ASSIGN(const NeedId need, Schema(*names));
  KVANT_ASSIGN(const Values* values, needs_.ValuesOf(need));
  Result<TextSet> texts = TextsOf(values->strings);
  if (!texts.ok()) return Placed(*names, texts.error());
  if (!texts->IsAll()) shape.names.push_back(std::make_shared<const TextSet>(std::move(*texts)));
  return {};
}

// `dependencies` has both of what became `dependentRequired` and `dependentSchemas`.
Status KeywordReader::ApplyDependencies(Values& values) {
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const JsonValue* dependencies = Find(key);
    if (dependencies == nullptr) continue;
    if (!dependencies->is(JsonValue::Kind::kObject)) {
      return Wrong(*dependencies, "an object of names");
    }
    for (const auto& [name, wanted] : dependencies->members) {
      const std::string_view word(key);
      const bool is_list = wanted->is(JsonValue::Kind::kArray);
      if (word == "dependentRequired" && !is_list) return Wrong(*wanted, "a list of names");
      if (word == "dependentSchemas" && is_list) return Wrong(*wanted, "a schema");
      KVANT_TRY(ApplyDependency(name, *wanted, values));
    }
  }
  return {};
}

// Either the property is not there, or what depends on it holds.
Status KeywordReader::ApplyDependency(const std::string& name, const JsonValue& wanted,
                                      Values& values) {
  if (values.objects.empty()) return {};
  Values without;
  auto rule = std::make_shared<PropertyRule>();
  rule->named.emplace(name, kNoValue);
  without.objects.emplace_back().rules.push_back(std::move(rule));
  Values with;
  ObjectShape& shape = with.objects.emplace_back();
  shape.required.push_back(name);
  if (wanted.is(JsonValue::Kind::kArray)) {
    for (const JsonValue* other : wanted.items) {
      if (!other->is(JsonValue::Kind::kString)) return Wrong(*other, "a name");
      const bool is_known = std::ranges::find(shape.required, other->text) != shape.required.end();
      if (!is_known) shape.required.push_back(other->text);
    }
  } else {
    KVANT_ASSIGN(const NeedId need, Schema(wanted));
    KVANT_TRY(ApplyNeed(need, with));
  }
  Values objects;
  objects.objects = std::move(values.objects);
  Result<Values> both = Needs::Both(objects, Needs::Either(std::move(without), with));
  if (!both.ok()) return Placed(wanted, both.error());
  values.objects = std::move(both->objects);
  return {};
}

}  // namespace kvant::grammar
