// What a session is asked for, and what it will use.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels.h"
#include "engine/model.h"

namespace kvant {

namespace kv {
struct CacheOptions;
}

// Steps of so many rows share one arithmetic, whatever sequences they belong to; more rows of one
// prompt may be computed by another, faster one.
inline constexpr int64_t kSharedRowsMax = cpu::kManyTokens - 1;

// Rows that a step computes at most; longer inputs are cut into steps of this size.
inline constexpr int64_t kDefaultChunk = 512;

struct SessionOptions {
  int64_t context = 0;  // positions the sequence may hold; 0 = the model's training length
  cpu::KvElement k_type = cpu::KvElement::kF16;
  cpu::KvElement v_type = cpu::KvElement::kF16;
  // 0 = DefaultThreadCount(), and one for steps that are too small to share.
  int threads = 0;
  int64_t chunk = kDefaultChunk;
  bool kv_cache =
      true;  // false: every step recomputes the whole sequence (the oracle; uses no KV memory)
  const std::atomic<bool>* cancel = nullptr;  // polled between phases; set = kCancelled

  // Sequences at the same time, and room for their caches when they share nothing.
  int64_t sequences = 1;
  uint64_t kv_bytes_max = 0;  // of cache blocks in use; 0 = what `sequences` may need
  bool kv_commit = false;     // touch all of the cache's memory at creation
  bool kv_rotation = true;    // of vectors that are stored as int8, see cpu::KernelTable::rotate
  bool kv_check = false;      // test the cache's invariants after every operation
  bool kv_poison = false;     // fill freed blocks with NaN
  // Full blocks are found again by the tokens they hold, and kept until memory is needed.
  bool prefix_cache = false;
  // Steps have at most kSharedRowsMax rows, so that prefill and decode give equal bits.
  bool strict = false;
};

// What a session will use. All in bytes.
struct MemoryPlan {
  struct Group {  // layers with the same cache shape
    int layers;
    int64_t window;  // 0 = all positions
    int kv_heads, k_dim, v_dim;
    cpu::KvElement k_type, v_type;
    int64_t rows;  // positions held at most by one sequence
    uint64_t bytes;
    uint64_t bytes_per_token;  // of all layers of the group
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

// What fits into so many bytes of KV cache.
struct MemoryFit {
  int64_t sequences;  // of the options' context, sharing nothing
  int64_t context;    // for the options' number of sequences, a multiple of the block size
};
MemoryFit FitMemory(kv::CacheOptions options, uint64_t bytes);

// Reads "f32", "f16" or "q8" (also "q8_0").
Result<cpu::KvElement> ParseKvType(std::string_view name);
std::string_view KvTypeName(cpu::KvElement type);

// The options with every default filled in. kInvalid for impossible numbers.
Result<SessionOptions> ResolveOptions(const Model& model, SessionOptions options);

// The cache for resolved options: layers with the same window, heads and dimensions share a group.
kv::CacheOptions CacheOptionsFor(const Model& model, const SessionOptions& options);

}  // namespace kvant
