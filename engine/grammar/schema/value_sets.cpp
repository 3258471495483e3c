// Intersections, unions and complements of values.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/grammar/schema/needs.h"

namespace kvant::grammar {
namespace {

// More alternatives than this come from schemas that no model could follow anyway.
constexpr size_t kAlternativesMax = 1000;

CountRange BothCounts(const CountRange& first, const CountRange& second) {
  return {std::max(first.least, second.least), std::min(first.most, second.most)};
}

Status CheckAlternatives(size_t count) {
  if (count <= kAlternativesMax) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "schema: expected at most {} alternatives of one value, found more",
                   kAlternativesMax);
}

bool HasText(const StringShape& shape, const std::string& text) {
  if (shape.list.has_value()) return std::ranges::find(*shape.list, text) != shape.list->end();
  if (shape.texts != nullptr && !shape.texts->Has(text)) return false;
  if (shape.length.is_all()) return true;
  const size_t length = CodePointsOf(text).size();
  return length >= shape.length.least && length <= shape.length.most;
}

// Appends what both accept, unless it is nothing. Where there may be more such texts than known, an
// empty shape stays: nothing is proved by it.
Status AddBoth(const StringShape& first, const StringShape& second, std::vector<StringShape>& out) {
  StringShape both;
  both.is_exact = first.is_exact && second.is_exact;
  if (first.list.has_value() || second.list.has_value()) {
    const bool lists_first = first.list.has_value();
    const StringShape& listed = lists_first ? first : second;
    const StringShape& other = lists_first ? second : first;
    both.list.emplace();
    for (const std::string& text : *listed.list) {
      if (HasText(other, text)) both.list->push_back(text);
    }
    if (!both.list->empty() || !both.is_exact) out.push_back(std::move(both));
    return {};
  }
  both.length = BothCounts(first.length, second.length);
  both.texts = first.texts == nullptr ? second.texts : first.texts;
  if (first.texts != nullptr && second.texts != nullptr && first.texts != second.texts) {
    KVANT_ASSIGN(TextSet texts, Combine(*first.texts, *second.texts, TextSetOp::kAnd));
    both.texts = std::make_shared<const TextSet>(std::move(texts));
  }
  const bool is_empty = both.length.empty() || (both.texts != nullptr && both.texts->empty());
  if (!is_empty || !both.is_exact) out.push_back(std::move(both));
  return {};
}

Status AddBoth(const NumberSet& first, const NumberSet& second, std::vector<NumberSet>& out) {
  KVANT_ASSIGN(NumberSet both, BothNumbers(first, second));
  if (!both.empty()) out.push_back(std::move(both));
  return {};
}

Status AddBoth(const ArrayShape& first, const ArrayShape& second, std::vector<ArrayShape>& out) {
  ArrayShape both = first;
  both.rules.insert(both.rules.end(), second.rules.begin(), second.rules.end());
  both.count = BothCounts(first.count, second.count);
  both.is_unique = first.is_unique || second.is_unique;
  if (second.contained.has_value()) {
    if (first.contained.has_value() && first.contained != second.contained) {
      return MakeError(ErrorCode::kNotSupported,
                       "schema: expected one 'contains' for an array, found two that both hold");
    }
    both.contained_count = first.contained.has_value()
                               ? BothCounts(first.contained_count, second.contained_count)
                               : second.contained_count;
    both.contained = second.contained;
  }
  if (!both.count.empty()) out.push_back(std::move(both));
  return {};
}

Status AddBoth(const ObjectShape& first, const ObjectShape& second, std::vector<ObjectShape>& out) {
  ObjectShape both = first;
  for (const auto& rule : second.rules) {
    if (std::ranges::find(both.rules, rule) == both.rules.end()) both.rules.push_back(rule);
  }
  both.names.insert(both.names.end(), second.names.begin(), second.names.end());
  for (const std::string& name : second.required) {
    if (std::ranges::find(both.required, name) == both.required.end()) {
      both.required.push_back(name);
    }
  }
  both.count = BothCounts(first.count, second.count);
  if (!both.count.empty()) out.push_back(std::move(both));
  return {};
}

template <class Shape>
Status AddAllBoth(const std::vector<Shape>& first, const std::vector<Shape>& second,
                  std::vector<Shape>& out) {
  for (const Shape& one : first) {
    for (const Shape& other : second) {
      KVANT_TRY(AddBoth(one, other, out));
      KVANT_TRY(CheckAlternatives(out.size()));
    }
  }
  return {};
}

template <class Shape>
void Append(std::vector<Shape>& to, const std::vector<Shape>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The intersection of all that `others` finds for each shape.
template <class Shape, class Others>
Result<std::vector<Shape>> OtherShapes(const std::vector<Shape>& shapes, const Others& others) {
  std::vector<Shape> left(1);
  for (const Shape& shape : shapes) {
    KVANT_ASSIGN(const std::vector<Shape> outside, others(shape));
    std::vector<Shape> both;
    KVANT_TRY(AddAllBoth(left, outside, both));
    left = std::move(both);
  }
  return left;
}

// The counts outside of a range: below and above it.
std::vector<CountRange> OtherCounts(const CountRange& range) {
  std::vector<CountRange> others;
  if (range.least > 0) others.push_back({0, range.least - 1});
  if (range.most != kNoCountLimit) others.push_back({range.most + 1, kNoCountLimit});
  return others;
}

Error NoOpposite(std::string_view found) {
  return MakeError(ErrorCode::kNotSupported, "{}", found);
}

// It says nothing about the order of properties.
std::shared_ptr<const PropertyRule> RuleForOne(const std::string& name, NeedId need) {
  auto rule = std::make_shared<PropertyRule>();
  rule->named.emplace(name, need);
  return rule;
}

}  // namespace

Result<Values> Needs::Both(const Values& first, const Values& second) {
  Values both;
  both.has_null = first.has_null && second.has_null;
  both.has_false = first.has_false && second.has_false;
  both.has_true = first.has_true && second.has_true;
  KVANT_TRY(AddAllBoth(first.numbers, second.numbers, both.numbers));
  KVANT_TRY(AddAllBoth(first.strings, second.strings, both.strings));
  KVANT_TRY(AddAllBoth(first.arrays, second.arrays, both.arrays));
  KVANT_TRY(AddAllBoth(first.objects, second.objects, both.objects));
  return both;
}

Values Needs::Either(Values first, const Values& second) {
  first.has_null = first.has_null || second.has_null;
  first.has_false = first.has_false || second.has_false;
  first.has_true = first.has_true || second.has_true;
  Append(first.numbers, second.numbers);
  Append(first.strings, second.strings);
  Append(first.arrays, second.arrays);
  Append(first.objects, second.objects);
  return first;
}

Result<Values> Needs::Others(const Values& values) {
  Values others;
  others.has_null = !values.has_null;
  others.has_false = !values.has_false;
  others.has_true = !values.has_true;
  NumberSet numbers = AllNumbers();
  for (const NumberSet& set : values.numbers) {
    KVANT_ASSIGN(const NumberSet outside, OtherNumbers(set));
    KVANT_ASSIGN(numbers, BothNumbers(numbers, outside));
  }
  if (!numbers.empty()) others.numbers.push_back(std::move(numbers));
  KVANT_ASSIGN(others.strings, OtherShapes(values.strings, [this](const StringShape& shape) {
                 return OtherStrings(shape);
               }));
  KVANT_ASSIGN(others.arrays, OtherShapes(values.arrays, [this](const ArrayShape& shape) {
                 return OtherArrays(shape);
               }));
  KVANT_ASSIGN(others.objects, OtherShapes(values.objects, [this](const ObjectShape& shape) {
                 return OtherObjects(shape);
               }));
  return others;
}

Result<std::vector<StringShape>> Needs::OtherStrings(const StringShape& shape) {
  if (!shape.is_exact) return NoOpposite("a format, of which kvant writes a part only");
  std::vector<StringShape> others;
  const auto add_without = [&others](const TextSet& texts) -> Status {
    StringShape outside;
    KVANT_ASSIGN(TextSet rest, Combine(AllTexts(), texts, TextSetOp::kWithout));
    if (rest.empty()) return {};
    outside.texts = std::make_shared<const TextSet>(std::move(rest));
    others.push_back(std::move(outside));
    return {};
  };
  if (shape.list.has_value()) {
    KVANT_ASSIGN(const TextSet texts, TheseTexts(*shape.list));
    KVANT_TRY(add_without(texts));
    return others;
  }
  if (shape.texts != nullptr) KVANT_TRY(add_without(*shape.texts));
  for (const CountRange& range : OtherCounts(shape.length)) {
    StringShape outside;
    outside.length = range;
    others.push_back(std::move(outside));
  }
  return others;
}

// Each alternative breaks one of the shape's conditions.
Result<std::vector<ArrayShape>> Needs::OtherArrays(const ArrayShape& shape) {
  if (shape.is_unique) return NoOpposite("'uniqueItems'");
  std::vector<ArrayShape> others;
  for (const CountRange& range : OtherCounts(shape.count)) {
    others.emplace_back().count = range;
  }
  for (const ArrayRule& rule : shape.rules) {
    for (size_t place = 0; place < rule.first.size(); ++place) {
      if (rule.first[place] == kAnything) continue;
      ArrayShape& outside = others.emplace_back();
      ArrayRule broken;
      broken.first.assign(place, kAnything);
      broken.first.push_back(Opposite(rule.first[place]));
      outside.rules.push_back(std::move(broken));
      outside.count.least = static_cast<uint32_t>(place + 1);
    }
    if (rule.rest == kAnything) continue;
    if (rule.rest == kNoValue) {
      others.emplace_back().count.least = static_cast<uint32_t>(rule.first.size() + 1);
    } else if (rule.first.empty()) {
      others.emplace_back().contained = Opposite(rule.rest);
    } else if (shape.count.most > rule.first.size()) {
      return NoOpposite("'items' behind 'prefixItems'");
    }
  }
  if (shape.contained.has_value()) {
    for (const CountRange& range : OtherCounts(shape.contained_count)) {
      ArrayShape& outside = others.emplace_back();
      outside.contained = shape.contained;
      outside.contained_count = range;
    }
  }
  return others;
}

Result<std::vector<ObjectShape>> Needs::OtherObjects(const ObjectShape& shape) {
  if (!shape.names.empty()) return NoOpposite("'propertyNames'");
  std::vector<ObjectShape> others;
  for (const CountRange& range : OtherCounts(shape.count)) {
    others.emplace_back().count = range;
  }
  for (const std::string& name : shape.required) {
    others.emplace_back().rules.push_back(RuleForOne(name, kNoValue));
  }
  for (const auto& rule : shape.rules) {
    if (!rule->patterns.empty()) return NoOpposite("'patternProperties'");
    if (rule->others != kAnything) return NoOpposite("'additionalProperties'");
    for (const auto& [name, need] : rule->named) {
      if (need == kAnything) continue;
      ObjectShape& outside = others.emplace_back();
      outside.rules.push_back(RuleForOne(name, Opposite(need)));
      outside.required.push_back(name);
    }
  }
  return others;
}

}  // namespace kvant::grammar
