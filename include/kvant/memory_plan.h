// How much memory a session will use, known before weights are read or anything is reserved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvant/result.h"
#include "kvant/session_options.h"

namespace kvant {

// The memory that a session will use, in bytes.
struct MemoryPlan {
  struct Group {  // layers with the same cache shape
    int layers;
    int64_t window;  // 0 = all positions
    int kv_heads, k_dim, v_dim;
    KvType k_type, v_type;
    int64_t rows;  // most positions that one sequence holds
    uint64_t bytes;
    uint64_t bytes_per_token;  // of all layers of the group
    std::string positions;     // which of them queries see: "all positions", "window 33"
  };
  uint64_t weights = 0;      // mapped from the file
  uint64_t kv = 0;           // when the context is full
  uint64_t activations = 0;  // buffers and scratch of all threads
  uint64_t logits = 0;
  std::vector<Group> groups;
  uint64_t total() const { return weights + kv + activations + logits; }
};

// The plan for these options, without loading weights or reserving anything.
Result<MemoryPlan> PlanMemory(const Model& model, const SessionOptions& options);

}  // namespace kvant
