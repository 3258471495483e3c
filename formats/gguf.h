// Reading GGUF model files: versions 2 and 3 (little-endian), split files included, bounds-checked
// and without copies. formats/gguf_writer.h writes them.
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
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/mapped_file.h"
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
// The specification demands a multiple of 8, which aligns the elements of every format, and other
// readers take smaller ones, too; the upper bound is the largest page of Linux, beyond which an
// alignment serves nobody. Elements that a file leaves unaligned are copied into memory.
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";
inline constexpr uint64_t kGgufAlignmentDefault = 32;
inline constexpr uint64_t kGgufAlignmentMin = 1;
inline constexpr uint64_t kGgufElementAlignment = 8;
inline constexpr uint64_t kGgufAlignmentMax = 65536;

constexpr bool GgufAlignmentValid(uint64_t alignment) {
  return std::has_single_bit(alignment) && alignment >= kGgufAlignmentMin &&
         alignment <= kGgufAlignmentMax;
}

struct GgufTensor {
  std::string_view name;
  quant::TensorType type{};                     // as stored in the file
  const quant::FormatTraits* format = nullptr;  // null where kvant cannot read the type
  int n_dims = 0;
  int64_t dims[kGgufDimsMax] = {1, 1, 1, 1};  // dims[0] is the contiguous one (columns); 0: empty
  const std::byte* data = nullptr;  // into the mapping of its shard, all size_bytes readable
  // Bytes of the tensor. A tensor whose type has an unknown size reaches up to the next tensor, or
  // to the end of the file: padding counts then.
  uint64_t size_bytes = 0;
  int shard = 0;  // which file of a split model

  int64_t n_values() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  int64_t row_bytes() const { return format->row_bytes(dims[0]); }
};

// Whether a tensor is a table of which a few rows are read here and there, and which is so large
// that it is left on the disk: it is mapped whatever the access to the file, and never locked.
bool IsScatteredTable(const GgufTensor& tensor);

// The type of a tensor for people: "Q4_K", "I32", or "type 99" where only the number is known.
std::string TensorTypeName(const GgufTensor& tensor);

// The treatment of a file in which kvant cannot read the type of a tensor, so that the tensor's
// `format` is null.
enum class UnreadableTensors : uint8_t {
  kRefused,  // kNotSupported, with the tensor and its type: for whoever computes with tensors
  kListed,   // for whoever lists tensors or copies their bytes
};

// Tensors that were unpacked when a file was opened.
struct UnpackedTensors {
  uint64_t tensors = 0;
  uint64_t bytes = 0;  // of memory
  std::string types;   // as the file has them: "IQ4_KS_R4, Q8_0_R8"
};

class GgufFile {
 public:
  // Opens a file, or all shards of a split model given any shard ("name-00002-of-00005.gguf").
  // Unless tensors are only listed, those whose rows lie interleaved
  // (quant/interleaved/interleaved.h) are unpacked into memory of this object, and unpacked() says
  // so; those whose bytes lie at no multiple of kGgufElementAlignment are copied into it.
  static Result<GgufFile> Open(const std::string& path, FileAccess access = FileAccess::kMap,
                               UnreadableTensors unreadable = UnreadableTensors::kRefused,
                               const ReadProgress& progress = {});

  // Reads a model of one file from memory; `name` is used in messages. The bytes must outlive the
  // object.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes, const std::string& name,
                                UnreadableTensors unreadable = UnreadableTensors::kRefused);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const;  // as given to Open
  uint32_t version() const;
  uint64_t alignment() const;
  int shards() const;
  uint64_t file_bytes() const;  // all shards
  std::span<const MappedFile> mappings() const;

  // Metadata in file order (of the first shard), and by key. Keys are unique.
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

  // Tensors of all shards in file order, and by name. Names are unique.
  std::span<const GgufTensor> tensors() const;
  const GgufTensor* FindTensor(std::string_view name) const;

  // The tensors whose rows lay interleaved in the file.
  const UnpackedTensors& unpacked() const;

  // Returns an object for the same file whose tensors can be replaced apart from the tensors of
  // this one. Both use the same mappings and unpacked rows, which last as long as one of the
  // objects.
  GgufFile Share() const;

  // Gives a tensor another format and other bytes, which belong to this object from then on. The
  // tensor must exist, and `bytes` begin with those of its shape in the format. Not thread-safe:
  // before the object is shared.
  void ReplaceTensor(std::string_view name, const quant::FormatTraits& format, AlignedBuffer bytes);

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  static Result<GgufFile> Finished(std::unique_ptr<State> state, UnreadableTensors unreadable);
  static Status AlignTensors(GgufFile& file);
  std::unique_ptr<State> state_;
};

}  // namespace kvant::formats
