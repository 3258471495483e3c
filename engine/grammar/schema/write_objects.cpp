// Objects as lists with a state: which properties may still follow, and, where counts matter, how
// many there are.
//
// Names of properties that the schema knows never occur twice. An additional name may: programs
// that read JSON keep one of the values, all of which satisfy what the schema says about the name.
// So only the first additional property counts for `minProperties`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "engine/grammar/schema/rule_states.h"
#include "engine/grammar/schema/schema_writer.h"

namespace kvant::grammar {
namespace {

constexpr size_t kNamedMax = 5000;           // properties of an object
constexpr size_t kObjectStatesMax = 40'000;  // of an object whose properties are counted
constexpr size_t kNameGroupsMax = 64;        // sets of names that patterns tell apart

// Names that some patterns match, and what these say.
struct NameGroup {
  TextSet names;
  std::vector<NeedId> needs;
  bool is_matched = false;  // by a pattern of the rule under way
};

// Splits all groups into the names that a pattern matches, and the others.
Status Split(const TextSet& pattern, NeedId need, std::vector<NameGroup>& groups) {
  std::vector<NameGroup> out;
  for (NameGroup& group : groups) {
    NameGroup inside = {{}, group.needs, true};
    inside.needs.push_back(need);
    KVANT_ASSIGN(inside.names, Combine(group.names, pattern, TextSetOp::kAnd));
    KVANT_ASSIGN(group.names, Combine(group.names, pattern, TextSetOp::kWithout));
    if (!inside.names.empty()) out.push_back(std::move(inside));
    if (!group.names.empty()) out.push_back(std::move(group));
  }
  groups = std::move(out);
  if (groups.size() <= kNameGroupsMax) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "expected patterns of properties that make at most {} kinds of names, found "
                   "more",
                   kNameGroupsMax);
}

// All names that the rules or `required` have: in the order of the rules, then the others.
std::vector<std::string> NamesOf(const ObjectShape& shape) {
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  for (const auto& rule : shape.rules) {
    for (const std::string& name : rule->order) {
      if (seen.insert(name).second) names.push_back(name);
    }
  }
  std::vector<std::string> others = shape.required;
  for (const auto& rule : shape.rules) {
    if (rule->order.size() == rule->named.size()) continue;
    std::set<std::string> sorted;
    for (const auto& [name, need] : rule->named) sorted.insert(name);
    others.insert(others.end(), sorted.begin(), sorted.end());
  }
  for (const std::string& name : others) {
    if (seen.insert(name).second) names.push_back(name);
  }
  return names;
}

// The properties of an object up to some place.
class PropertyList {
 public:
  using Part = GrammarBuilder::Part;

  PropertyList(GrammarBuilder& builder, Part comma, const CountRange& range)
      : states_(builder, comma), range_(range) {}

  // The property that follows those so far.
  void AddNamed(Part element, bool is_required) {
    std::set<State> next;
    if (may_be_empty_) Add(std::nullopt, Counted({.place = place_}), element, next);
    for (const State& from : here_) {
      Add(from, Counted(from), element, next);
      if (is_required) continue;
      State to = from;
      to.place = place_ + 1;
      states_.Pass(from, to);
      next.insert(to);
    }
    may_be_empty_ = may_be_empty_ && !is_required;
    here_ = std::move(next);
    ++place_;
  }

  // Any number of these behind all others.
  void AddAdditional(Part element) {
    std::set<State> found = here_;
    if (may_be_empty_) Add(std::nullopt, Counted({.place = place_}), element, found);
    std::vector<State> left(found.begin(), found.end());
    while (!left.empty()) {
      const State from = left.back();
      left.pop_back();
      std::optional<State> to = Counted(from);
      if (to.has_value() && from.place > place_) to->for_least = from.for_least;
      const size_t before = found.size();
      Add(from, to, element, found);
      if (found.size() != before) left.push_back(*to);
    }
  }

