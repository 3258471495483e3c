// GGUF model files: bounds-checked, zero-copy reading of versions 2 and 3 (little-endian), split
// files included, and writing of version 3 with any alignment.
//
// Layout: header {magic "GGUF", version, tensor_count, metadata_count}, metadata key/value pairs,
// tensor infos {name, n_dims, dims, type, offset}, padding to the alignment, tensor data. Source of
// the layout: the GGUF specification of ggml.
//
// Errors (kCorrupt, kNotSupported, kIo) name the file and the key or tensor, what was expected and
// what was found. Reading never allocates more than a constant multiple of the file's size.
// Thread-safety: const after Open; may be shared freely.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "quant/format.h"

namespace kvant::formats {

// Type ids of metadata values, as stored in the file.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

const char* GgufTypeName(GgufType type);

// An array of numbers or booleans, still in file form: `count` elements of `type` at `data`
// (unaligned). Arrays of arrays are refused at Open. Strings are views into the mapping, found once
// at Open.
struct GgufArray {
  GgufType type{};
  uint64_t count = 0;
  const std::byte* data = nullptr;
  std::vector<std::string_view> strings;  // filled for kString
};

// A metadata value. Integers are widened, the file's own type is kept in `type`.
struct GgufValue {
  GgufType type{};
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray> value;
};

inline constexpr int kGgufDimsMax = 4;

// Tensor data begins at multiples of the alignment, a power of two that the key below may change.
// The specification demands a multiple of 8, which aligns the elements of every format; the upper
// bound is the largest page of Linux, beyond which an alignment serves nobody.
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint64_t kGgufAlignmentDefault = 32;
inline constexpr uint64_t kGgufAlignmentMin = 8;
inline constexpr uint64_t kGgufAlignmentMax = 65536;

constexpr bool GgufAlignmentValid(uint64_t alignment) {
  return std::has_single_bit(alignment) && alignment >= kGgufAlignmentMin &&
         alignment <= kGgufAlignmentMax;
}

struct GgufTensor {
  std::string_view name;
  const quant::FormatTraits* format = nullptr;
  int n_dims = 0;
  int64_t dims[kGgufDimsMax] = {1, 1, 1, 1};  // dims[0] is the contiguous one (columns)
  const std::byte* data = nullptr;  // into the mapping of its part, all size_bytes readable
  uint64_t size_bytes = 0;
  int part = 0;  // which file of a split model

  int64_t n_values() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  int64_t row_bytes() const { return format->row_bytes(dims[0]); }
};

class GgufFile {
 public:
  // Opens a file, or all parts of a split model given any part ("name-00002-of-00005.gguf").
  static Result<GgufFile> Open(const std::string& path, FileAccess access = FileAccess::kMap);

  // Reads a single-part file from memory; `name` is used in messages. The bytes must outlive the
  // object.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes, const std::string& name);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const;  // as given to Open
  uint32_t version() const;
  uint64_t alignment() const;
  int parts() const;
  uint64_t file_bytes() const;  // all parts
  std::span<const MappedFile> mappings() const;

  // Metadata in file order (of the first part), and by key. Keys are unique.
  std::span<const std::pair<std::string_view, GgufValue>> metadata() const;
  const GgufValue* Find(std::string_view key) const;

  // Typed getters: kCorrupt if the key is present with another type or out of the range;
  // nullopt if it is absent. GetU32 accepts every integer type whose value fits.
  Result<std::optional<uint32_t>> GetU32(std::string_view key) const;
  Result<std::optional<float>> GetF32(std::string_view key) const;
  Result<std::optional<bool>> GetBool(std::string_view key) const;
  Result<std::optional<std::string_view>> GetString(std::string_view key) const;
  // The array under the key whose elements have this type; null if the key is absent.
  Result<const GgufArray*> GetArray(std::string_view key, GgufType element) const;

  // Tensors of all parts in file order, and by name. Names are unique.
  std::span<const GgufTensor> tensors() const;
  const GgufTensor* FindTensor(std::string_view name) const;

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Builds a GGUF v3 file: add all metadata and tensors, call Begin, then WriteTensor for every
// tensor in the order added (data streams through, nothing is kept), then Finish. The file appears
// under its name at Finish, whole; without it nothing is left behind.
//
// Adding a key again replaces its value in place. general.alignment belongs to the writer: what was
// added under it is dropped, so that all metadata of another file can be copied.
// Errors: kInvalid for arguments that make no valid file, kIo. Thread-safety: none.
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
  void AddU8s(std::string key, const std::vector<uint8_t>& values);
  // Copies a value read from another file as it is, type included.
  void AddValue(std::string key, const GgufValue& value);
  void Remove(std::string_view key);

  // dims[0] is the contiguous dimension; no dims at all make a tensor of one value. kInvalid for a
  // duplicate name, a dimension of zero, an overflowing shape, or columns that the format cannot
  // hold.
  Status AddTensor(std::string name, const quant::FormatTraits& format,
                   std::span<const int64_t> dims);

  // Creates the file and writes all but the tensor data. kInvalid for a wrong alignment or key.
  Status Begin(const std::string& path);
  Status WriteTensor(std::span<const std::byte> bytes);  // exactly the tensor's size
  Status Finish();

  // Another way from Begin to Finish: after Reserve, which takes the file's whole size from the
  // disk, pieces of tensors come in any order and from several threads. Begin's path must be a
  // regular file. Finish trusts that every byte was written.
  Status Reserve();
  Status WritePiece(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  struct Entry {
    std::string key;
    std::vector<std::byte> bytes;  // type id and value in file form; empty for a removed key
  };
  struct Tensor {
    std::string name;
    const quant::FormatTraits* format;
    std::vector<int64_t> dims;
    uint64_t size_bytes;
    uint64_t offset = 0;  // in the tensor data; set by Begin
  };
  void Add(std::string key, std::vector<std::byte> bytes);
  void Put(std::string key, std::vector<std::byte> bytes);
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
  uint64_t data_begin_ = 0;  // of the tensor data in the file
  std::string path_;
  OutputFile file_;
};

}  // namespace kvant::formats
