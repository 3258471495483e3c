// The parser of one GGUF file. A cursor that cannot leave the bytes does all the reading; the
// parser above it makes a message of each failed read.
#include "formats/gguf_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "formats/byte_cursor.h"
#include "formats/gguf_limits.h"
#include "formats/gguf_value.h"
#include "formats/name_index.h"
#include "formats/other_files.h"
#include "formats/quoted.h"
#include "quant/formats/q2_0.h"
#include "quant/interleaved/interleaved.h"
#include "quant/unsupported_types.h"

namespace kvant::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in the host's byte order");

constexpr char kMagic[4] = {'G', 'G', 'U', 'F'};
constexpr uint32_t kVersionMin = 2;  // version 1 had 32-bit counts and lengths
constexpr uint32_t kVersionMax = 3;

// The smallest possible entries, by which the counts in the header are bounded before memory is
// reserved: {length, one byte of key, type, one byte of value} and {length, one byte of name,
// n_dims, no dims, type, offset}.
constexpr uint64_t kMetadataBytesMin = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorInfoBytesMin = 8 + 1 + 4 + 0 + 4 + 8;

// The limit for tensors whose type is unknown. The smallest known type has 7 values per byte.
constexpr int64_t kValuesPerByteMax = 64;

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& file,
             UnreadableTensors unreadable)
      : bytes_(bytes), file_(file), unreadable_(unreadable), cursor_(bytes) {}

  Result<GgufShard> Parse() {
    KVANT_TRY(ReadHeader());
    KVANT_TRY(ReadMetadata());
    KVANT_TRY(FindAlignment());
    KVANT_TRY(ReadTensorInfos());
    KVANT_TRY(MeasureUnknownTypes());
    KVANT_TRY(CheckOldBlocks());
    KVANT_TRY(PlaceTensors());
    KVANT_TRY(CheckOverlaps());
    return std::move(shard_);
  }

 private:
  Status ReadHeader();
  Status ReadMetadata();
  Status ReadKey(uint64_t index, std::string_view& key);
  Status ReadValue(std::string_view key, GgufValue& value);
  Status ReadArray(std::string_view key, GgufArray& array);
  template <class Stored, class Widened>
  Status ReadNumber(std::string_view key, GgufValue& value);
  Status ReadBool(std::string_view key, GgufValue& value);
  Status FindAlignment();
  Status ReadTensorInfos();
  Status ReadTensorInfo(uint64_t index, GgufTensor& tensor, uint64_t& offset);
  Status ReadTensorName(uint64_t index, std::string_view& name);
  Status ReadInterleaved(const quant::InterleavedType& type, GgufTensor& tensor);
  Status ReadTensorShape(GgufTensor& tensor);
  Result<int64_t> SizeOf(const GgufTensor& tensor) const;
  Error UnreadableType(const GgufTensor& tensor) const;
  Status MeasureUnknownTypes();
  Status CheckOldBlocks() const;
  Status PlaceTensors();
  Status CheckOverlaps();

  template <class... Args>
  Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kCorrupt, "{}: {}", file_,
                     fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  Error NotSupported(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kNotSupported, "{}: {}", file_,
                     fmt::format(format, std::forward<Args>(args)...));
  }
  Error EndsInside(std::string_view what) const {
    return Corrupt("the file of {} bytes ends inside {}", bytes_.size(), what);
  }
  Error EndsInside(std::string_view what, std::string_view name) const {
    return EndsInside(fmt::format("{} {}", what, Quoted(name)));
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  UnreadableTensors unreadable_;
  ByteCursor cursor_;
  uint64_t metadata_count_ = 0;
  uint64_t tensor_count_ = 0;
  std::vector<uint64_t> offsets_;  // of each tensor, relative to the data section
  GgufShard shard_;
};

