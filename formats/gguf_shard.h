// One GGUF file, parsed and checked from its bytes. GgufFile joins the shards of split models.
//
// Every count, length, offset and product is compared with the bytes that remain before it is used,
// so memory and time are bounded by the file's size. Nothing is copied but fixed-size records:
// names, strings, arrays and tensors are views into `bytes`, which must outlive the shard.
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::formats {

struct GgufShard {
  uint32_t version = 0;
  uint64_t alignment = 0;  // bytes; of the tensor data relative to the start of the file
  std::vector<std::pair<std::string_view, GgufValue>> metadata;  // in file order
  std::vector<GgufTensor> tensors;                               // in file order
};

// `file` is used in messages. Keys are found to be unique here; tensor names are not compared,
// because they must be unique across all shards of a model.
Result<GgufShard> ParseGgufShard(std::span<const std::byte> bytes, const std::string& file,
                                 UnreadableTensors unreadable);

}  // namespace kvant::formats
