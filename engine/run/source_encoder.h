// Encodes sources: runs the plan of a model's encoder over all positions of a source at once, which
// leaves the keys and values that the decoder's layers make of it in the source's blocks.
//
// The memory of a pass is taken for the source's length and given back after it. Thread-safety:
// none; it runs on the thread of the passes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"
#include "engine/run/core.h"
#include "kvant/token_id.h"

namespace kvant::run {

class SourceEncoder {
 public:
  explicit SourceEncoder(Core& core) : core_(core) {}

  // The encoder's output, [positions][dim]; valid during the call. An error ends the encoding.
  using Output = std::function<Status(std::span<const float> rows)>;

  // Fills the blocks of a source with what these tokens give. kOutOfMemory, kCancelled.
  Status Run(std::span<const TokenId> tokens, kv::Source& source, const std::atomic<bool>* cancel,
             const Output& output = {});

 private:
  Core& core_;
};

}  // namespace kvant::run
