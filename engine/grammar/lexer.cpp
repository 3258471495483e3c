#include "engine/grammar/lexer.h"

#include <algorithm>

#include <xxhash.h>

namespace kvant::grammar {

Lexer::Lexer(RegexPool& pool, std::vector<ExprId> terminals)
    : pool_(pool), terminals_(std::move(terminals)) {
  EndListOf({});  // number 0
  FindClasses(terminals_);
  table_.resize(2 * classes_, kUnknown);
  std::fill_n(table_.begin(), classes_, kDeadState);
  unread_ = static_cast<uint32_t>(classes_);
  Intern({});  // kDeadState
  ways_[kDeadState].place = 0;
}

// Bytes that every set of the terminals has or lacks together are of one class.
void Lexer::FindClasses(std::span<const ExprId> terminals) {
  classes_ = 1;
  for (const ByteSet& set : pool_.SetsOf(terminals)) {
    constexpr uint16_t kNone = 256;
    std::array<std::array<uint16_t, 2>, 256> numbers;
    numbers.fill({kNone, kNone});
    uint16_t next = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      uint16_t& number = numbers[class_of_[byte]][set.Has(static_cast<uint8_t>(byte)) ? 1 : 0];
      if (number == kNone) number = next++;
      class_of_[byte] = static_cast<uint8_t>(number);
    }
    classes_ = next;
    if (classes_ == 256) break;
  }
}

// The readings are none of readings_.
LexState Lexer::Intern(std::span<const Reading> readings) {
  const uint64_t hash = XXH64(readings.data(), readings.size_bytes(), 0);
  const uint32_t known = by_readings_.Find(
      hash, [&](uint32_t state) { return std::ranges::equal(ReadingsOf(state), readings); });
  if (known != IdTable::kNone) return known;
  std::vector<TerminalId> ends;
  for (const auto& [terminal, expr] : readings) {
    if (pool_.AcceptsEmpty(expr)) ends.push_back(terminal);
  }
  const uint32_t list = EndListOf(std::move(ends));
  const auto state = static_cast<LexState>(states_.size());
  GrowByQuarter(states_, 1);
  states_.push_back({static_cast<uint32_t>(readings_.size()), list});
  GrowByQuarter(readings_, readings.size());
  readings_.insert(readings_.end(), readings.begin(), readings.end());
  const Way way = NewWay(readings);
  GrowByQuarter(ways_, 1);
  ways_.push_back(way);
  by_readings_.Add(hash, state);
  return state;
}

// Makes the way of a state from which nothing has been read so far.
Lexer::Way Lexer::NewWay(std::span<const Reading> readings) {
  const Way row = {kHasRow, unread_};
  if (readings.empty()) return row;
  const RegexPool::FirstSets sets = pool_.FirstSetsOf(readings[0].second);
  if (sets.first == RegexPool::kNoSet) return row;
  for (const auto& [terminal, expr] : readings.subspan(1)) {
    if (pool_.FirstSetsOf(expr) != sets) return row;
  }
  if (sets.second == RegexPool::kNoSet) return {sets.first, kUnknown};
  GrowByQuarter(forks_, 1);
  forks_.push_back({{{{sets.first, kUnknown}, {sets.second, kUnknown}}}});
  return {kHasFork, static_cast<uint32_t>(forks_.size() - 1)};
}

uint32_t Lexer::EndListOf(std::vector<TerminalId> terminals) {
  const auto [place, is_new] =
      end_list_numbers_.emplace(terminals, static_cast<uint32_t>(end_lists_.size()));
  if (is_new) end_lists_.push_back(std::move(terminals));
  return place->second;
}

LexState Lexer::Start(std::span<const TerminalId> terminals) {
  std::vector<Reading> readings;
  for (const TerminalId terminal : terminals) readings.emplace_back(terminal, terminals_[terminal]);
  return Intern(readings);
}

