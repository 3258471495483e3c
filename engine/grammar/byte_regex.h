// Regular expressions over bytes, and their derivatives.
//
// An expression is a number within its pool; equal expressions have equal numbers. The derivative
// of an expression by a byte accepts what may follow that byte (Brzozowski, "Derivatives of regular
// expressions", 1964), so that matching keeps nothing but a number, and counts need no copies of
// what they count.
//
// Expressions are kept in a normal form: concatenations lean to the right, alternatives are sorted,
// what accepts nothing vanishes. Thread-safety: one thread at a time per pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/byte_set.h"
#include "engine/grammar/id_table.h"

namespace kvant::grammar {

using ExprId = uint32_t;

inline constexpr uint32_t kNoLimit = UINT32_MAX;

class RegexPool {
 public:
  static constexpr ExprId kNothing = 0;  // accepts no text
  static constexpr ExprId kEmpty = 1;    // accepts the empty text

  RegexPool();

  // ---- Expressions ------------------------------------------------------------------------------

  ExprId Bytes(const ByteSet& set);
  ExprId Literal(std::string_view bytes);
  ExprId Concat(ExprId first, ExprId second);
  ExprId Concat(std::span<const ExprId> parts);
  ExprId Either(std::span<const ExprId> parts);
  ExprId Both(ExprId first, ExprId second);  // what both accept
  // `least` to `most` times; kNoLimit: any number.
  ExprId Repeat(ExprId part, uint32_t least, uint32_t most);
  // One of many texts, by their common beginnings, so that a derivative looks at few of them.
  ExprId OneOf(std::vector<std::string_view> texts);
  // One code point of the ranges, each from first to last, in UTF-8. Surrogates are left out.
  struct CodePoints {
    uint32_t first, last;
  };
  ExprId OneCodePoint(std::span<const CodePoints> ranges);
  // One code point of none of the ranges.
  ExprId NoneOfCodePoints(std::span<const CodePoints> ranges);
  // How many steps may lead from a state of an automaton to the end of a text: each number in a
  // range, which ends at kNoLimit where there is no greatest.
  struct StepCounts {
    uint32_t least = 0;
    uint32_t most = kNoLimit;
  };
  // A deterministic automaton. A step accepts the texts of an expression, which are not empty; no
  // text of one step is the beginning of another one's.
  struct AutomatonState {
    struct Step {
      ExprId texts;
      uint32_t target;
    };
    bool accepts = false;
    std::vector<Step> steps = {};
    ExprId instead = kNothing;  // else what stands for the state: any number of one expression
    StepCounts counts = {};     // if the automaton is for CountedSteps
  };
  // The texts of an automaton from its first state on. kYes: its states tell their counts.
  enum class Counted : uint8_t { kNo, kYes };
  ExprId Automaton(std::span<const AutomatonState> states, Counted counted);
  // The texts of a counted automaton with `least` to `most` steps. They are counted while a text is
  // read: no copy of the automaton is made.
  ExprId CountedSteps(ExprId automaton, uint32_t least, uint32_t most) {
    return StateWithin(automaton, least, most, Lent::kNo);
  }

  // ---- Matching ---------------------------------------------------------------------------------

  // How many concatenated parts it is written with, at least 1.
  uint64_t LengthOf(ExprId expr) const;
  bool AcceptsEmpty(ExprId expr) const { return nodes_[expr].accepts_empty; }
  ExprId Derivative(ExprId expr, uint8_t byte);
  // The sets of bytes with which the texts of an expression begin, if they are one or two without a
  // common byte, and what follows depends on the set alone; kNoSet for others.
  static constexpr uint32_t kNoSet = UINT32_MAX;
  struct FirstSets {
    uint32_t first = kNoSet;
    uint32_t second = kNoSet;
    bool operator==(const FirstSets&) const = default;
  };
  FirstSets FirstSetsOf(ExprId expr) const;
  const ByteSet& SetOf(uint32_t set) const { return sets_[set]; }
  // The sets of bytes that the expressions, their derivatives included, tell apart.
  std::vector<ByteSet> SetsOf(std::span<const ExprId> exprs) const;
  // An expression that accepts the same texts of up to `bytes` bytes, and as beginnings the same,
  // with counts no higher than that: states that differ only in far counts become one.
  ExprId Clamp(ExprId expr, uint32_t bytes);
  // The least count that limits how often what comes first is repeated; kNoLimit: none is found.
  // Clamp to as many bytes takes it away.
  uint32_t FrontCount(ExprId expr) const {
    int looks = kFrontLooksMax;
    return FrontCount(expr, looks);
  }

