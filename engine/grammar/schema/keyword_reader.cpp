// The keywords for values of any type.
#include "engine/grammar/schema/keyword_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/grammar/schema/keyword_list.h"
#include "formats/quoted.h"

namespace kvant::grammar {
namespace {

constexpr size_t kListMax = 100'000;

constexpr std::array<std::string_view, 5> kDrafts = {
    "json-schema.org/draft-04/schema", "json-schema.org/draft-06/schema",
    "json-schema.org/draft-07/schema", "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema"};

// How many characters must be inserted, dropped or replaced to make one word of the other.
size_t EditDistance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t above = row[j];
      const size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      diagonal = above;
    }
  }
  return row[to.size()];
}

// " (is it 'minimum'?)", or nothing.
std::string LikelyKeyword(std::string_view name) {
  if (name.size() > 40) return "";
  for (const Keyword& keyword : kKeywords) {
    if (keyword.use == KeywordUse::kRefused) continue;
    if (EditDistance(name, keyword.name) <= 2) return fmt::format(" (is it '{}'?)", keyword.name);
  }
  return "";
}

bool IsDraft(std::string_view uri) {
  for (const std::string_view start : {"http://", "https://"}) {
    if (uri.starts_with(start)) uri.remove_prefix(start.size());
  }
  if (uri.ends_with('#')) uri.remove_suffix(1);
  return std::ranges::find(kDrafts, uri) != kDrafts.end();
}

}  // namespace

Error KeywordReader::Wrong(const JsonValue& value, std::string_view expected) {
  return Needs::At(value, fmt::format("expected {}, found {}", expected, ShownValue(value)));
}

Error KeywordReader::Placed(const JsonValue& value, const Error& error) {
  if (error.message.starts_with("schema: #")) return error;
  return Needs::At(value, error.message, error.code);
}

Result<NeedId> KeywordReader::Schema(const JsonValue& value) {
  if (value.is_bool() || value.is(JsonValue::Kind::kObject)) return needs_.OfSchema(value);
  return Wrong(value, "a schema: an object, true or false");
}

Status KeywordReader::CheckKeywords() const {
  for (const auto& [name, value] : schema_.members) {
    const auto known = std::ranges::find(kKeywords, std::string_view(name), &Keyword::name);
    if (known == kKeywords.end()) {
      if (needs_.unknown_ == UnknownKeywords::kAnnotations || name.starts_with("x-")) continue;
      return Needs::At(*value, fmt::format("expected a keyword of JSON Schema, found {}{}",
                                           formats::Quoted(name), LikelyKeyword(name)));
    }
    const bool is_refused =
        known->use == KeywordUse::kRefused ||
        (known->use == KeywordUse::kMedium && needs_.unknown_ == UnknownKeywords::kErrors);
    if (is_refused) {
      return Needs::At(*value,
                       fmt::format("expected a keyword that kvant enforces, found '{}'", name),
                       ErrorCode::kNotSupported);
    }
    if (name == "$schema") {
      if (!value->is(JsonValue::Kind::kString) || !IsDraft(value->text)) {
        return Wrong(*value, "JSON Schema of draft 4, 6, 7, 2019-09 or 2020-12");
      }
    }
  }
  return {};
}

Result<Values> KeywordReader::Read() {
  KVANT_TRY(CheckKeywords());
  KVANT_ASSIGN(const Types types, ReadTypes());
  Values values;
  values.has_null = types.null;
  values.has_false = values.has_true = types.boolean;
  KVANT_ASSIGN(values.numbers, ReadNumbers(types));
  if (types.string) {
    KVANT_ASSIGN(values.strings, ReadStrings());
  }
  KVANT_TRY(ReadFormat(types, values.numbers, values.strings));
  if (types.array) {
    KVANT_ASSIGN(values.arrays, ReadArrays());
  }
  if (types.object) {
    KVANT_ASSIGN(values.objects, ReadObjects());
  }
  KVANT_TRY(ApplyConstants(values));
  KVANT_TRY(ApplyLists(values));
  KVANT_TRY(ApplyDependencies(values));
  KVANT_TRY(ApplyConditions(values));
  return values;
}

