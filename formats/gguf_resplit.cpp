#include "formats/gguf_resplit.h"

#include <filesystem>
#include <limits>

#include "base/aligned_buffer.h"
#include "formats/gguf_split.h"

namespace kvant::formats {
namespace {

namespace fs = std::filesystem;

// split.no and split.count are 16-bit numbers in llama.cpp's files.
constexpr size_t kPartsMax = std::numeric_limits<uint16_t>::max();

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
    KVANT_TRY(writer.AddTensor(std::string(tensor.name), *tensor.format,
                               std::span(tensor.dims, static_cast<size_t>(tensor.n_dims))));
  }
  KVANT_TRY(writer.Begin(path));
  for (const GgufTensor& tensor : tensors) {
    if (on_tensor) KVANT_TRY(on_tensor(tensor));
    KVANT_TRY(writer.WriteTensor({tensor.data, tensor.size_bytes}));
  }
  return writer.Finish();
}

Status WritePart(const GgufFile& file, const std::vector<SplitPart>& parts, size_t number,
                 const OnTensor& on_tensor) {
  const SplitPart& part = parts[number];
  GgufWriter writer = WriterFor(file);
  if (number == 0) CopyMetadata(file, writer);
  AddSplitKeys(writer, static_cast<uint16_t>(number), static_cast<uint16_t>(parts.size()),
               file.tensors().size());
  return WriteTensors(file.tensors().subspan(part.first_tensor, part.tensors), part.path, on_tensor,
                      writer);
}

}  // namespace

Status CheckOutputIsNoInput(const GgufFile& file, const std::string& output) {
  std::error_code error;
  for (const MappedFile& part : file.mappings()) {
    if (!fs::equivalent(part.path(), output, error)) continue;
    return MakeError(ErrorCode::kInvalid, "{}: the output is also an input", output);
  }
  return {};
}

Status CheckIsNew(const std::string& part) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(part, error))) return {};
  return MakeError(ErrorCode::kInvalid, "{}: exists already; choose another prefix", part);
}

Result<std::vector<SplitPart>> PlanSplit(const GgufFile& file, const std::string& prefix,
                                         const SplitLimits& limits) {
  KVANT_CHECK((limits.tensors_max == 0) != (limits.bytes_max == 0));
  if (file.tensors().empty()) {
    return MakeError(ErrorCode::kInvalid, "{}: no tensors to split", file.path());
  }
  std::vector<SplitPart> parts;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const uint64_t bytes = RoundUp(file.tensors()[i].size_bytes, file.alignment());
    const bool is_full =
        parts.empty() ||
        (limits.tensors_max != 0
             ? parts.back().tensors == limits.tensors_max
             : bytes > limits.bytes_max || parts.back().tensor_bytes > limits.bytes_max - bytes);
    if (is_full) parts.push_back({.path = "", .first_tensor = i});
    ++parts.back().tensors;
    parts.back().tensor_bytes += bytes;
  }
  if (parts.size() > kPartsMax) {
    return MakeError(ErrorCode::kInvalid, "{}: would have {} parts, expected at most {}",
                     file.path(), parts.size(), kPartsMax);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].path =
        SplitPath(prefix, static_cast<uint32_t>(i), static_cast<uint32_t>(parts.size()));
  }
  return parts;
}

Status WriteSplit(const GgufFile& file, const std::vector<SplitPart>& parts,
                  const OnTensor& on_tensor) {
  for (const SplitPart& part : parts) KVANT_TRY(CheckIsNew(part.path));
  std::error_code error;
  for (size_t number = 0; number < parts.size(); ++number) {
    const Status status = WritePart(file, parts, number, on_tensor);
    if (status.ok()) continue;
    for (size_t done = 0; done < number; ++done) fs::remove(parts[done].path, error);
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
