// Attention without a cache: the pass holds all of its sequence, and every row attends to the rows
// before it and to itself, or to all rows of a source. Plain loops in double precision, without
// tiles, blocks or spans; tests compare attention over a cache with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "engine/graph/attention/attention_parts.h"
#include "engine/graph/attention/attention_shape.h"

namespace kvant::graph {

// The query heads of one kv head, for the rows [row_begin, row_end) of the pass.
struct UncachedAttention {
  const AttentionShape& shape;
  float scale;               // of the products of queries and keys
  const float* bias_slopes;  // of these heads, as AttentionShape::bias_slopes; null: none
  const float* sinks;        // the same of AttentionShape::sinks
  cpu::DistanceBias distances;
  const float* queries;
  const float* keys;
  const float* values;
  float* out;
  int64_t query_stride;  // floats from one row to the next
  int64_t kv_stride;     // the same of keys and values
  int64_t kv_rows;       // that there are; AttentionShape::sees_all shows all of them to every row
  int64_t out_stride;
  int64_t row_begin;
  int64_t row_end;
  // The choices of the rows (choice.h), `choice_stride` numbers apart; null: all that the shape
  // says.
  const int32_t* choice;
  int64_t choice_stride;
  std::span<std::byte> scratch;  // UncachedScratchBytes, 8-byte aligned
};

void Attend(const UncachedAttention& task);

// Scratch bytes of a thread, where there are at most `rows` rows of keys.
size_t UncachedScratchBytes(const AttentionShape& shape, int64_t rows);

// Computes the shares of a team's member in a pass that has no cache.
void AttendUncached(const AttentionParts& parts, const PassContext& pass,
                    const ThreadPool::Member& member);

}  // namespace kvant::graph