Result<KeywordReader::Types> KeywordReader::ReadTypes() const {
  Types types;
  const JsonValue* value = Find("type");
  if (value == nullptr) return types;
  constexpr const char* kExpected =
      "null, boolean, number, integer, string, array or object, or a list of these";
  types = {false, false, false, false, false, false, false};
  std::vector<const JsonValue*> names = {value};
  if (value->is(JsonValue::Kind::kArray)) names = value->items;
  if (names.empty()) return Wrong(*value, kExpected);
  for (const JsonValue* name : names) {
    const std::array<std::pair<std::string_view, bool*>, 7> known = {{{"null", &types.null},
                                                                      {"boolean", &types.boolean},
                                                                      {"number", &types.number},
                                                                      {"integer", &types.integer},
                                                                      {"string", &types.string},
                                                                      {"array", &types.array},
                                                                      {"object", &types.object}}};
    const auto found = std::ranges::find_if(known, [name](const auto& entry) {
      return name->is(JsonValue::Kind::kString) && entry.first == name->text;
    });
    if (found == known.end()) return Wrong(*name, kExpected);
    *found->second = true;
  }
  return types;
}

// Strings and numbers of an enum are one alternative each, however many they are.
Status KeywordReader::ApplyConstants(Values& values) const {
  if (const JsonValue* constant = Find("const")) {
    KVANT_ASSIGN(const Values* one, needs_.ValuesOf(needs_.OfConstant(*constant)));
    KVANT_ASSIGN(values, Needs::Both(values, *one));
  }
  const JsonValue* list = Find("enum");
  if (list == nullptr) return {};
  if (!list->is(JsonValue::Kind::kArray) || list->items.empty() || list->items.size() > kListMax) {
    return Wrong(*list, fmt::format("a list of 1 to {} values", kListMax));
  }
  Values all;
  StringShape strings;
  strings.list.emplace();
  std::vector<Decimal> numbers;
  for (const JsonValue* value : list->items) {
    if (value->is(JsonValue::Kind::kString)) {
      strings.list->push_back(value->text);
    } else if (value->is(JsonValue::Kind::kNumber)) {
      numbers.push_back(value->number);
    } else {
      KVANT_ASSIGN(const Values* one, needs_.ValuesOf(needs_.OfConstant(*value)));
      all = Needs::Either(std::move(all), *one);
    }
  }
  if (!strings.list->empty()) all.strings.push_back(std::move(strings));
  if (!numbers.empty()) {
    Result<NumberSet> set = TheseNumbers(numbers);
    if (!set.ok()) return Placed(*list, set.error());
    all.numbers.push_back(std::move(*set));
  }
  Result<Values> both = Needs::Both(values, all);
  if (!both.ok()) return Placed(*list, both.error());
  values = std::move(*both);
  return {};
}

Status KeywordReader::ApplyNeed(NeedId need, Values& values) {
  KVANT_ASSIGN(const Values* other, needs_.ValuesOf(need));
  Result<Values> both = Needs::Both(values, *other);
  if (!both.ok()) return Placed(schema_, both.error());
  values = std::move(*both);
  return {};
}

Result<Values> KeywordReader::Referenced(const JsonValue& reference) {
  if (!reference.is(JsonValue::Kind::kString)) return Wrong(reference, "a text");
  const auto schema = needs_.references_.Resolve(schema_, reference.text);
  if (!schema.ok()) return Placed(reference, schema.error());
  KVANT_ASSIGN(const Values* values, needs_.ValuesOf(needs_.OfSchema(**schema)));
  return *values;
}

Result<Values> KeywordReader::Listed(std::string_view key, const JsonValue& list) {
  if (!list.is(JsonValue::Kind::kArray) || list.items.empty()) {
    return Wrong(list, "a list of schemas");
  }
  for (const JsonValue* item : list.items) KVANT_TRY(Schema(*item));
  if (key == "oneOf") return OneOf(list);
  const bool is_all = key == "allOf";
  Values values = is_all ? AllValues() : Values{};
  for (const JsonValue* item : list.items) {
    KVANT_ASSIGN(const Values* one, needs_.ValuesOf(needs_.OfSchema(*item)));
    if (!is_all) {
      values = Needs::Either(std::move(values), *one);
      continue;
    }
    Result<Values> both = Needs::Both(values, *one);
    if (!both.ok()) return Placed(list, both.error());
    values = std::move(*both);
  }
  return values;
}