  size_t size() const { return states_.size(); }
  bool may_be_empty() const { return may_be_empty_ && range_.least == 0; }

  // The lists that are complete.
  std::vector<Part> Finish() {
    return states_.Finish([this](const State& state) {
      return state.place >= place_ && state.for_least >= range_.least;
    });
  }

 private:
  struct State {
    uint32_t place = 0;      // of the next property; one more behind the first additional one
    uint32_t for_least = 0;  // properties that count, up to the bounds
    uint32_t for_most = 0;
    auto operator<=>(const State&) const = default;
  };

  // The state behind one more property; nothing where it would be one too many.
  std::optional<State> Counted(State state) const {
    const bool has_most = range_.most != kNoCountLimit;
    if (has_most && state.for_most == range_.most) return std::nullopt;
    state.place = place_ + 1;
    state.for_least = std::min(state.for_least + 1, range_.least);
    state.for_most += has_most ? 1 : 0;
    return state;
  }

  void Add(const std::optional<State>& from, const std::optional<State>& to, Part element,
           std::set<State>& next) {
    if (!to.has_value()) return;
    if (from.has_value()) {
      states_.Step(*from, *to, element);
    } else {
      states_.Begin(*to, element);
    }
    next.insert(*to);
  }

  RuleStates<State> states_;
  CountRange range_;
  uint32_t place_ = 0;
  bool may_be_empty_ = true;  // so far
  std::set<State> here_;
};

}  // namespace

// A name and its colon.
ExprId SchemaWriter::KeyOf(const std::string& name) {
  const auto [place, is_new] = keys_.emplace(name, RegexPool::kNothing);
  if (is_new) {
    RegexPool& pool = builder_.pool();
    const std::array<ExprId, 3> parts = {json_.Quoted(json_.Literal(name)), pool.Literal(":"),
                                         json_.space()};
    place->second = pool.Concat(parts);
  }
  return place->second;
}

ExprId SchemaWriter::KeysOf(const TextSet& names) {
  RegexPool& pool = builder_.pool();
  const std::array<ExprId, 3> parts = {json_.Quoted(json_.Name(names)), pool.Literal(":"),
                                       json_.space()};
  return pool.Concat(parts);
}

Result<std::vector<SchemaWriter::Property>> SchemaWriter::NamedProperties(
    const ObjectShape& shape) {
  const std::vector<std::string> names = NamesOf(shape);
  if (names.size() > kNamedMax) {
    return MakeError(ErrorCode::kNotSupported, "expected at most {} properties, found {}",
                     kNamedMax, names.size());
  }
  const std::unordered_set<std::string> required(shape.required.begin(), shape.required.end());
  std::vector<Property> properties;
  for (const std::string& name : names) {
    Goal goal = Needs::GoalOfProperty(shape, name);
    KVANT_ASSIGN(const bool nothing, needs_.IsNothing(goal));
    const bool is_required = required.contains(name);
    if (nothing && !is_required) continue;
    properties.push_back({KeyOf(name), std::move(goal), is_required});
  }
  return properties;
}

