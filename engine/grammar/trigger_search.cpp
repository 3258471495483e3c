#include "engine/grammar/trigger_search.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "engine/grammar/regex_syntax.h"

namespace kvant::grammar {
namespace {

constexpr size_t kTriggersMax = 100;

// Where the first group of an expression begins that is not (?:...); npos: it has none. nullopt for
// one within a group or behind a bar.
std::optional<size_t> FirstGroup(std::string_view pattern) {
  int depth = 0;
  bool in_class = false;
  size_t found = std::string_view::npos;
  bool has_bar = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char letter = pattern[i];
    if (letter == '\\') {
      ++i;
    } else if (in_class) {
      in_class = letter != ']';
    } else if (letter == '[') {
      in_class = true;
      // A bracket right behind the beginning of a class is one of its characters.
      if (pattern.substr(i + 1).starts_with('^')) ++i;
      if (pattern.substr(i + 1).starts_with(']')) ++i;
    } else if (letter == '(') {
      const bool is_group = !pattern.substr(i + 1).starts_with("?:");
      if (is_group && found == std::string_view::npos) {
        if (depth > 0) return std::nullopt;
        found = i;
      }
      ++depth;
    } else if (letter == ')') {
      --depth;
    } else if (letter == '|' && depth == 0) {
      has_bar = true;
    }
  }
  if (has_bar && found != std::string_view::npos) return std::nullopt;
  return found;
}

Error BadTrigger(std::string_view shown, std::string_view reason) {
  return MakeError(ErrorCode::kInvalid, "triggers: '{}': {}", shown, reason);
}

}  // namespace

Status TriggerSearch::Add(std::string_view before, std::string_view text, std::string_view shown) {
  const auto parse = [&](std::string_view part) -> Result<ExprId> {
    auto expr = ParseRegex(part, pool_);
    if (!expr.ok()) return BadTrigger(shown, expr.error().message);
    return expr;
  };
  Trigger trigger = {};
  KVANT_ASSIGN(trigger.before, parse(before));
  KVANT_ASSIGN(trigger.text, parse(text));
  if (pool_.AcceptsEmpty(trigger.text)) {
    return BadTrigger(shown, "expected an expression that no empty text matches");
  }
  triggers_.push_back(trigger);
  return {};
}

Result<std::unique_ptr<TriggerSearch>> TriggerSearch::Create(
    const std::vector<std::string>& words, const std::vector<std::string>& patterns,
    const std::vector<std::string>& full) {
  std::unique_ptr<TriggerSearch> made(new TriggerSearch());
  const size_t count = words.size() + patterns.size() + full.size();
  if (count > kTriggersMax) {
    return MakeError(ErrorCode::kInvalid, "triggers: expected at most {} beside patterns, found {}",
                     kTriggersMax, count);
  }
  RegexPool& pool = made->pool_;
  const ExprId anything = pool.Repeat(pool.Bytes(ByteSet::Range(0, 0xff)), 0, kNoLimit);
  for (const std::string& word : words) {
    made->triggers_.push_back({anything, pool.Literal(word)});
  }
  for (const std::string& pattern : patterns) {
    KVANT_TRY(made->Add("", pattern, pattern));
    made->triggers_.back().before = anything;
  }
  for (const std::string& pattern : full) {
    const std::optional<size_t> group = FirstGroup(pattern);
    if (!group.has_value()) {
      return BadTrigger(pattern,
                        "expected the first group outside of groups and alternatives, where the "
                        "grammar begins");
    }
    const size_t begin = *group == std::string_view::npos ? 0 : *group;
    KVANT_TRY(made->Add(pattern.substr(0, begin), pattern.substr(begin), pattern));
  }
  Key key;
  for (const Trigger& trigger : made->triggers_) key.befores.push_back(trigger.before);
  made->StateOf(std::move(key));
  return made;
}

TriggerSearch::State TriggerSearch::StateOf(Key key) {
  const auto known = std::ranges::find(states_, key);
  if (known != states_.end()) return static_cast<State>(known - states_.begin());
  if (states_.size() > kStatesMax) return kBegin;
  states_.push_back(std::move(key));
  numbers_.emplace_back().fill(kUnknown);
  return static_cast<State>(states_.size() - 1);
}

const TriggerSearch::Step& TriggerSearch::StepOf(State state, uint8_t byte) {
  if (numbers_[state][byte] != kUnknown) return steps_[numbers_[state][byte]];
  Step step;
  Key next;
  const auto go_on = [&](ExprId expr, int32_t origin) {
    const ExprId rest = pool_.Derivative(expr, byte);
    if (rest == RegexPool::kNothing) return;
    if (std::ranges::find(next.places, rest) != next.places.end()) return;
    if (step.complete < 0 && pool_.AcceptsEmpty(rest)) {
      step.complete = static_cast<int32_t>(step.origins.size());
    }
    next.places.push_back(rest);
    step.origins.push_back(origin);
  };
  const Key from = states_[state];
  for (size_t i = 0; i < from.places.size(); ++i) go_on(from.places[i], static_cast<int32_t>(i));
  for (size_t i = 0; i < triggers_.size(); ++i) {
    if (pool_.AcceptsEmpty(from.befores[i])) go_on(triggers_[i].text, kNew);
    next.befores.push_back(pool_.Derivative(from.befores[i], byte));
  }
  step.next = StateOf(std::move(next));
  numbers_[state][byte] = static_cast<uint32_t>(steps_.size());
  steps_.push_back(std::move(step));
  return steps_.back();
}

TriggerSearch::Step TriggerSearch::Next(State state, uint8_t byte) {
  const std::lock_guard lock(mutex_);
  return StepOf(state, byte);
}

bool TriggerSearch::Advance(State& state, uint8_t byte) {
  const std::lock_guard lock(mutex_);
  const Step& step = StepOf(state, byte);
  state = step.next;
  return step.complete >= 0;
}

bool TriggerSearch::is_too_large() const {
  const std::lock_guard lock(mutex_);
  return states_.size() > kStatesMax;
}

}  // namespace kvant::grammar