Status GgufParser::ReadHeader() {
  if (bytes_.empty()) return Corrupt("the file is empty, expected a GGUF model");
  char magic[4];
  if (!cursor_.Read(magic)) return EndsInside("the magic number of a GGUF file");
  if (std::memcmp(magic, kMagic, sizeof(magic)) != 0) {
    return Corrupt("not a GGUF file: it starts with {}, expected \"GGUF\"{}",
                   Quoted({magic, sizeof(magic)}), OtherFileHint(bytes_));
  }
  uint32_t version = 0;
  if (!cursor_.Read(version)) return EndsInside("the header");
  // Versions are small, so one whose low half is zero was written in the other byte order.
  if (version != 0 && (version & 0xffffu) == 0) {
    return NotSupported("big-endian GGUF (version {}) is not supported, only little-endian files",
                        __builtin_bswap32(version));
  }
  if (version < kVersionMin || version > kVersionMax) {
    return NotSupported("GGUF version {} is not supported, only versions {} and {}{}", version,
                        kVersionMin, kVersionMax,
                        version == 1 ? "; convert the model again with a current converter" : "");
  }
  shard_.version = version;
  if (!cursor_.Read(tensor_count_) || !cursor_.Read(metadata_count_)) {
    return EndsInside("the header");
  }
  if (metadata_count_ > cursor_.remaining() / kMetadataBytesMin) {
    return Corrupt("the header promises {} metadata entries, more than fit into {} bytes",
                   metadata_count_, bytes_.size());
  }
  if (tensor_count_ > cursor_.remaining() / kTensorInfoBytesMin) {
    return Corrupt("the header promises {} tensors, more than fit into {} bytes", tensor_count_,
                   bytes_.size());
  }
  return {};
}

Status GgufParser::ReadMetadata() {
  shard_.metadata.resize(metadata_count_);
  for (uint64_t i = 0; i < metadata_count_; ++i) {
    auto& [key, value] = shard_.metadata[i];
    KVANT_TRY(ReadKey(i, key));
    KVANT_TRY(ReadValue(key, value));
  }
  NameIndex keys;
  const auto duplicate = keys.Build(shard_.metadata, [](const auto& entry) { return entry.first; });
  if (!duplicate) return {};
  return Corrupt("key {} appears more than once", Quoted(shard_.metadata[duplicate->first].first));
}

Status GgufParser::ReadKey(uint64_t index, std::string_view& key) {
  if (!cursor_.ReadString<uint64_t>(key)) {
    return EndsInside(fmt::format("the key of metadata entry {}", index));
  }
  if (key.empty()) return Corrupt("metadata entry {} has an empty key", index);
  if (key.size() > kKeyBytesMax) {
    return Corrupt("the key of metadata entry {} has {} bytes, expected at most {}", index,
                   key.size(), kKeyBytesMax);
  }
  return {};
}

Status GgufParser::ReadValue(std::string_view key, GgufValue& value) {
  uint32_t type = 0;
  if (!cursor_.Read(type)) return EndsInside("key", key);
  value.type = static_cast<GgufType>(type);
  switch (value.type) {
    case GgufType::kUint8: return ReadNumber<uint8_t, uint64_t>(key, value);
    case GgufType::kInt8: return ReadNumber<int8_t, int64_t>(key, value);
    case GgufType::kUint16: return ReadNumber<uint16_t, uint64_t>(key, value);
    case GgufType::kInt16: return ReadNumber<int16_t, int64_t>(key, value);
    case GgufType::kUint32: return ReadNumber<uint32_t, uint64_t>(key, value);
    case GgufType::kInt32: return ReadNumber<int32_t, int64_t>(key, value);
    case GgufType::kUint64: return ReadNumber<uint64_t, uint64_t>(key, value);
    case GgufType::kInt64: return ReadNumber<int64_t, int64_t>(key, value);
    case GgufType::kFloat32: return ReadNumber<float, double>(key, value);
    case GgufType::kFloat64: return ReadNumber<double, double>(key, value);
    case GgufType::kBool: return ReadBool(key, value);
    case GgufType::kString:
      if (!cursor_.ReadString<uint64_t>(value.value.emplace<std::string_view>())) {
        return EndsInside("the string of key", key);
      }
      return {};
    case GgufType::kArray: return ReadArray(key, value.value.emplace<GgufArray>());
  }
  return Corrupt("key {} has the unknown value type {}", Quoted(key), type);
}

template <class Stored, class Widened>
Status GgufParser::ReadNumber(std::string_view key, GgufValue& value) {
  Stored number{};
  if (!cursor_.Read(number)) return EndsInside("the value of key", key);
  value.value = static_cast<Widened>(number);
  return {};
}

