// Rows of one cache layer and head that lie apart, copied next to each other in the layout of the
// cache, so that attention reads them as one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/kernels/attention.h"
#include "cpu/kv_format_list.h"

namespace kvant::graph {

// The sizes and formats of a row.
struct RowFormat {
  KvType k_type;
  KvType v_type;
  int k_dim;
  int v_dim;
};

// Bytes for `rows` rows of any formats.
size_t GatheredBytes(int64_t rows, int64_t k_dim, int64_t v_dim);

// Copies the rows at `positions`, which are ascending and which runs with bit `row` hold, to
// memory of GatheredBytes, 64-byte aligned. The run's positions count from 0.
cpu::KvRun GatherRows(const RowFormat& format, std::span<const cpu::KvRun> runs, int64_t row,
                      std::span<const int32_t> positions, std::byte* memory);

}  // namespace kvant::graph
