// The keywords for numbers, strings and arrays.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

#include "engine/grammar/schema/format_set.h"
#include "engine/grammar/schema/keyword_reader.h"

namespace kvant::grammar {
namespace {

// Formats of numbers, by the OpenAPI specification.
struct NumberFormat {
  std::string_view name;
  bool is_whole;
  const char* least;
  const char* most;
};
constexpr std::array kNumberFormats = {
    NumberFormat{"int32", true, "-2147483648", "2147483647"},
    NumberFormat{"int64", true, "-9223372036854775808", "9223372036854775807"},
    NumberFormat{"float", false, nullptr, nullptr},
    NumberFormat{"double", false, nullptr, nullptr},
};

Status Restrict(std::vector<NumberSet>& numbers, const NumberSet& to) {
  std::vector<NumberSet> both;
  for (const NumberSet& set : numbers) {
    KVANT_ASSIGN(NumberSet one, BothNumbers(set, to));
    if (!one.empty()) both.push_back(std::move(one));
  }
  numbers = std::move(both);
  return {};
}

}  // namespace

Result<std::optional<uint32_t>> KeywordReader::Count(std::string_view key) const {
  const JsonValue* value = Find(key);
  if (value == nullptr) return std::optional<uint32_t>();
  const bool is_count = value->is(JsonValue::Kind::kNumber) && value->number.is_whole() &&
                        !value->number.negative && value->number.point <= 9;
  if (!is_count) return Wrong(*value, "a whole number from 0 to 999999999");
  return std::optional(static_cast<uint32_t>(std::stoul(value->number.Whole())));
}

Result<CountRange> KeywordReader::Counts(std::string_view least, std::string_view most) const {
  KVANT_ASSIGN(const auto low, Count(least));
  KVANT_ASSIGN(const auto high, Count(most));
  return CountRange{low.value_or(0), high.value_or(kNoCountLimit)};
}

Result<const JsonValue*> KeywordReader::Number(std::string_view key) const {
  const JsonValue* value = Find(key);
  if (value == nullptr || value->is(JsonValue::Kind::kNumber)) return value;
  return Wrong(*value, "a number");
}

Result<std::vector<NumberSet>> KeywordReader::ReadNumbers(const Types& types) const {
  std::vector<NumberSet> numbers;
  if (types.number) {
    numbers.push_back(AllNumbers());
  } else if (types.integer) {
    numbers.push_back(WholeNumbers());
  }
  struct Bound {
    const char* key;
    const char* exclusive;
    NumberBound with;
    NumberBound without;
  };
  constexpr std::array kBounds = {
      Bound{"minimum", "exclusiveMinimum", NumberBound::kLeast, NumberBound::kAbove},
      Bound{"maximum", "exclusiveMaximum", NumberBound::kGreatest, NumberBound::kBelow}};
  for (const Bound& bound : kBounds) {
    // In draft 4 the exclusive keyword is a flag of the other one.
    const JsonValue* exclusive = Find(bound.exclusive);
    const bool is_flag = exclusive != nullptr && exclusive->is_bool();
    const bool is_set = is_flag && exclusive->is(JsonValue::Kind::kTrue);
    KVANT_ASSIGN(const JsonValue* value, Number(bound.key));
    if (value != nullptr) {
      KVANT_TRY(Restrict(numbers, NumbersFrom(is_set ? bound.without : bound.with, value->number)));
    }
    if (is_flag) continue;
    KVANT_ASSIGN(value, Number(bound.exclusive));
    if (value != nullptr) KVANT_TRY(Restrict(numbers, NumbersFrom(bound.without, value->number)));
  }
  KVANT_ASSIGN(const JsonValue* multiple, Number("multipleOf"));
  if (multiple == nullptr) return numbers;
  if (multiple->number <= Decimal{}) return Wrong(*multiple, "a number above 0");
  Result<NumberSet> multiples = MultiplesOf(multiple->number);
  if (!multiples.ok()) return Placed(*multiple, multiples.error());
  const Status status = Restrict(numbers, *multiples);
  if (!status.ok()) return Placed(*multiple, status.error());
  return numbers;
}

Result<std::vector<StringShape>> KeywordReader::ReadStrings() const {
  StringShape shape;
  KVANT_ASSIGN(shape.length, Counts("minLength", "maxLength"));
  if (const JsonValue* pattern = Find("pattern")) {
    if (!pattern->is(JsonValue::Kind::kString)) return Wrong(*pattern, "a text");
    const auto texts = needs_.Pattern(pattern->text);
    if (!texts.ok()) return Placed(*pattern, texts.error());
    if ((*texts)->empty()) return std::vector<StringShape>();
    if (!(*texts)->IsAll()) shape.texts = *texts;
  }
  if (shape.length.empty()) return std::vector<StringShape>();
  return std::vector<StringShape>{std::move(shape)};
}

Status KeywordReader::ReadFormat(const Types& types, std::vector<NumberSet>& numbers,
                                 std::vector<StringShape>& strings) const {
  const JsonValue* format = Find("format");
  if (format == nullptr) return {};
  if (!format->is(JsonValue::Kind::kString)) return Wrong(*format, "a text");
  for (const NumberFormat& known : kNumberFormats) {
    if (known.name != format->text) continue;
    if (known.is_whole) KVANT_TRY(Restrict(numbers, WholeNumbers()));
    if (known.least == nullptr) return {};
    KVANT_TRY(
        Restrict(numbers, NumbersFrom(NumberBound::kLeast, ParseDecimal(known.least).value())));
    return Restrict(numbers, NumbersFrom(NumberBound::kGreatest, ParseDecimal(known.most).value()));
  }
  const std::shared_ptr<const TextSet> texts = FormatSet(format->text);
  if (texts == nullptr) {
    return Needs::At(*format,
                     fmt::format("expected one of the formats {}, int32, int64, float and double, "
                                 "found {}",
                                 FormatNames(), ShownValue(*format)),
                     ErrorCode::kNotSupported);
  }
  if (!types.string) return {};
  for (StringShape& shape : strings) {
    shape.is_exact = false;
    if (shape.texts == nullptr) {
      shape.texts = texts;
      continue;
    }
    Result<TextSet> both = Combine(*shape.texts, *texts, TextSetOp::kAnd);
    if (!both.ok()) return Placed(*format, both.error());
    shape.texts = std::make_shared<const TextSet>(std::move(*both));
  }
  return {};
}

Result<std::vector<ArrayShape>> KeywordReader::ReadArrays() {
  ArrayShape shape;
  KVANT_ASSIGN(shape.count, Counts("minItems", "maxItems"));
  ArrayRule rule;
  KVANT_TRY(ReadItems(rule));
  if (!rule.first.empty() || rule.rest != kAnything) shape.rules.push_back(std::move(rule));
  KVANT_TRY(ReadContains(shape));
  if (const JsonValue* unique = Find("uniqueItems")) {
    if (!unique->is_bool()) return Wrong(*unique, "true or false");
    shape.is_unique = unique->is(JsonValue::Kind::kTrue);
  }
  if (shape.count.empty()) return std::vector<ArrayShape>();
  return std::vector<ArrayShape>{std::move(shape)};
}

// `items` is a list up to draft 2019-09, and then what `prefixItems` is since; `additionalItems`
// belongs to the list only.
Status KeywordReader::ReadItems(ArrayRule& rule) {
  const JsonValue* items = Find("items");
  const JsonValue* first = Find("prefixItems");
  const JsonValue* rest = items;
  if (items != nullptr && items->is(JsonValue::Kind::kArray)) {
    if (first != nullptr) return Wrong(*items, "a schema beside 'prefixItems'");
    first = items;
    rest = Find("additionalItems");
  }
  if (first != nullptr) {
    if (!first->is(JsonValue::Kind::kArray)) return Wrong(*first, "a list of schemas");
    for (const JsonValue* item : first->items) {
      KVANT_ASSIGN(const NeedId need, Schema(*item));
      rule.first.push_back(need);
    }
  }
  const JsonValue* unevaluated = Find("unevaluatedItems");
  if (unevaluated != nullptr) {
    KVANT_TRY(Schema(*unevaluated));
    for (const char* key : {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "contains"}) {
      if (Find(key) == nullptr || unevaluated->is(JsonValue::Kind::kTrue)) continue;
      return Needs::At(*unevaluated, fmt::format("expected no '{}' beside it, found one", key),
                       ErrorCode::kNotSupported);
    }
    if (rest == nullptr) rest = unevaluated;
  }
  if (rest == nullptr) return {};
  KVANT_ASSIGN(rule.rest, Schema(*rest));
  return {};
}

Status KeywordReader::ReadContains(ArrayShape& shape) {
  const JsonValue* contains = Find("contains");
  KVANT_ASSIGN(const auto least, Count("minContains"));
  KVANT_ASSIGN(const auto most, Count("maxContains"));
  if (contains == nullptr) return {};
  KVANT_ASSIGN(const NeedId need, Schema(*contains));
  shape.contained = need;
  shape.contained_count = {least.value_or(1), most.value_or(kNoCountLimit)};
  if (shape.contained_count.is_all()) shape.contained.reset();
  return {};
}

}  // namespace kvant::grammar