// The schemas that hold beside this one. Properties stand in the order of the text: those of a
// keyword before `properties` come first.
Status KeywordReader::ApplyLists(Values& values) {
  bool is_behind = false;
  Values before = AllValues();
  for (const auto& [key, value] : schema_.members) {
    is_behind = is_behind || key == "properties";
    Result<Values> found = Values{};
    if (key == "$ref") {
      found = Referenced(*value);
    } else if (key == "allOf" || key == "anyOf" || key == "oneOf") {
      found = Listed(key, *value);
    } else {
      continue;
    }
    if (!found.ok()) return found.error();
    Values& to = is_behind ? values : before;
    Result<Values> both = Needs::Both(to, *found);
    if (!both.ok()) return Placed(*value, both.error());
    to = std::move(*both);
  }
  Result<Values> both = Needs::Both(before, values);
  if (!both.ok()) return Placed(schema_, both.error());
  values = std::move(*both);
  return {};
}

// The alternatives, each without what another one accepts, too.
Result<Values> KeywordReader::OneOf(const JsonValue& list) {
  const size_t count = list.items.size();
  std::vector<NeedId> needs;
  for (const JsonValue* item : list.items) needs.push_back(needs_.OfSchema(*item));
  std::vector<Values> alternatives;
  for (const NeedId need : needs) {
    KVANT_ASSIGN(const Values* one, needs_.ValuesOf(need));
    alternatives.push_back(*one);
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      KVANT_ASSIGN(const Values* first, needs_.ValuesOf(needs[i]));
      KVANT_ASSIGN(const Values* second, needs_.ValuesOf(needs[j]));
      Result<Values> both = Needs::Both(*first, *second);
      if (!both.ok()) return Placed(list, both.error());
      Result<bool> disjoint = needs_.IsNothing(*both);
      if (!disjoint.ok()) return Placed(list, disjoint.error());
      if (*disjoint) continue;
      for (const auto& [own, other] : {std::pair(i, needs[j]), std::pair(j, needs[i])}) {
        const auto others = needs_.ValuesOf(needs_.Opposite(other));
        Result<Values> rest =
            others.ok() ? Needs::Both(alternatives[own], **others) : Result<Values>(others.error());
        if (rest.ok()) {
          alternatives[own] = std::move(*rest);
          continue;
        }
        return Needs::At(list,
                         fmt::format("expected alternatives of which never two hold, found {} and "
                                     "{}, which may ({})",
                                     i, j, rest.error().message),
                         ErrorCode::kNotSupported);
      }
    }
  }
  Values any;
  for (const Values& one : alternatives) any = Needs::Either(std::move(any), one);
  return any;
}

Status KeywordReader::ApplyConditions(Values& values) {
  if (const JsonValue* excluded = Find("not")) {
    KVANT_ASSIGN(const NeedId need, Schema(*excluded));
    KVANT_TRY(ApplyNeed(needs_.Opposite(need), values));
  }
  const JsonValue* condition = Find("if");
  const JsonValue* then = Find("then");
  const JsonValue* otherwise = Find("else");
  if (condition == nullptr || (then == nullptr && otherwise == nullptr)) return {};
  KVANT_ASSIGN(const NeedId need, Schema(*condition));
  Values either;
  for (const bool holds : {true, false}) {
    const JsonValue* consequence = holds ? then : otherwise;
    Values branch = values;
    KVANT_TRY(ApplyNeed(holds ? need : needs_.Opposite(need), branch));
    if (consequence != nullptr) {
      KVANT_ASSIGN(const NeedId then_need, Schema(*consequence));
      KVANT_TRY(ApplyNeed(then_need, branch));
    }
    either = Needs::Either(std::move(either), branch);
  }
  values = std::move(either);
  return {};
}

}  // namespace kvant::grammar
