// The parts of a pass as nodes with states see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/thread_pool.h"
#include "engine/graph/plan.h"
#include "engine/graph/recurrent/recurrent_nodes.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {

// Rows of one sequence, and its state of a slice before and after them.
struct PartStates {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  TailRows tail = {};             // what the last of these rows are kept in
  const float* before = nullptr;  // null: there are no positions before these rows
  float* after = nullptr;         // null: nothing is kept
  KvType element = KvType::kF32;  // of the values of scans
};

// The panels of a scan in a slice of a state, each of `numbers` values. The size of a slice is
// counted in words of 32 bits, each of which holds two values of F16.
class ScanPanels {
 public:
  ScanPanels(const PartStates& part, int64_t numbers)
      : part_(part), words_(part.element == KvType::kF16 ? numbers / 2 : numbers) {}

  // Sets panel `index` after the rows of the part to that before them, and returns it; `scratch`
  // takes its place where nothing is kept.
  void* Begin(int64_t index, std::span<std::byte> scratch) const {
    const int64_t offset = index * words_;
    void* state =
        part_.after != nullptr ? static_cast<void*>(part_.after + offset) : scratch.data();
    const size_t bytes = static_cast<size_t>(words_) * sizeof(float);
    part_.before != nullptr ? std::memcpy(state, part_.before + offset, bytes)
                            : std::memset(state, 0, bytes);
    return state;
  }

 private:
  const PartStates& part_;
  int64_t words_;
};

inline int64_t CountParts(const PassContext& pass) {
  if (!pass.texts.empty()) return std::ssize(pass.texts);
  return pass.kv == nullptr ? 1 : static_cast<int64_t>(pass.kv->parts().size());
}

inline PartStates PartStatesOf(const PassContext& pass, const StateSlice& slice, int64_t part) {
  if (!pass.texts.empty()) {
    const TextRows& text = pass.texts[static_cast<size_t>(part)];
    return {.first_row = text.first_row, .rows = text.rows};
  }
  if (pass.kv == nullptr) return {.rows = pass.rows[RowSpace::kPass]};
  const kv::PartRows& rows = pass.kv->parts()[static_cast<size_t>(part)];
  const auto place = pass.kv->StateOf(slice.cache_id, static_cast<int>(part));
  return {.first_row = rows.first_row,
          .rows = rows.rows,
          .first_position = rows.sequence->length,
          .tail = pass.tails.empty() ? TailRows() : pass.tails[static_cast<size_t>(part)],
          .before = place.before == nullptr ? nullptr : place.before + slice.offset,
          .after = place.after + slice.offset,
          .element = pass.kv->StateType(slice.cache_id)};
}

// Calls keep(row of the pass, place in the log) for the member's share of the rows that logs keep.
template <class Keep>
void KeepTails(const PassContext& pass, const StateSlice& slice, int64_t offset,
               const ThreadPool::Member& member, const Keep& keep) {
  if (pass.tails.empty()) return;
  const Range range = OwnedRange(pass.rows[RowSpace::kPass], 1, member.index, member.count);
  PartStates part;
  int64_t number = 0;
  for (int64_t row = range.begin; row < range.end; ++row) {
    while (row >= part.first_row + part.rows) part = PartStatesOf(pass, slice, number++);
    if (row < part.first_row + part.rows - part.tail.slots) continue;
    const int64_t position = part.first_position + row - part.first_row;
    keep(row, part.tail.Row(position) + offset);
  }
}

}  // namespace kvant::graph
