// Encodes sources: runs the plan of a model's encoder over all positions of a source at once, which
// leaves the keys and values that the decoder's layers make of it in the source's blocks, or, where
// there is no cache, in plain rows for one pass of the decoder.
//
// The memory of a pass is taken for the source's length and given back after it. Thread-safety:
// none; it runs on the thread of the passes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/graph/plan.h"
#include "engine/run/core.h"
#include "kvant/token_id.h"

namespace kvant::run {

// The input of a source: either tokens or frames; the other one is empty.
struct SourceInput {
  std::vector<TokenId> tokens;
  std::vector<float> frames;  // [bins][frames], see FrameShape

  uint64_t Hash() const;  // XXH64 of the bytes
  // The number of positions that the encoder of a model makes of the input.
  int64_t Positions(const Model& model) const;
  bool operator==(const SourceInput&) const = default;
};

class SourceEncoder {
 public:
  explicit SourceEncoder(Core& core) : core_(core) {}

  // The encoder's output, [positions][dim]; valid during the call. An error ends the encoding.
  using Output = std::function<Status(std::span<const float> rows)>;

  // Fills the blocks of a source with what the input gives. kOutOfMemory, kCancelled.
  Status Run(const SourceInput& input, kv::Source& source, const std::atomic<bool>* cancel,
             const Output& output = {});
  // Runs without a cache and fills `rows`, which it makes as long as they must be.
  Status Run(const SourceInput& input, graph::UncachedSource& rows, const std::atomic<bool>* cancel,
             const Output& output = {});

 private:
  // Runs the plan. The pass has its place for keys and values, and nothing else yet.
  Status RunPlan(const SourceInput& input, graph::PassContext& pass,
                 const std::atomic<bool>* cancel, const Output& output);

  Core& core_;
};

}  // namespace kvant::run
