// safetensors files: bounds-checked, zero-copy reading of one file or of all shards of a Hugging
// Face folder, and writing.
//
// Layout of a file: {header_bytes u64 little-endian, header, data}. The header is a JSON object
// {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {string:
// string}}, padded by spaces; offsets count from the start of the data, and the tensors cover the
// data without gaps or overlaps. Source of the layout and of the limits: the safetensors
// specification.
//
// Errors (kCorrupt, kNotSupported, kIo) name the file and the tensor, what was expected and what
// was found. Thread-safety: const after Open; may be shared freely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/name_index.h"

namespace kvant::formats {

// An element type. All types of whole bytes are recognised; what can be done with the values is the
// reader's business.
struct SafetensorsType {
  std::string_view name;  // as written in the file: "BF16"
  int bytes;
};

// The type of a name, or null.
const SafetensorsType* FindSafetensorsType(std::string_view name);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<int64_t> shape;       // the last one is contiguous; empty for a scalar
  const std::byte* data = nullptr;  // into the mapping, size_bytes readable, at any alignment
  uint64_t size_bytes = 0;
  int file = 0;  // index into files()
  // Tensors of integers that stand for floats, which other files than those of safetensors have: a
  // float32 for each row, at any alignment, by which its values are divided. Null for others.
  const std::byte* row_divisors = nullptr;

  int64_t n_values() const { return static_cast<int64_t>(size_bytes) / type->bytes; }
};

class SafetensorsModel {
 public:
  // The weights of a folder: model.safetensors, or the shards that model.safetensors.index.json
  // lists, or without an index model-00001-of-0000N.safetensors with all numbers. kIo names what is
  // missing; kCorrupt says where the index and the shards contradict each other.
  static Result<SafetensorsModel> OpenFolder(const std::string& folder,
                                             FileAccess access = FileAccess::kMap);

  // One file.
  static Result<SafetensorsModel> OpenFile(const std::string& path,
                                           FileAccess access = FileAccess::kMap);

  // One file in memory; `name` is used in messages. The bytes must outlive the object.
  static Result<SafetensorsModel> Parse(std::span<const std::byte> bytes, const std::string& name);

  // Tensors of another file, whose path is `file`, as if a folder had them; their bytes must
  // outlive the object. kCorrupt where two have one name.
  static Result<SafetensorsModel> FromTensors(std::vector<SafetensorsTensor> tensors,
                                              const std::string& file);

  // Tensors in the order of the shards and of the data in each; names are unique.
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  const SafetensorsTensor* Find(std::string_view name) const;

  // The paths of the files read.
  std::span<const std::string> files() const { return files_; }
  const std::string& FileOf(const SafetensorsTensor& tensor) const {
    return files_[static_cast<size_t>(tensor.file)];
  }

 private:
  Status AddFile(std::span<const std::byte> bytes, const std::string& path);
  Status AddMapped(const std::string& path, FileAccess access);
  Status BuildIndex();

  std::vector<MappedFile> mappings_;
  std::vector<std::string> files_;
  std::vector<SafetensorsTensor> tensors_;
  NameIndex index_;
};

// A tensor to be written; as many bytes as type and shape say.
struct SafetensorsContent {
  std::string name;
  std::string_view type;  // "F32"
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Writes one file. It appears whole or not at all (kIo).
Status WriteSafetensors(const std::string& path, std::span<const SafetensorsContent> tensors);

}  // namespace kvant::formats
