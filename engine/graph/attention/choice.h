// The choices of an indexer for the rows of a pass, as a value of the plan: for each of its
// choices the number of units, then the units in ascending order, all as int32. A row that sees
// everything has kSeesAll for their number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/plan.h"

namespace kvant::graph {

inline constexpr int32_t kSeesAll = -1;

// The columns of such a value, and those of one choice.
inline int64_t ChoiceColumns(const IndexShape& shape) {
  return shape.choices() * (shape.units_max() + 1);
}

inline int32_t* ChoiceOf(const IndexShape& shape, const PassContext& pass, ValueId value,
                         int64_t row, int64_t choice) {
  return reinterpret_cast<int32_t*>(pass.FloatRow(value, row)) + choice * (shape.units_max() + 1);
}

// The units of a choice, unless it sees all.
inline std::span<const int32_t> UnitsOf(const int32_t* choice) {
  return {choice + 1, static_cast<size_t>(std::max(0, *choice))};
}

// Whether some row of the pass sees less than all. Where none does, nobody writes choices.
inline bool Chooses(const IndexShape& shape, const PassContext& pass) {
  return std::ranges::any_of(pass.positions,
                             [&shape](int64_t position) { return position >= shape.all_until(); });
}

// Writes the choice of the `most` best scores, in ascending order of their numbers: of equal ones
// the first. Scores of -infinity, and NaN, are not chosen. `order` has room for as many as there
// are scores.
void ChooseBest(std::span<const float> scores, int64_t most, std::span<uint32_t> order,
                int32_t* choice);

}  // namespace kvant::graph