// The specification calls a boolean other than 0 and 1 invalid; others read it as true.
Status GgufParser::ReadBool(std::string_view key, GgufValue& value) {
  uint8_t truth = 0;
  if (!cursor_.Read(truth)) return EndsInside("the value of key", key);
  value.value = truth != 0;
  return {};
}

Status GgufParser::ReadArray(std::string_view key, GgufArray& array) {
  uint32_t type = 0;
  if (!cursor_.Read(type) || !cursor_.Read(array.count)) return EndsInside("the array of key", key);
  array.type = static_cast<GgufType>(type);
  if (array.type == GgufType::kArray) {
    return NotSupported("key {} is an array of arrays, which is not supported", Quoted(key));
  }
  const bool strings = array.type == GgufType::kString;
  // The smallest string is its 64-bit length alone.
  const uint64_t element_bytes_min = strings ? sizeof(uint64_t) : GgufTypeBytes(array.type);
  if (element_bytes_min == 0) {
    return Corrupt("key {} is an array of the unknown value type {}", Quoted(key), type);
  }
  if (array.count > cursor_.remaining() / element_bytes_min) {
    return Corrupt(
        "key {} is an array of {} {} values, more than fit into the {} bytes that remain",
        Quoted(key), array.count, GgufTypeName(array.type), cursor_.remaining());
  }
  if (!strings) {
    array.data = cursor_.Take(array.count * element_bytes_min);
    return {};
  }
  array.strings.resize(array.count);
  for (std::string_view& text : array.strings) {
    if (!cursor_.ReadString<uint64_t>(text)) return EndsInside("the strings of key", key);
  }
  return {};
}

Status GgufParser::FindAlignment() {
  shard_.alignment = kGgufAlignmentDefault;
  const auto entry = std::find_if(shard_.metadata.begin(), shard_.metadata.end(),
                                  [](const auto& pair) { return pair.first == kGgufAlignmentKey; });
  if (entry == shard_.metadata.end()) return {};
  const GgufValue& value = entry->second;
  if (value.type != GgufType::kUint32) {
    return Corrupt("{} is {}, expected uint32", kGgufAlignmentKey, GgufTypeName(value.type));
  }
  shard_.alignment = std::get<uint64_t>(value.value);
  if (GgufAlignmentValid(shard_.alignment)) return {};
  return Corrupt("{} is {}, expected a power of two from {} to {}", kGgufAlignmentKey,
                 shard_.alignment, kGgufAlignmentMin, kGgufAlignmentMax);
}

Status GgufParser::ReadTensorInfos() {
  if (tensor_count_ > cursor_.remaining() / kTensorInfoBytesMin) {
    return Corrupt(
        "the header promises {} tensors, more than fit into the {} bytes after the "
        "metadata",
        tensor_count_, cursor_.remaining());
  }
  shard_.tensors.resize(tensor_count_);
  offsets_.resize(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    KVANT_TRY(ReadTensorInfo(i, shard_.tensors[i], offsets_[i]));
  }
  return {};
}

Status GgufParser::ReadTensorInfo(uint64_t index, GgufTensor& tensor, uint64_t& offset) {
  KVANT_TRY(ReadTensorName(index, tensor.name));
  KVANT_TRY(ReadTensorShape(tensor));
  uint32_t type_id = 0;
  if (!cursor_.Read(type_id) || !cursor_.Read(offset)) {
    return EndsInside("the description of tensor", tensor.name);
  }
  tensor.type = quant::TensorType{type_id};
  tensor.format = quant::FindFormat(tensor.type);
  if (const auto* interleaved = quant::FindInterleavedType(type_id)) {
    return ReadInterleaved(*interleaved, tensor);
  }
  if (tensor.format == nullptr && unreadable_ == UnreadableTensors::kRefused) {
    return UnreadableType(tensor);
  }
  const auto size_bytes = SizeOf(tensor);
  if (!size_bytes.ok()) return Corrupt("{}", size_bytes.error().message);
  tensor.size_bytes = static_cast<uint64_t>(*size_bytes);
  return {};
}

