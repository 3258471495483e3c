// Deterministic automata over sets of terminals, built while they are used.
//
// A state is a set of terminals that are being read at the same time, each with the expression of
// what may follow. The byte that comes next leads to another state, or to none where no terminal
// can go on. There is no longest match: where a terminal ends, the parser decides what follows, and
// the terminal may go on beside it.
//
// Most states are inside literals, such as names of properties, or in the blanks before them: one
// set of bytes leads to one state, perhaps another set to another one, and all others lead nowhere.
// Such a state takes no row of the table of transitions, and neither does one from which no byte
// has been read so far.
//
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/grammar/byte_regex.h"
#include "engine/grammar/id_table.h"

namespace kvant::grammar {

using TerminalId = uint32_t;
using LexState = uint32_t;

inline constexpr LexState kDeadState = 0;  // no terminal can go on

class Lexer {
 public:
  // The terminals' expressions, in the pool, by their number.
  Lexer(RegexPool& pool, std::vector<ExprId> terminals);

  // The state in which all these terminals begin. Ascending numbers.
  LexState Start(std::span<const TerminalId> terminals);

  LexState Next(LexState state, uint8_t byte) {
    const Way& way = ways_[state];
    LexState next = kDeadState;
    if (way.set == kHasRow) {
      next = table_[way.place + class_of_[byte]];
    } else if (way.set == kHasFork) {
      const Fork& fork = forks_[way.place];
      const bool is_second = pool_.SetOf(fork.ways[1].set).Has(byte);
      if (is_second || pool_.SetOf(fork.ways[0].set).Has(byte)) {
        next = fork.ways[is_second ? 1 : 0].place;
      }
    } else if (pool_.SetOf(way.set).Has(byte)) {
      next = way.place;
    }
    return next != kUnknown ? next : Compute(state, byte);
  }

  // Bytes of one class lead from every state to the same one.
  uint8_t ClassOf(uint8_t byte) const { return class_of_[byte]; }

  // The terminals that end here, ascending, as the number of a list; 0 is the empty list.
  uint32_t EndsAt(LexState state) const { return states_[state].ends; }
  std::span<const TerminalId> EndList(uint32_t number) const { return end_lists_[number]; }

  // A state whose transitions over the next `bytes` bytes are those of `state`, shared by all
  // states that differ only in counts beyond them.
  LexState Clamp(LexState state, uint32_t bytes);

  // The state with which a text goes on, whose far counts lend units to the text, so that they take
  // no state each (RegexPool's "Far counts"). `lent`: how many units are out.
  LexState Settle(LexState state, uint32_t& lent);

  // The terminals that a state reads, and what may follow in each. Valid until states are added.
  std::span<const std::pair<TerminalId, ExprId>> ReadingsOf(LexState state) const {
    const uint32_t begin = states_[state].readings;
    const size_t next = size_t{state} + 1;
    const size_t end = next < states_.size() ? states_[next].readings : readings_.size();
    return std::span(readings_).subspan(begin, end - begin);
  }
  const std::pair<TerminalId, ExprId>& FirstReadingOf(LexState state) const {
    return readings_[states_[state].readings];
  }
  // The list of these terminals.
  uint32_t TerminalsOf(LexState state) {
    std::vector<TerminalId> terminals;
    for (const auto& [terminal, rest] : ReadingsOf(state)) terminals.push_back(terminal);
    return EndListOf(std::move(terminals));
  }
  // The state that reads the rest of one terminal.
  LexState StateOf(TerminalId terminal, ExprId rest) {
    const Reading reading(terminal, rest);
    return Intern({&reading, 1});
  }

  // How many states there are, with the terminals that they read, as a measure of memory.
  size_t size() const { return states_.size() + readings_.size() / 4; }
  // Bytes of memory.
  size_t bytes() const;

 private:
  static constexpr LexState kUnknown = UINT32_MAX;
  using Reading = std::pair<TerminalId, ExprId>;

  struct State {
    uint32_t readings;  // where they begin; they end where the next state's begin
    uint32_t ends;
    LexState clamped = kUnknown;
  };
  // Where the bytes lead: those of a set to one state and all others nowhere, or those of two sets
  // to two states, or each where a row of the table says.
  static constexpr uint32_t kHasRow = UINT32_MAX;
  static constexpr uint32_t kHasFork = UINT32_MAX - 1;
  struct Way {
    uint32_t set;    // of the pool, or one of these
    uint32_t place;  // the state, perhaps kUnknown; or where the row begins; or of forks_
  };
  struct Fork {
    std::array<Way, 2> ways;
  };

  // Settle keeps a near state, and takes its units away; lends; keeps; gives a unit back.
  enum class Far : uint8_t { kUnknown, kNear, kFar, kLends, kNeedsUnit };

  LexState Intern(std::span<const Reading> readings);
  Way NewWay(std::span<const Reading> readings);
  Far FarOf(LexState state);
  uint32_t UnitsToLend(LexState state);
  template <class Change>
  LexState Changed(LexState state, const Change& change);
  uint32_t EndListOf(std::vector<TerminalId> terminals);
  LexState Compute(LexState state, uint8_t byte);
  void FindClasses(std::span<const ExprId> terminals);

  RegexPool& pool_;
  std::vector<ExprId> terminals_;
  std::array<uint8_t, 256> class_of_{};
  size_t classes_ = 1;
  std::vector<Way> ways_;  // [states]
  std::vector<Fork> forks_;
  std::vector<LexState> table_;  // [rows, classes]
  uint32_t unread_ = 0;          // the row of states from which nothing has been read so far
  std::vector<State> states_;
  std::vector<Far> far_;           // [states, the first ones]
  std::vector<Reading> readings_;  // of all states, of each ascending
  IdTable by_readings_;
  std::vector<std::vector<TerminalId>> end_lists_;
  std::map<std::vector<TerminalId>, uint32_t> end_list_numbers_;
};

}  // namespace kvant::grammar