LexState Lexer::Compute(LexState state, uint8_t byte) {
  std::vector<Reading> readings;
  for (const auto& [terminal, expr] : ReadingsOf(state)) {
    const ExprId rest = pool_.Derivative(expr, byte);
    if (rest != RegexPool::kNothing) readings.emplace_back(terminal, rest);
  }
  const LexState next = Intern(readings);
  Way& way = ways_[state];
  if (way.set == kHasFork) {
    std::array<Way, 2>& ways = forks_[way.place].ways;
    ways[pool_.SetOf(ways[1].set).Has(byte) ? 1 : 0].place = next;
    return next;
  }
  if (way.set != kHasRow) {
    way.place = next;
    return next;
  }
  if (way.place == unread_) {
    way.place = static_cast<uint32_t>(table_.size());
    GrowByQuarter(table_, classes_);
    table_.resize(table_.size() + classes_, kUnknown);
  }
  table_[way.place + class_of_[byte]] = next;
  return next;
}

// The state with change(expression) for each terminal.
template <class Change>
LexState Lexer::Changed(LexState state, const Change& change) {
  const std::span old = ReadingsOf(state);
  std::vector<Reading> readings(old.begin(), old.end());
  for (auto& [terminal, expr] : readings) expr = change(expr);
  return Intern(readings);
}

LexState Lexer::Clamp(LexState state, uint32_t bytes) {
  if (states_[state].clamped != kUnknown) return states_[state].clamped;
  const LexState clamped = Changed(state, [&](ExprId expr) { return pool_.Clamp(expr, bytes); });
  states_[state].clamped = clamped;
  return clamped;
}

LexState Lexer::Settle(LexState state, uint32_t& lent) {
  Far far = FarOf(state);
  if (far == Far::kNeedsUnit && lent > 0) {
    --lent;
    return Changed(state, [this](ExprId expr) { return pool_.GiveBack(expr); });
  }
  if (far == Far::kNeedsUnit) {  // and there is none: the counts are the true ones
    state = Changed(state, [this](ExprId expr) { return pool_.WithoutMarks(expr); });
    far = FarOf(state);
  }
  if (far == Far::kNear) lent = 0;
  if (far != Far::kFar) return state;
  lent = UnitsToLend(state);
  return Changed(state, [&](ExprId expr) { return pool_.Lend(expr, lent); });
}

Lexer::Far Lexer::FarOf(LexState state) {
  if (state >= far_.size()) far_.resize(states_.size());
  Far& far = far_[state];
  if (far != Far::kUnknown) return far;
  const std::span readings = ReadingsOf(state);
  const auto any = [&](const auto& is_so) {
    return std::ranges::any_of(readings, [&](const Reading& one) { return is_so(one.second); });
  };
  if (any([this](ExprId expr) { return pool_.HasLent(expr); })) {
    const bool needs = any([this](ExprId expr) { return pool_.NeedsUnit(expr); });
    return far = needs ? Far::kNeedsUnit : Far::kLends;
  }
  return far = UnitsToLend(state) > 0 ? Far::kFar : Far::kNear;
}

// The most that all terminals with far counts can lend; 0: there is none.
uint32_t Lexer::UnitsToLend(LexState state) {
  uint32_t least = 0;
  for (const auto& [terminal, expr] : ReadingsOf(state)) {
    const uint32_t units = pool_.UnitsToLend(expr);
    if (units > 0 && (least == 0 || units < least)) least = units;
  }
  return least;
}

size_t Lexer::bytes() const {
  size_t lists = 0;
  for (const auto& list : end_lists_) lists += 2 * list.size() * sizeof(TerminalId);
  constexpr size_t kMapNode = 96;  // an entry of end_list_numbers_ with both of its lists' heads
  return table_.capacity() * sizeof(LexState) + ways_.capacity() * sizeof(Way) +
         forks_.capacity() * sizeof(Fork) + states_.capacity() * sizeof(State) +
         readings_.capacity() * sizeof(Reading) + far_.capacity() + by_readings_.bytes() + lists +
         end_lists_.size() * kMapNode;
}

}  // namespace kvant::grammar
