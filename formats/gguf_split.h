// Split GGUF models: the names of the shards ("name-00002-of-00005.gguf") and the metadata that
// ties them together. Shard i (counted from 0) stores split.no = i, split.count and
// split.tensors.count, the number of tensors of all shards. Source of the layout: llama.cpp's
// gguf-split tool.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/gguf_shard.h"
#include "formats/gguf_writer.h"

namespace kvant::formats {

inline constexpr std::string_view kSplitNumberKey = "split.no";
inline constexpr std::string_view kSplitCountKey = "split.count";
inline constexpr std::string_view kSplitTensorsKey = "split.tensors.count";

constexpr bool IsSplitKey(std::string_view key) {
  return key == kSplitNumberKey || key == kSplitCountKey || key == kSplitTensorsKey;
}

// The keys of shard `number` of `count`, for a model of `tensors` in all. split.no and split.count
// are 16-bit numbers in llama.cpp's files.
void AddSplitKeys(GgufWriter& writer, uint16_t number, uint16_t count, size_t tensors);

// The name of one shard, taken apart.
struct SplitName {
  std::string prefix;   // with the folder: "models/name"
  uint32_t number = 0;  // from 0, although the name counts from 1
  uint32_t count = 0;
};

// Nothing for a name that is not that of a shard, shard 6 of 5 included.
std::optional<SplitName> ParseSplitName(std::string_view path);

// "prefix-00002-of-00005.gguf" for number 1 of 5.
std::string SplitPath(std::string_view prefix, uint32_t number, uint32_t count);

// The place of a shard in its model. A file without split.count is whole: shard 0 of 1.
struct SplitInfo {
  uint32_t number = 0;
  uint32_t count = 1;
  uint32_t tensor_count = 0;  // of all shards
};
Result<SplitInfo> ReadSplitInfo(const GgufShard& shard, const std::string& file);

}  // namespace kvant::formats
