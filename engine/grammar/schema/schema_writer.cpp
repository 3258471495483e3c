#include "engine/grammar/schema/schema_writer.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/check.h"
#include "engine/grammar/regex_syntax.h"
#include "engine/grammar/schema/rule_states.h"

namespace kvant::grammar {
namespace {

// Numbers whose size nothing bounds. They have at most 300 digits before the point and behind it,
// and no exponent beyond 299, so that they are finite in double precision.
constexpr const char* kWholeDigits = "(0|[1-9][0-9]{0,299})";
constexpr const char* kFraction = "([.][0-9]{1,300})?";
constexpr const char* kWithExponent =
    "(0|[1-9][0-9]{0,7})([.][0-9]{1,300})?[eE][-+]?([0-9]{1,2}|[12][0-9]{2})";

// Numbers with a bound on one side: models that may write digits for ever sometimes do.
constexpr uint32_t kNumberLengthMax = 40;  // of a text
constexpr uint32_t kMoreDigits = 20;       // behind the shortest such number

constexpr size_t kGoalsMax = 50'000;

// The value of an expression that is a constant.
ExprId KnownRegex(const std::string& text, RegexPool& pool) {
  const auto expr = ParseRegex(text, pool);
  KVANT_CHECK(expr.ok());
  return *expr;
}

}  // namespace

SchemaWriter::SchemaWriter(Needs& needs, GrammarBuilder& builder, JsonText::Form form)
    : needs_(needs), builder_(builder), json_(builder.pool(), form) {
  comma_ = Terminal(builder_.pool().Concat(builder_.pool().Literal(","), json_.space()));
}

GrammarBuilder::Part SchemaWriter::Terminal(ExprId expr) {
  return expr == RegexPool::kNothing ? builder_.Regex(expr) : builder_.Terminal(expr);
}

RuleId SchemaWriter::RuleOf(const Goal& goal) {
  const auto [place, is_new] = rules_.emplace(goal, 0);
  if (is_new) {
    place->second = builder_.AddRule();
    left_.push_back(&place->first);
  }
  return place->second;
}

Result<RuleId> SchemaWriter::Write(const Goal& goal) {
  const RuleId root = RuleOf(goal);
  while (!left_.empty()) {
    const Goal next = *left_.back();
    left_.pop_back();
    if (rules_.size() > kGoalsMax) {
      return needs_.AtGoal(
          next, MakeError(ErrorCode::kNotSupported,
                          "expected at most {} different values, found more", kGoalsMax));
    }
    Result<Values> values = needs_.ValuesOf(next);
    if (!values.ok()) return needs_.AtGoal(next, values.error());
    Result<Part> part = PartOf(*values);
    if (!part.ok()) return needs_.AtGoal(next, part.error());
    builder_.Define(RuleOf(next), *part);
    if (builder_.pool().size() > kGrammarExprsMax) {
      return needs_.AtGoal(
          next, MakeError(ErrorCode::kNotSupported, "expected at most {} expressions, found more",
                          kGrammarExprsMax));
    }
  }
  return root;
}

Result<GrammarBuilder::Part> SchemaWriter::PartOf(const Values& values) {
  RegexPool& pool = builder_.pool();
  std::vector<ExprId> words;
  if (values.has_null) words.push_back(pool.Literal("null"));
  if (values.has_false) words.push_back(pool.Literal("false"));
  if (values.has_true) words.push_back(pool.Literal("true"));
  std::vector<ExprId> numbers;
  for (const NumberSet& set : values.numbers) {
    KVANT_ASSIGN(const ExprId number, Number(set));
    numbers.push_back(number);
  }
  std::vector<ExprId> strings;
  for (const StringShape& shape : values.strings) {
    KVANT_ASSIGN(const ExprId string, String(shape));
    strings.push_back(string);
  }
  Parts parts = {Terminal(pool.Either(words)), Terminal(pool.Either(numbers)),
                 Terminal(pool.Either(strings))};
  for (const ArrayShape& shape : values.arrays) {
    KVANT_ASSIGN(const Part array, Array(shape));
    parts.push_back(array);
  }
  for (const ObjectShape& shape : values.objects) {
    KVANT_ASSIGN(const Part object, Object(shape));
    parts.push_back(object);
  }
  return builder_.Either(std::move(parts));
}

// Schemas have the same few sets of numbers in many places.
Result<ExprId> SchemaWriter::Number(const NumberSet& set) {
  auto& alike = numbers_[set.plain.Hash()];
  for (const auto& [known, expr] : alike) {
    if (known == set) return expr;
  }
  KVANT_ASSIGN(const ExprId expr, NewNumber(set));
  alike.emplace_back(set, expr);
  return expr;
}

Result<ExprId> SchemaWriter::NewNumber(const NumberSet& set) {
  RegexPool& pool = builder_.pool();
  const std::string whole = std::string("-?") + kWholeDigits;
  if (set.form == NumberSet::Form::kWhole && set.plain == WholeNumbers().plain) {
    return KnownRegex(whole, pool);
  }
  std::vector<ExprId> forms;
  if (set.has_exponents && set.has_negative_exponents) {
    forms.push_back(KnownRegex(whole + kFraction, pool));
  } else {
    KVANT_ASSIGN(TextSet texts, WrittenTexts(set));
    if (!texts.empty()) {
      KVANT_ASSIGN(const ExprId plain, ShortNumber(texts));
      forms.push_back(plain);
    }
  }
  if (set.has_exponents) forms.push_back(KnownRegex(kWithExponent, pool));
  if (set.has_negative_exponents) {
    forms.push_back(KnownRegex(std::string("-") + kWithExponent, pool));
  }
  return pool.Either(forms);
}

// The texts of a set of numbers, which is not empty; where they have no greatest length, short
// ones.
Result<ExprId> SchemaWriter::ShortNumber(const TextSet& texts) {
  const TextLengths lengths = LengthsOf(texts);
  if (lengths.ranges[0].most != UINT32_MAX) return json_.Plain(texts);
  const uint32_t most = std::max(lengths.ranges[0].least + kMoreDigits, kNumberLengthMax);
  if (lengths.are_all) {
    return builder_.pool().CountedSteps(json_.Plain(texts, lengths), 0, most);
  }
  KVANT_ASSIGN(const TextSet short_texts, TextsOfLength(0, most));
  const Result<TextSet> shorter = Combine(texts, short_texts, TextSetOp::kAnd);
  return json_.Plain(shorter.ok() ? *shorter : texts);  // else there are many states already
}

Result<ExprId> SchemaWriter::String(const StringShape& shape) {
  if (shape.list.has_value()) {
    return shape.list->empty() ? RegexPool::kNothing : json_.Quoted(json_.OneOf(*shape.list));
  }
  if (shape.length.empty()) return RegexPool::kNothing;
  const StringKey key(shape.texts, shape.length.least, shape.length.most);
  const auto kept = strings_.find(key);
  if (kept != strings_.end()) return kept->second;
  KVANT_ASSIGN(const ExprId expr, NewString(shape));
  strings_.emplace(key, expr);
  return expr;
}

Result<ExprId> SchemaWriter::NewString(const StringShape& shape) {
  RegexPool& pool = builder_.pool();
  const CountRange& length = shape.length;
  if (shape.texts == nullptr) {
    return json_.Quoted(pool.Repeat(json_.any_character(), length.least, length.most));
  }
  if (shape.texts->empty()) return RegexPool::kNothing;
  const TextLengths lengths = LengthsOf(*shape.texts);
  const bool fits =
      lengths.ranges[0].least >= length.least && lengths.ranges[0].most <= length.most;
  if (fits) return json_.Quoted(json_.Inside(*shape.texts));
  if (lengths.are_all) {
    const ExprId inside = json_.Inside(*shape.texts, lengths);
    return json_.Quoted(pool.CountedSteps(inside, length.least, length.most));
  }
  KVANT_ASSIGN(const TextSet all, TextsOfLength(length.least, length.most));
  KVANT_ASSIGN(const TextSet texts, Combine(*shape.texts, all, TextSetOp::kAnd));
  return texts.empty() ? RegexPool::kNothing : json_.Quoted(json_.Inside(texts));
}

}  // namespace kvant::grammar
