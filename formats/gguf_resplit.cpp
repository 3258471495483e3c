#include "formats/gguf_resplit.h"

#include <filesystem>
#include <limits>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "formats/gguf_split.h"
#include "formats/gguf_writer.h"

namespace kvant::formats {
namespace {

namespace fs = std::filesystem;

// split.no and split.count are 16-bit numbers in llama.cpp's files.
constexpr size_t kShardsMax = std::numeric_limits<uint16_t>::max();

GgufWriter WriterFor(const GgufFile& file) {
  return GgufWriter(static_cast<uint32_t>(file.alignment()));
}

void CopyMetadata(const GgufFile& file, GgufWriter& writer) {
  for (const auto& [key, value] : file.metadata()) {
    if (!IsSplitKey(key)) writer.AddValue(std::string(key), value);
  }
}

Status WriteTensors(std::span<const GgufTensor> tensors, const std::string& path,
                    const OnTensor& on_tensor, GgufWriter& writer) {
  for (const GgufTensor& tensor : tensors) {
    KVANT_TRY(writer.AddTensor(tensor));
  }
  KVANT_TRY(writer.Begin(path));
  for (const GgufTensor& tensor : tensors) {
    if (on_tensor) KVANT_TRY(on_tensor(tensor));
    KVANT_TRY(writer.WriteTensor({tensor.data, tensor.size_bytes}));
  }
  return writer.Finish();
}

Status WriteShard(const GgufFile& file, const std::vector<SplitShard>& shards, size_t number,
                  const OnTensor& on_tensor) {
  const SplitShard& shard = shards[number];
  GgufWriter writer = WriterFor(file);
  if (number == 0) CopyMetadata(file, writer);
  AddSplitKeys(writer, static_cast<uint16_t>(number), static_cast<uint16_t>(shards.size()),
               file.tensors().size());
  return WriteTensors(file.tensors().subspan(shard.first_tensor, shard.tensors), shard.path,
                      on_tensor, writer);
}

}  // namespace

Status CheckOutputIsNoInput(const GgufFile& file, const std::string& output) {
  std::error_code error;
  for (const MappedFile& shard : file.mappings()) {
    if (!fs::equivalent(shard.path(), output, error)) continue;
    return MakeError(ErrorCode::kInvalid, "{}: the output is also an input", output);
  }
  return {};
}

Status CheckIsNew(const std::string& shard) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(shard, error))) return {};
  return MakeError(ErrorCode::kInvalid, "{}: exists already; choose another prefix", shard);
}

Result<std::vector<SplitShard>> PlanSplit(const GgufFile& file, const std::string& prefix,
                                          const SplitLimits& limits) {
  KVANT_CHECK((limits.tensors_max == 0) != (limits.bytes_max == 0));
  if (file.tensors().empty()) {
    return MakeError(ErrorCode::kInvalid, "{}: no tensors to split", file.path());
  }
  std::vector<SplitShard> shards;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const uint64_t bytes = RoundUp(file.tensors()[i].size_bytes, file.alignment());
    const bool is_full =
        shards.empty() ||
        (limits.tensors_max != 0
             ? shards.back().tensors == limits.tensors_max
             : bytes > limits.bytes_max || shards.back().tensor_bytes > limits.bytes_max - bytes);
    if (is_full) shards.push_back({.path = "", .first_tensor = i});
    ++shards.back().tensors;
    shards.back().tensor_bytes += bytes;
  }
  if (shards.size() > kShardsMax) {
    return MakeError(ErrorCode::kInvalid, "{}: would have {} shards, expected at most {}",
                     file.path(), shards.size(), kShardsMax);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].path =
        SplitPath(prefix, static_cast<uint32_t>(i), static_cast<uint32_t>(shards.size()));
  }
  return shards;
}

Status WriteSplit(const GgufFile& file, const std::vector<SplitShard>& shards,
                  const OnTensor& on_tensor) {
  for (const SplitShard& shard : shards) KVANT_TRY(CheckIsNew(shard.path));
  std::error_code error;
  for (size_t number = 0; number < shards.size(); ++number) {
    const Status status = WriteShard(file, shards, number, on_tensor);
    if (status.ok()) continue;
    for (size_t done = 0; done < number; ++done) fs::remove(shards[done].path, error);
    return status;
  }
  return {};
}

Status WriteMerged(const GgufFile& file, const std::string& output, const OnTensor& on_tensor) {
  KVANT_TRY(CheckOutputIsNoInput(file, output));
  GgufWriter writer = WriterFor(file);
  CopyMetadata(file, writer);
  return WriteTensors(file.tensors(), output, on_tensor, writer);
}

}  // namespace kvant::formats