  // ---- Far counts -------------------------------------------------------------------------------
  //
  // A count of a million would make a million expressions while a text is read. So whoever reads it
  // lends units of kLentUnit: the counts in front become that much lower, and the reader keeps how
  // many units are out. Where a lowered count comes near its end, a unit is given back. Texts of up
  // to kLentUnit bytes are the same with a lowered count as with the true one.

  static constexpr uint32_t kLentUnit = 1280;  // more bytes than a token has

  // How many units the counts in front may lend at once, at most; 0: they are near, or already lend
  // some.
  uint32_t UnitsToLend(ExprId expr);
  // The expression with these counts lower by so many units, and marked.
  ExprId Lend(ExprId expr, uint32_t units);
  bool HasLent(ExprId expr) const { return nodes_[expr].has_lent; }
  // Whether a lowered count comes near its end.
  bool NeedsUnit(ExprId expr) const;
  // The expression with a unit back; and one that has all of them back, without marks.
  ExprId GiveBack(ExprId expr) { return MapLent(expr, kLentUnit, Lent::kYes); }
  ExprId WithoutMarks(ExprId expr) { return MapLent(expr, 0, Lent::kNo); }

  // How many expressions there are, with their parts, as a measure of memory.
  size_t size() const { return nodes_.size() + (lists_.size() + steps_.size()) / 4; }
  // Bytes of memory.
  size_t bytes() const;

 private:
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kBytes,
    kConcat,
    kEither,
    kBoth,
    kRepeat,
    kState,
    kCounted
  };
  enum class Lent : uint8_t { kNo, kYes };  // whether units of a count are out
  struct Node {
    Kind kind;
    bool accepts_empty;
    bool has_lent = false;  // here or in a part
    Lent lent = Lent::kNo;  // kRepeat, kCounted
    // kBytes: place in sets_; kEither: in lists_; kState: in steps_; else an expression
    uint32_t first = 0;
    // kConcat, kBoth: an expression; kEither, kState: length; kRepeat, kCounted: least
    uint32_t second = 0;
    uint32_t most = 0;  // kRepeat, kCounted; kState: place in state_counts_
    bool operator==(const Node&) const = default;
  };
  // A state that can be counted has these.
  struct StateCounts {
    StepCounts counts;
    uint32_t far = 0;  // the greatest number in the counts of the automaton's states but kNoLimit
  };
  // Derivatives that were made, by expression and byte, which is never 0: 0 is an empty place.
  struct Derived {
    uint64_t key = 0;
    ExprId result = 0;
  };

  ExprId Intern(const Node& node);
  ExprId Joined(ExprId head, ExprId tail);
  std::span<const ExprId> PartsOf(const Node& node) const {
    return std::span(lists_).subspan(node.first, node.second);
  }
  ExprId DeriveNew(ExprId expr, uint8_t byte);
  static constexpr int kFrontLooksMax = 64;  // expressions that FrontCount looks at
  uint32_t FrontCount(ExprId expr, int& looks) const;
  ExprId Repeat(ExprId part, uint32_t least, uint32_t most, Lent lent);
  ExprId StateWithin(ExprId state, uint32_t least, uint32_t most, Lent lent);
  ExprId Recounted(const Node& node, uint32_t least, uint32_t most, Lent lent);
  uint32_t FarOf(const Node& node) const;
  uint32_t WayLeft(const Node& node) const;
  ExprId MapLent(ExprId expr, uint32_t more, Lent lent);
  template <class Change>
  ExprId MapFront(ExprId expr, int& looks, const Change& change);
  size_t PlaceOf(uint64_t key) const;
  void Keep(uint64_t key, ExprId result);
  void ForgetDerivatives();
  ExprId OneOfSorted(std::span<const std::string_view> texts, size_t depth);

  std::vector<Node> nodes_;
  IdTable by_node_;
  std::vector<ByteSet> sets_;
  IdTable by_set_;
  std::array<ExprId, 256> single_bytes_{};        // kNothing: not made so far
  std::array<ExprId, 5> whole_forms_{};           // of UTF-8, the characters of so many bytes
  std::vector<ExprId> lists_;                     // the parts of kEither
  std::vector<std::pair<ExprId, ExprId>> steps_;  // of kState: texts, and what follows
  std::vector<StateCounts> state_counts_;
  IdTable by_parts_;
  std::vector<Derived> derived_;  // a power of two of places
  size_t derived_count_ = 0;
  uint32_t deriving_ = 0;  // derivatives that are under way
};

}  // namespace kvant::grammar
