// The KV cache that options ask for, and how much of it fits into memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/plan.h"
#include "kvant/memory_plan.h"
#include "kvant/result.h"

namespace kvant {

namespace kv {
struct CacheOptions;
}

// How much fits into a given number of bytes of KV cache.
struct MemoryFit {
  int64_t sequences;  // of the options' context, sharing nothing
  int64_t context;    // for the options' number of sequences, a multiple of the block size
};
MemoryFit FitMemory(kv::CacheOptions options, uint64_t bytes);

// The cache for resolved options: layers with the same window, heads and dimensions share a group.
// `offloaded` are the cache ids of the layers whose blocks are a device's.
kv::CacheOptions CacheOptionsFor(const Model& model, const SessionOptions& options,
                                 std::span<const int> offloaded = {});

// The bytes of a device's memory that the cache of the offloaded layers takes, and the bytes that
// passes need beside it.
uint64_t OffloadedCacheBytes(const Model& model, const SessionOptions& options,
                             const std::vector<int>& layers);
uint64_t OffloadedPassBytes(const Model& model, const SessionOptions& options);

// The limits of an encoder's pass over `positions` positions, and the memory that it takes until it
// ends.
graph::PassLimits EncoderLimits(const SessionOptions& options, int64_t positions);
uint64_t EncoderBytes(const Model& model, const SessionOptions& options, int64_t positions);

// The plans that guess tokens, the most rows of their passes and the limits of these, and the
// memory that guesses take for resolved options.
std::vector<const graph::Plan*> DraftPlans(const Model& model);
int64_t DraftRows(const Model& model);
graph::PassLimits DraftLimits(const SessionOptions& options);
uint64_t DraftBytes(const Model& model, const SessionOptions& options);

// Checks memory that is to be taken at once (SessionOptions::kv_commit): kOutOfMemory, with what
// would fit, if the machine or the container that the process runs in does not have it now.
Status CheckMemory(const kv::CacheOptions& cache);

// kNotSupported where a full context cannot move on by forgetting tokens: recurrent layers keep one
// state of all tokens.
Status CheckShift(const Model& model, const SessionOptions& options);

}  // namespace kvant