// Rows are interleaved within a matrix, and are to become rows of the plain format.
Status GgufParser::ReadInterleaved(const quant::InterleavedType& type, GgufTensor& tensor) {
  const std::span<const int64_t> dims(tensor.dims, static_cast<size_t>(tensor.n_dims));
  const BlockSize size = {type.name, type.block_values, type.block_bytes, type.head_bytes};
  const auto size_bytes = TensorBytes(tensor.name, size, dims);
  if (!size_bytes.ok()) return Corrupt("{}", size_bytes.error().message);
  const auto plain_bytes = TensorBytes(tensor.name, BlockSizeOf(type.format()), dims);
  if (!plain_bytes.ok()) return Corrupt("{}", plain_bytes.error().message);
  if (tensor.dims[1] % type.rows != 0) {
    return Corrupt("tensor {} of type {} has {} rows, expected a multiple of {}",
                   Quoted(tensor.name), type.name, tensor.dims[1], type.rows);
  }
  tensor.size_bytes = static_cast<uint64_t>(*size_bytes);
  return {};
}

Status GgufParser::ReadTensorName(uint64_t index, std::string_view& name) {
  if (!cursor_.ReadString<uint64_t>(name))
    return EndsInside(fmt::format("the name of tensor {}", index));
  if (name.empty()) return Corrupt("tensor {} has an empty name", index);
  if (name.size() > kTensorNameBytesMax) {
    return Corrupt("the name of tensor {} has {} bytes, expected at most {}", index, name.size(),
                   kTensorNameBytesMax);
  }
  return {};
}

Status GgufParser::ReadTensorShape(GgufTensor& tensor) {
  uint32_t n_dims = 0;
  if (!cursor_.Read(n_dims)) return EndsInside("the description of tensor", tensor.name);
  if (n_dims > uint32_t{kGgufDimsMax}) {
    return Corrupt("tensor {} has {} dimensions, expected at most {}", Quoted(tensor.name), n_dims,
                   kGgufDimsMax);
  }
  tensor.n_dims = static_cast<int>(n_dims);
  for (uint32_t d = 0; d < n_dims; ++d) {
    if (!cursor_.Read(tensor.dims[d])) {
      return EndsInside("the description of tensor", tensor.name);
    }
  }
  return {};
}

Error GgufParser::UnreadableType(const GgufTensor& tensor) const {
  const auto number = static_cast<uint32_t>(tensor.type);
  const char* name = quant::UnsupportedTypeName(number);
  if (name == nullptr) {
    return NotSupported("tensor {} has the unknown type {}", Quoted(tensor.name), number);
  }
  return NotSupported("tensor {} has type {} ({}), which this build cannot read",
                      Quoted(tensor.name), name, number);
}

// The bytes of a tensor, or 0 where its type does not tell them.
Result<int64_t> GgufParser::SizeOf(const GgufTensor& tensor) const {
  const std::span<const int64_t> dims(tensor.dims, static_cast<size_t>(tensor.n_dims));
  if (tensor.format != nullptr) return TensorBytes(tensor.name, BlockSizeOf(*tensor.format), dims);
  const auto* type = quant::FindUnsupportedType(static_cast<uint32_t>(tensor.type));
  if (type != nullptr && type->block_values != 0) {
    return TensorBytes(tensor.name, {type->name, type->block_values, type->block_bytes}, dims);
  }
  KVANT_TRY(TensorValues(tensor.name, dims));
  return 0;
}

// A tensor whose type does not tell its size reaches to the next one, or to the end of the file.
Status GgufParser::MeasureUnknownTypes() {
  const auto is_unknown = [](const GgufTensor& tensor) {
    return tensor.size_bytes == 0 && tensor.n_values() > 0;
  };
  if (std::none_of(shard_.tensors.begin(), shard_.tensors.end(), is_unknown)) return {};
  std::vector<uint64_t> begins = offsets_;
  const uint64_t data_begin = RoundUp(cursor_.position(), shard_.alignment);
  begins.push_back(bytes_.size() - std::min<uint64_t>(data_begin, bytes_.size()));
  std::sort(begins.begin(), begins.end());
  for (size_t i = 0; i < shard_.tensors.size(); ++i) {
    GgufTensor& tensor = shard_.tensors[i];
    if (!is_unknown(tensor)) continue;
    const auto [own, next] = std::equal_range(begins.begin(), begins.end(), offsets_[i]);
    if (next == begins.end() || next - own > 1) {
      return Corrupt("tensor {} of the unknown type {} has no bytes at offset {}",
                     Quoted(tensor.name), static_cast<uint32_t>(tensor.type), offsets_[i]);
    }
    tensor.size_bytes = *next - offsets_[i];
    if (tensor.n_values() / kValuesPerByteMax > static_cast<int64_t>(tensor.size_bytes)) {
      return Corrupt(
          "tensor {} of the unknown type {} has {} values, more than fit into its {} bytes",
          Quoted(tensor.name), static_cast<uint32_t>(tensor.type), tensor.n_values(),
          tensor.size_bytes);
    }
  }
  return {};
}

