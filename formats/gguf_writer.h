// Writing GGUF model files, version 3 with any alignment; formats/gguf.h describes the layout.
//
// Add all metadata and tensors, call Begin, then WriteTensor for every tensor in the order added
// (data streams through, nothing is kept), then Finish. The file appears under its name at Finish,
// whole; without it nothing is left behind.
//
// Adding a key again replaces its value in place. general.alignment belongs to the writer: a value
// that was added under this key is dropped, so that all metadata of another file can be copied.
//
// Errors: kInvalid for arguments that make no valid file, kIo. Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant::formats {

class GgufWriter {
 public:
  // alignment: a power of two, 8 to 65536; written as general.alignment unless it is 32.
  explicit GgufWriter(uint32_t alignment = kGgufAlignmentDefault);

  void AddU32(std::string key, uint32_t value);
  void AddI32(std::string key, int32_t value);
  void AddU64(std::string key, uint64_t value);
  void AddF32(std::string key, float value);
  void AddBool(std::string key, bool value);
  void AddString(std::string key, std::string_view value);
  void AddStrings(std::string key, const std::vector<std::string>& values);
  void AddF32s(std::string key, const std::vector<float>& values);
  void AddI32s(std::string key, const std::vector<int32_t>& values);
  void AddU64s(std::string key, const std::vector<uint64_t>& values);
  void AddBools(std::string key, const std::vector<bool>& values);
  void AddU8s(std::string key, const std::vector<uint8_t>& values);
  // Copies a value read from another file as it is, type included.
  void AddValue(std::string key, const GgufValue& value);
  void Remove(std::string_view key);

  // dims[0] is the contiguous dimension; no dims at all make a tensor of one value. kInvalid for a
  // duplicate name, a dimension of zero, an overflowing shape, or columns that the format cannot
  // hold.
  Status AddTensor(std::string name, const quant::FormatTraits& format,
                   std::span<const int64_t> dims);

  // A tensor as it is in another file, whether or not kvant can read its type.
  Status AddTensor(const GgufTensor& tensor);

  // The size that the file will have. kInvalid as Begin.
  Result<uint64_t> FileBytes();

  // Creates the file and writes all but the tensor data. kInvalid for a wrong alignment or key.
  Status Begin(const std::string& path);
  Status WriteTensor(std::span<const std::byte> bytes);  // exactly the tensor's size
  Status WriteRest(std::span<const std::byte> bytes);    // the next bytes of the tensor, in order
  Status Finish();

  // Another way from Begin to Finish: after Reserve, which takes the file's whole size from the
  // disk, pieces of tensors come in any order and from several threads, every byte once before
  // Finish. What they cost in memory depends on the order (OutputFile::WriteAt). Begin's path must
  // be a regular file.
  Status Reserve();
  Status WritePiece(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  struct Entry {
    std::string key;
    std::vector<std::byte> bytes;  // type id and value in file form; empty for a removed key
  };
  struct Tensor {
    std::string name;
    quant::TensorType type;
    std::vector<int64_t> dims;
    uint64_t size_bytes;
    uint64_t offset = 0;  // in the tensor data; set by Begin
  };
  void Add(std::string key, std::vector<std::byte> bytes);
  void Put(std::string key, std::vector<std::byte> bytes);
  Status Add(Tensor tensor);
  Status CheckMetadata() const;
  Status PlaceTensors();
  std::vector<std::byte> Preamble() const;
  Status Pad();

  uint32_t alignment_;
  std::vector<Entry> entries_;  // in file order
  std::map<std::string, size_t, std::less<>> entry_of_key_;
  std::vector<Tensor> tensors_;
  std::set<std::string, std::less<>> tensor_names_;
  size_t next_tensor_ = 0;
  uint64_t next_byte_ = 0;   // of that tensor
  uint64_t data_begin_ = 0;  // of the tensor data in the file
  std::string path_;
  OutputFile file_;
};

}  // namespace kvant::formats
