// What a session or a runner is asked for.
#pragma once

#include <atomic>
#include <cstdint>

#include "kvant/kv_type.h"
#include "kvant/model.h"
#include "kvant/result.h"

namespace kvant {

// Up to so many rows of a pass share one arithmetic, whatever sequences they belong to; more rows
// of one prompt may be computed by another, faster one.
inline constexpr int64_t kSharedRowsMax = 63;

// Rows that a pass computes at most; longer inputs are cut into chunks of this size.
inline constexpr int64_t kDefaultChunk = 512;

struct SessionOptions {
  int64_t context = 0;  // positions that a sequence may hold; 0 = the model's training length
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  int threads = 0;  // 0 = DefaultThreadCount(), and one for passes that are too small to share
  int64_t chunk = kDefaultChunk;
  // false: every step computes the whole sequence again, as a reference; takes no KV memory.
  bool kv_cache = true;
  // Looked at between the phases of every pass; set = kCancelled. A step may have one of its own.
  const std::atomic<bool>* cancel = nullptr;

  // Sequences at the same time, and room for their caches when they share nothing.
  int64_t sequences = 1;
  uint64_t kv_bytes_max = 0;  // of cache blocks in use; 0 = what `sequences` may need
  bool kv_commit = false;     // touch all of the cache's memory at creation
  bool kv_rotation = true;    // of vectors that are stored as int8, see cpu::KernelTable::rotate
  bool kv_check = false;      // test the cache's invariants after every operation
  bool kv_poison = false;     // fill freed blocks with NaN
  // Full blocks are found again by the tokens they hold, and kept until memory is needed.
  bool prefix_cache = false;
  // Passes have at most kSharedRowsMax rows, so that prefill and decode give equal bits.
  bool strict = false;
};

// The options with every default filled in. kInvalid for impossible numbers.
Result<SessionOptions> ResolveOptions(const Model& model, SessionOptions options);

}  // namespace kvant
