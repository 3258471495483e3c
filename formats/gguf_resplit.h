// Cutting a GGUF model into shards, and joining shards to one file. Tensors keep their order and
// bytes, metadata their order, types and values; only split.* come and go. All metadata are in the
// first shard, as in llama.cpp's files, and each program reads the other's shards.
//
// Shards appear one by one under their names, each whole; if a later one fails, the earlier ones
// are removed again. Existing files are never replaced by shards.
//
// Errors: kInvalid for limits and paths that cannot be met, kIo. Thread-safety: calls on different
// files are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::formats {

// Exactly one limit is not 0. Bytes are those of tensors, padded; metadata come on top, and a
// tensor that alone is larger gets a shard of its own.
struct SplitLimits {
  uint64_t tensors_max = 0;
  uint64_t bytes_max = 0;
};

struct SplitShard {
  std::string path;
  size_t first_tensor = 0;
  size_t tensors = 0;
  uint64_t tensor_bytes = 0;
};

// Called before every tensor; an error ends the work with it. May be empty.
using OnTensor = std::function<Status(const GgufTensor&)>;

// The shards "prefix-00001-of-0000N.gguf". kInvalid for more shards than split.count can number.
Result<std::vector<SplitShard>> PlanSplit(const GgufFile& file, const std::string& prefix,
                                          const SplitLimits& limits);

Status WriteSplit(const GgufFile& file, const std::vector<SplitShard>& shards,
                  const OnTensor& on_tensor);

// kInvalid if a file to be written is one that is being read.
Status CheckOutputIsNoInput(const GgufFile& file, const std::string& output);

// kInvalid if a shard to be written exists already.
Status CheckIsNew(const std::string& shard);

// Joins all shards of `file`. kInvalid if `output` is one of them.
Status WriteMerged(const GgufFile& file, const std::string& output, const OnTensor& on_tensor);

}  // namespace kvant::formats