Result<std::vector<SchemaWriter::Property>> SchemaWriter::AdditionalProperties(
    const ObjectShape& shape) {
  std::vector<Property> properties;
  const auto is_closed = [](const std::shared_ptr<const PropertyRule>& rule) {
    return rule->others == kNoValue && rule->patterns.empty();
  };
  if (std::ranges::any_of(shape.rules, is_closed)) return properties;
  std::vector<std::string> named = NamesOf(shape);
  const auto has_patterns = [](const auto& rule) { return !rule->patterns.empty(); };
  if (shape.names.empty() && std::ranges::none_of(shape.rules, has_patterns)) {
    return OtherProperties(shape, std::move(named));
  }
  NameGroup all = {AllTexts(), {}};
  if (!named.empty()) {
    KVANT_ASSIGN(all.names, OtherTexts(named));
  }
  for (const auto& names : shape.names) {
    KVANT_ASSIGN(all.names, Combine(all.names, *names, TextSetOp::kAnd));
  }
  std::vector<NameGroup> groups;
  if (!all.names.empty()) groups.push_back(std::move(all));
  for (const auto& rule : shape.rules) {
    for (NameGroup& group : groups) group.is_matched = false;
    for (const auto& [pattern, need] : rule->patterns) KVANT_TRY(Split(*pattern, need, groups));
    for (NameGroup& group : groups) {
      if (!group.is_matched) group.needs.push_back(rule->others);
    }
  }
  std::map<Goal, TextSet> by_goal;
  for (NameGroup& group : groups) {
    TextSet& names = by_goal[Needs::GoalOf(group.needs)];
    if (names.empty()) {
      names = std::move(group.names);
    } else {
      KVANT_ASSIGN(names, Combine(names, group.names, TextSetOp::kOr));
    }
  }
  for (const auto& [goal, names] : by_goal) {
    KVANT_ASSIGN(const bool nothing, needs_.IsNothing(goal));
    if (!nothing) properties.push_back({KeysOf(names), goal, false});
  }
  return properties;
}

// Without patterns all names but those of the rules are alike.
Result<std::vector<SchemaWriter::Property>> SchemaWriter::OtherProperties(
    const ObjectShape& shape, std::vector<std::string> named) {
  std::vector<NeedId> needs;
  for (const auto& rule : shape.rules) needs.push_back(rule->others);
  Goal goal = Needs::GoalOf(std::move(needs));
  KVANT_ASSIGN(const bool nothing, needs_.IsNothing(goal));
  if (nothing) return std::vector<Property>();
  std::ranges::sort(named);
  const auto [place, is_new] = other_keys_.emplace(std::move(named), RegexPool::kNothing);
  if (is_new) {
    TextSet names = AllTexts();
    if (!place->first.empty()) {
      KVANT_ASSIGN(names, OtherTexts(place->first));
    }
    place->second = KeysOf(names);
  }
  return std::vector<Property>{{place->second, std::move(goal), false}};
}

Result<GrammarBuilder::Part> SchemaWriter::Object(const ObjectShape& shape) {
  KVANT_ASSIGN(const std::vector<Property> named, NamedProperties(shape));
  KVANT_ASSIGN(const std::vector<Property> additional, AdditionalProperties(shape));
  const auto member = [this](const Property& property) {
    return builder_.Sequence({Terminal(property.key), builder_.Rule(RuleOf(property.goal))});
  };
  const auto count = static_cast<uint32_t>(named.size());
  const auto required = static_cast<uint32_t>(std::ranges::count_if(named, &Property::is_required));
  // Counts only matter where they exclude something.
  CountRange range = shape.count;
  if (range.least <= required) range.least = 0;
  if (additional.empty() && range.most >= count) range.most = kNoCountLimit;
  if (range.least > count + (additional.empty() ? 0 : 1)) {
    if (additional.empty()) return builder_.Regex(RegexPool::kNothing);
    return MakeError(ErrorCode::kNotSupported,
                     "expected 'minProperties' of at most {}, the named properties and another "
                     "one, found {}: additional names may repeat",
                     count + 1, range.least);
  }
  PropertyList list(builder_, comma_, range);
  for (const Property& property : named) {
    list.AddNamed(member(property), property.is_required);
    if (list.size() > kObjectStatesMax) {
      return MakeError(ErrorCode::kNotSupported,
                       "expected an object of at most {} states, found more", kObjectStatesMax);
    }
  }
  if (!additional.empty()) {
    Parts members;
    for (const Property& property : additional) members.push_back(member(property));
    const RuleId rule = builder_.AddRule();
    builder_.Define(rule, builder_.Either(std::move(members)));
    list.AddAdditional(builder_.Rule(rule));
  }
  Parts lists = list.Finish();
  return Enclosed("{}", std::move(lists),
                  list.may_be_empty() ? EmptyList::kAllowed : EmptyList::kRefused);
}

}  // namespace kvant::grammar
