// Sets of texts as deterministic automata over code points: of strings' values, of the names of
// properties, of numbers as they are written. Unlike the expressions of a RegexPool they have
// complements, and what they accept is never empty unless they have no state.
//
// An automaton is a plain value. Operations take as long as their result is large; what becomes
// larger than kTextSetStatesMax is an error. Thread-safety: const; may be shared freely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant::grammar {

inline constexpr size_t kTextSetStatesMax = 40'000;

struct TextSet {
  struct Edge {
    uint32_t first, last;  // code points, both included
    uint32_t target;
    bool operator==(const Edge&) const = default;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  // ascending, without overlap; no edge: nothing may follow
    bool operator==(const State&) const = default;
  };

  // The first state begins. From every state an accepting one can be reached; without states the
  // set is empty.
  std::vector<State> states;

  bool empty() const { return states.empty(); }
  bool Has(std::string_view utf8) const;
  bool IsAll() const;
  bool operator==(const TextSet&) const = default;
  uint64_t Hash() const;  // equal sets of states have the same
  // The lengths of the texts, in code points: the least, and the greatest, or UINT32_MAX where
  // there is none. The set is not empty.
  uint32_t LeastLength() const;
  uint32_t GreatestLength() const;
};

// For each state the lengths of the texts that it accepts, in code points.
struct TextLengths {
  struct Range {
    uint32_t least;
    uint32_t most;  // UINT32_MAX: there is no greatest
  };
  std::vector<Range> ranges;  // [states]
  bool are_all;               // whether each range has all lengths from least to most
};
TextLengths LengthsOf(const TextSet& set);

// All texts.
TextSet AllTexts();
// All texts of `least` to `most` code points; UINT32_MAX: no greatest length.
Result<TextSet> TextsOfLength(uint32_t least, uint32_t most);
// These texts, and all others.
Result<TextSet> TheseTexts(std::span<const std::string> texts);
Result<TextSet> OtherTexts(std::span<const std::string> texts);

enum class TextSetOp : uint8_t { kAnd, kOr, kWithout };
Result<TextSet> Combine(const TextSet& first, const TextSet& second, TextSetOp op);

// Drops the states from which nothing is accepted.
void Trim(TextSet& set);

// The code points of a text in UTF-8.
std::vector<uint32_t> CodePointsOf(std::string_view utf8);

}  // namespace kvant::grammar