// A fork wrote groups of 128 values under the type of Q2_0, which has 64: such a tensor is told by
// its extent, which is that of the groups and no more than the alignment adds.
Status GgufParser::CheckOldBlocks() const {
  constexpr int64_t kOldValues = 128;
  constexpr int64_t kOldBytes = 34;
  const auto is_q2_0 = [](const GgufTensor& tensor) {
    return tensor.type == quant::Q2_0::kType && tensor.dims[0] % kOldValues == 0;
  };
  if (std::ranges::none_of(shard_.tensors, is_q2_0)) return {};
  std::vector<uint64_t> begins = offsets_;
  const uint64_t data_begin = RoundUp(cursor_.position(), shard_.alignment);
  begins.push_back(bytes_.size() - std::min<uint64_t>(data_begin, bytes_.size()));
  std::ranges::sort(begins);
  for (size_t i = 0; i < shard_.tensors.size(); ++i) {
    const GgufTensor& tensor = shard_.tensors[i];
    const auto next = std::ranges::upper_bound(begins, offsets_[i]);
    if (!is_q2_0(tensor) || next == begins.end()) continue;
    const uint64_t extent = *next - offsets_[i];
    const auto old = static_cast<uint64_t>(tensor.n_values() / kOldValues * kOldBytes);
    const bool fits = old <= extent && extent <= RoundUp(old, shard_.alignment);
    if (extent >= tensor.size_bytes || !fits) continue;
    return NotSupported(
        "tensor {} has type {} ({}) and the extent of groups of {} values, as a fork wrote them, "
        "{} bytes; groups have {} values, which makes {} bytes: convert the original model",
        Quoted(tensor.name), quant::Q2_0::kName, static_cast<uint32_t>(tensor.type), kOldValues,
        extent, quant::Q2_0::kBlockValues, tensor.size_bytes);
  }
  return {};
}

Status GgufParser::PlaceTensors() {
  // Neither sum can overflow: positions are at most the file's size, alignments at most 2^16.
  const uint64_t data_begin = RoundUp(cursor_.position(), shard_.alignment);
  const uint64_t data_bytes = bytes_.size() - std::min<uint64_t>(data_begin, bytes_.size());
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    GgufTensor& tensor = shard_.tensors[i];
    const uint64_t offset = offsets_[i];
    if (offset % shard_.alignment != 0) {
      return Corrupt("tensor {} begins at offset {}, expected a multiple of the alignment {}",
                     Quoted(tensor.name), offset, shard_.alignment);
    }
    if (offset > data_bytes || tensor.size_bytes > data_bytes - offset) {
      return Corrupt(
          "tensor {} has {} bytes at offset {}, beyond the {} bytes of tensor data "
          "in the file: is it complete?",
          Quoted(tensor.name), tensor.size_bytes, offset, data_bytes);
    }
    // A file may end before the data of tensors without elements would begin.
    tensor.data = bytes_.data() + std::min<uint64_t>(data_begin + offset, bytes_.size());
  }
  return {};
}

Status GgufParser::CheckOverlaps() {
  std::vector<const GgufTensor*> sorted;
  sorted.reserve(shard_.tensors.size());
  for (const GgufTensor& tensor : shard_.tensors) {
    if (tensor.size_bytes > 0) sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(), [](const GgufTensor* left, const GgufTensor* right) {
    return left->data < right->data;
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1]->data + sorted[i - 1]->size_bytes > sorted[i]->data) {
      return Corrupt("tensors {} and {} overlap", Quoted(sorted[i - 1]->name),
                     Quoted(sorted[i]->name));
    }
  }
  return {};
}

}  // namespace

Result<GgufShard> ParseGgufShard(std::span<const std::byte> bytes, const std::string& file,
                                 UnreadableTensors unreadable) {
  return GgufParser(bytes, file, unreadable).Parse();
}

}  // namespace kvant::formats
