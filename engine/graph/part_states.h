// The parts of a pass as nodes with states see them.
#pragma once

#include <cstdint>

#include "engine/graph/plan.h"
#include "engine/graph/recurrent_nodes.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {

// Rows of one sequence, and its state of a slice before and after them.
struct PartStates {
  int64_t first_row = 0;
  int64_t rows = 0;
  const float* before = nullptr;  // null: there are no positions before these rows
  float* after = nullptr;         // null: nothing is kept
};

inline int64_t CountParts(const PassContext& pass) {
  return pass.kv == nullptr ? 1 : static_cast<int64_t>(pass.kv->parts().size());
}

inline PartStates PartStatesOf(const PassContext& pass, const StateSlice& slice, int64_t part) {
  if (pass.kv == nullptr) return {.rows = pass.rows[RowSpace::kPass]};
  const kv::PartRows& rows = pass.kv->parts()[static_cast<size_t>(part)];
  const auto place = pass.kv->StateOf(slice.cache_id, static_cast<int>(part));
  return {.first_row = rows.first_row,
          .rows = rows.rows,
          .before = place.before == nullptr ? nullptr : place.before + slice.offset,
          .after = place.after + slice.offset};
}

}  // namespace kvant::graph
