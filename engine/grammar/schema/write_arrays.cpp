// Arrays as lists with a state: how many items there are, and how many of those that are counted.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "engine/grammar/schema/rule_states.h"
#include "engine/grammar/schema/schema_writer.h"

namespace kvant::grammar {
namespace {

constexpr uint32_t kItemsMax = 10'000;      // of minItems and maxItems
constexpr size_t kArrayStatesMax = 20'000;  // of an array with `contains`
constexpr size_t kUniqueValuesMax = 10;     // each set of them is a state

Goal WithNeed(Goal goal, NeedId need) {
  goal.push_back(need);
  return Needs::GoalOf(std::move(goal));
}

}  // namespace

Result<GrammarBuilder::Part> SchemaWriter::Array(const ArrayShape& shape) {
  CountRange count = shape.count;
  if (shape.is_unique && count.most > 1) return UniqueArray(shape);
  size_t first = 0;  // items behind these are alike
  for (const ArrayRule& rule : shape.rules) first = std::max(first, rule.first.size());
  for (size_t place = 0; place <= first && place < count.most; ++place) {
    KVANT_ASSIGN(const bool nothing, needs_.IsNothing(Needs::GoalOfItem(shape, place)));
    if (nothing) count.most = static_cast<uint32_t>(place);
  }
  if (count.empty()) return builder_.Regex(RegexPool::kNothing);
  const bool is_bounded = count.most != kNoCountLimit;
  const auto last = std::max({is_bounded ? count.most : count.least, uint32_t{1},
                              static_cast<uint32_t>(is_bounded ? 0 : first)});
  if (last > kItemsMax) {
    return MakeError(ErrorCode::kNotSupported,
                     "expected minItems and maxItems of at most {}, found {}", kItemsMax, last);
  }
  const bool is_counted = shape.contained.has_value();
  const CountRange wanted = is_counted ? shape.contained_count : CountRange{};
  const bool has_most = wanted.most != kNoCountLimit;

  using State = std::pair<uint32_t, uint32_t>;  // items, counted ones
  RuleStates<State> states(builder_, comma_);
  const auto add = [&](const State& from, const State& to, const Goal& goal) {
    const Part item = builder_.Rule(RuleOf(goal));
    if (from.first == 0) {
      states.Begin(to, item);
    } else {
      states.Step(from, to, item);
    }
  };
  std::set<uint32_t> here = {0};  // counts of states with as many items as the loop has passed
  const uint32_t rounds = is_bounded ? count.most : last + 1;
  for (uint32_t items = 0; items < rounds; ++items) {
    std::set<uint32_t> next;
    const Goal goal = Needs::GoalOfItem(shape, items);
    const uint32_t then = std::min(items + 1, last);
    for (const uint32_t counted : here) {
      if (!is_counted) {
        add({items, 0}, {then, 0}, goal);
        next.insert(0);
        continue;
      }
      const bool may_count = has_most ? counted < wanted.most : counted < wanted.least;
      if (may_count) {
        add({items, counted}, {then, counted + 1}, WithNeed(goal, *shape.contained));
        next.insert(counted + 1);
      }
      const Goal other = has_most ? WithNeed(goal, needs_.Opposite(*shape.contained)) : goal;
      add({items, counted}, {then, counted}, other);
      next.insert(counted);
    }
    here = std::move(next);
    if (states.size() > kArrayStatesMax) {
      return MakeError(ErrorCode::kNotSupported,
                       "expected an array of at most {} states, found more", kArrayStatesMax);
    }
  }
  const auto accepts = [&](const State& state) {
    return state.first >= count.least && state.second >= wanted.least;
  };
  return Enclosed("[]", states.Finish(accepts),
                  accepts({0, 0}) ? EmptyList::kAllowed : EmptyList::kRefused);
}

// The text of a list between brackets, and of the empty one.
GrammarBuilder::Part SchemaWriter::Enclosed(std::string_view brackets, Parts lists,
                                            EmptyList empty) {
  RegexPool& pool = builder_.pool();
  const ExprId begin = pool.Concat(pool.Literal(brackets.substr(0, 1)), json_.space());
  const ExprId end = pool.Literal(brackets.substr(1));
  Parts ways;
  if (empty == EmptyList::kAllowed) ways.push_back(Terminal(pool.Concat(begin, end)));
  if (!lists.empty()) {
    ways.push_back(builder_.Sequence({Terminal(begin), builder_.Either(std::move(lists)),
                                      Terminal(pool.Concat(json_.space(), end))}));
  }
  return builder_.Either(std::move(ways));
}

Result<std::optional<std::vector<ExprId>>> SchemaWriter::FewValues(const Goal& goal) {
  RegexPool& pool = builder_.pool();
  const std::optional<std::vector<ExprId>> none;
  KVANT_ASSIGN(const Values values, needs_.ValuesOf(goal));
  Values lists;
  lists.arrays = values.arrays;
  lists.objects = values.objects;
  KVANT_ASSIGN(const bool has_no_lists, needs_.IsNothing(lists));
  if (!has_no_lists) return none;
  std::set<std::string> texts;
  for (const StringShape& shape : values.strings) {
    if (!shape.list.has_value()) return none;
    texts.insert(shape.list->begin(), shape.list->end());
  }
  std::set<std::string> numbers;
  for (const NumberSet& set : values.numbers) {
    KVANT_ASSIGN(const auto few, ListNumbers(set, kUniqueValuesMax));
    if (!few.has_value()) return none;
    numbers.insert(few->begin(), few->end());
  }
  std::vector<ExprId> few;
  if (values.has_null) few.push_back(pool.Literal("null"));
  if (values.has_false) few.push_back(pool.Literal("false"));
  if (values.has_true) few.push_back(pool.Literal("true"));
  for (const std::string& number : numbers) few.push_back(pool.Literal(number));
  for (const std::string& text : texts) few.push_back(json_.Quoted(json_.Literal(text)));
  if (few.size() > kUniqueValuesMax) return none;
  return std::optional(std::move(few));
}

// A state is the set of values that are in the array.
Result<GrammarBuilder::Part> SchemaWriter::UniqueArray(const ArrayShape& shape) {
  const auto has_first = [](const ArrayRule& rule) { return !rule.first.empty(); };
  std::optional<std::vector<ExprId>> values;
  if (std::ranges::none_of(shape.rules, has_first) && !shape.contained.has_value()) {
    KVANT_ASSIGN(values, FewValues(Needs::GoalOfItem(shape, 0)));
  }
  if (!values.has_value()) {
    return MakeError(ErrorCode::kNotSupported,
                     "expected 'uniqueItems' with items of at most {} constants, found other items",
                     kUniqueValuesMax);
  }
  Parts items;
  for (const ExprId value : *values) items.push_back(Terminal(value));
  RuleStates<uint32_t> states(builder_, comma_);
  const uint32_t count = uint32_t{1} << items.size();
  for (uint32_t from = 0; from < count; ++from) {
    for (size_t item = 0; item < items.size(); ++item) {
      const uint32_t bit = uint32_t{1} << item;
      if ((from & bit) != 0) continue;
      if (from == 0) {
        states.Begin(bit, items[item]);
      } else {
        states.Step(from, from | bit, items[item]);
      }
    }
  }
  const auto accepts = [&shape](uint32_t state) {
    const auto size = static_cast<uint32_t>(std::popcount(state));
    return size >= shape.count.least && size <= shape.count.most;
  };
  return Enclosed("[]", states.Finish(accepts),
                  accepts(0) ? EmptyList::kAllowed : EmptyList::kRefused);
}

}  // namespace kvant::grammar
