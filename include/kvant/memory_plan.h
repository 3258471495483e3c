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
    int layers = 0;
    int64_t window = 0;  // 0 = all positions
    int kv_heads = 0, k_dim = 0, v_dim = 0;
    KvType k_type = KvType::kF32, v_type = KvType::kF32;
    int64_t rows = 0;              // most positions that one sequence holds
    uint64_t bytes = 0;            // of one sequence
    uint64_t bytes_per_token = 0;  // of all layers of the group
    // Recurrent layers have none of the above but bytes. They have the most states that one
    // sequence holds (the present one, the next one and checkpoints), and the bytes of one state in
    // all layers of the group.
    int64_t states = 0;
    uint64_t state_bytes = 0;
    std::string positions;   // which of them queries see: "all positions", "window 33"
    bool on_device = false;  // the bytes are a device's memory (SessionOptions::offload)
  };
  uint64_t weights = 0;  // mapped from the file
  // Tables so large that they are left on the disk, from which a few rows of each token come. They
  // are among neither the weights nor the total.
  uint64_t tables_on_disk = 0;
  uint64_t kv = 0;  // when the context is full
  // Buffers and scratch of all threads, logs of states, frames of sources.
  uint64_t activations = 0;
  uint64_t logits = 0;
  // Buffers while a source of the greatest length is encoded, which are given back then; its keys
  // and values are among the groups.
  uint64_t encoder = 0;
  // The part of `kv` that lies in a device's memory, if it has room for all layers that are
  // offloaded.
  uint64_t kv_on_device = 0;
  // All that is taken of a device's memory, at once: pools of blocks, and buffers.
  uint64_t device = 0;
  std::vector<Group> groups;
  // The bytes of the host's memory.
  uint64_t total() const { return weights + kv - kv_on_device + activations + logits + encoder; }
};

// The plan for these options, without loading weights or reserving anything.
Result<MemoryPlan> PlanMemory(const Model& model, const SessionOptions& options);

}  // namespace kvant
