// How many rows the values of a plan have. A row belongs to a row space; how many rows a space has
// is known when a pass begins.
//
// A new row space is an entry of RowSpace and its row in kRowSpaces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "cpu/kernels/token_count.h"

namespace kvant::graph {

// Rows with logits that one run of the head computes at most.
inline constexpr int64_t kHeadRows = 32;

// Frames of features that an encoder reads for each position of a source, where it reads any.
inline constexpr int64_t kFramesPerPosition = 2;

enum class RowSpace : uint8_t {
  kPass,
  kHead,
  kOnce,
  kFrames,
};

// The nodes of a plan that are run as often as each other.
enum class Stage : uint8_t {
  kBody,  // everything per token of the pass
  kHead,  // from the final norm to the logits; run once for each kHeadRows rows with logits
};

// In the order of Stage.
inline constexpr std::string_view kStageNames[] = {"body", "head"};
inline constexpr size_t kStageCount = std::size(kStageNames);

struct RowSpaceInfo {
  std::string_view name;
  char symbol;            // in printed plans
  std::string_view what;  // "tokens of the pass"
  Stage stage;            // of the nodes that work on such rows
  int64_t (*most_rows)(int64_t chunk);
};

// In the order of RowSpace.
inline constexpr RowSpaceInfo kRowSpaces[] = {
    {"pass", 'N', "tokens of the pass", Stage::kBody, [](int64_t chunk) { return chunk; }},
    {"head", 'R', "rows with logits", Stage::kHead, [](int64_t) { return kHeadRows; }},
    {"once", '1', "one row, whatever the pass", Stage::kBody, [](int64_t) { return int64_t{1}; }},
    {"frames", 'F', "frames of a source", Stage::kBody,
     [](int64_t chunk) { return kFramesPerPosition * chunk; }},
};
inline constexpr size_t kRowSpaceCount = std::size(kRowSpaces);

constexpr const RowSpaceInfo& InfoOf(RowSpace space) {
  return kRowSpaces[static_cast<size_t>(space)];
}

// One T for each row space.
template <class T>
struct ByRowSpace {
  std::array<T, kRowSpaceCount> items = {};
  T& operator[](RowSpace space) { return items[static_cast<size_t>(space)]; }
  const T& operator[](RowSpace space) const { return items[static_cast<size_t>(space)]; }
};

// The rows of a pass, and whether they count as few tokens or many: decided here, once for all
// products over a row space.
class RowCounts {
 public:
  RowCounts() { Set(RowSpace::kOnce, 1); }
  void Set(RowSpace space, int64_t rows) { Set(space, rows, cpu::TokenCountOf(rows)); }
  // Sets rows that count as few or many whatever their number is.
  void Set(RowSpace space, int64_t rows, cpu::TokenCount tokens) {
    counts_[space] = {rows, tokens};
  }
  int64_t operator[](RowSpace space) const { return counts_[space].rows; }
  cpu::TokenCount tokens(RowSpace space) const { return counts_[space].tokens; }

 private:
  struct Count {
    int64_t rows = 0;
    cpu::TokenCount tokens = cpu::TokenCount::kFew;
  };
  ByRowSpace<Count> counts_;
};

}  // namespace kvant::graph
