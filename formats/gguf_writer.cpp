// Keeps metadata in file form and tensor descriptions until Begin, then streams.
#include "formats/gguf_writer.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "formats/gguf_limits.h"
#include "formats/gguf_value.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is written in the host's order");

constexpr uint32_t kVersion = 3;

// More than any disk; a multiple of every alignment, so that rounded offsets stay within it.
constexpr uint64_t kDataBytesMax = uint64_t{1} << 62;

using Bytes = std::vector<std::byte>;

void AppendBytes(Bytes& bytes, const void* data, size_t size) {
  if (size == 0) return;
  bytes.resize(bytes.size() + size);
  std::memcpy(bytes.data() + bytes.size() - size, data, size);
}

template <class T>
void AppendNumber(Bytes& bytes, T number) {
  AppendBytes(bytes, &number, sizeof(number));
}

void AppendString(Bytes& bytes, std::string_view text) {
  AppendNumber(bytes, uint64_t{text.size()});
  AppendBytes(bytes, text.data(), text.size());
}

// A type id, then a number of that type.
template <class T>
Bytes NumberValue(GgufType type, T number) {
  Bytes bytes;
  AppendNumber(bytes, type);
  AppendNumber(bytes, number);
  return bytes;
}

// The type id of arrays, then the type and number of the elements; the elements follow.
Bytes ArrayValue(GgufType element, uint64_t count) {
  Bytes bytes;
  AppendNumber(bytes, GgufType::kArray);
  AppendNumber(bytes, element);
  AppendNumber(bytes, count);
  return bytes;
}

template <class T>
Bytes NumbersValue(GgufType element, const std::vector<T>& numbers) {
  Bytes bytes = ArrayValue(element, numbers.size());
  AppendBytes(bytes, numbers.data(), numbers.size() * sizeof(T));
  return bytes;
}

template <class Strings>
Bytes StringsValue(const Strings& strings) {
  Bytes bytes = ArrayValue(GgufType::kString, strings.size());
  for (const auto& text : strings) AppendString(bytes, text);
  return bytes;
}

Bytes StringValue(std::string_view text) {
  Bytes bytes;
  AppendNumber(bytes, GgufType::kString);
  AppendString(bytes, text);
  return bytes;
}

// A value that was read from a file, back in file form.
Bytes CopiedValue(const GgufValue& value) {
  const auto as_unsigned = [&] { return std::get<uint64_t>(value.value); };
  const auto as_signed = [&] { return std::get<int64_t>(value.value); };
  const auto as_float = [&] { return std::get<double>(value.value); };
  const GgufType type = value.type;
  switch (type) {
    case GgufType::kUint8: return NumberValue(type, static_cast<uint8_t>(as_unsigned()));
    case GgufType::kInt8: return NumberValue(type, static_cast<int8_t>(as_signed()));
    case GgufType::kUint16: return NumberValue(type, static_cast<uint16_t>(as_unsigned()));
    case GgufType::kInt16: return NumberValue(type, static_cast<int16_t>(as_signed()));
    case GgufType::kUint32: return NumberValue(type, static_cast<uint32_t>(as_unsigned()));
    case GgufType::kInt32: return NumberValue(type, static_cast<int32_t>(as_signed()));
    case GgufType::kUint64: return NumberValue(type, as_unsigned());
    case GgufType::kInt64: return NumberValue(type, as_signed());
    case GgufType::kFloat32: return NumberValue(type, static_cast<float>(as_float()));
    case GgufType::kFloat64: return NumberValue(type, as_float());
    case GgufType::kBool: return NumberValue(type, uint8_t{std::get<bool>(value.value)});
    case GgufType::kString: return StringValue(std::get<std::string_view>(value.value));
    case GgufType::kArray: break;
  }
  const auto& array = std::get<GgufArray>(value.value);
  if (array.type == GgufType::kString) return StringsValue(array.strings);
  Bytes bytes = ArrayValue(array.type, array.count);
  AppendBytes(bytes, array.data, array.count * GgufTypeBytes(array.type));
  return bytes;
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  if (alignment == kGgufAlignmentDefault) return;
  Put(std::string(kGgufAlignmentKey), NumberValue(GgufType::kUint32, alignment));
}

void GgufWriter::AddU32(std::string key, uint32_t value) {
  Add(std::move(key), NumberValue(GgufType::kUint32, value));
}
void GgufWriter::AddI32(std::string key, int32_t value) {
  Add(std::move(key), NumberValue(GgufType::kInt32, value));
}
void GgufWriter::AddU64(std::string key, uint64_t value) {
  Add(std::move(key), NumberValue(GgufType::kUint64, value));
}
void GgufWriter::AddF32(std::string key, float value) {
  Add(std::move(key), NumberValue(GgufType::kFloat32, value));
}
void GgufWriter::AddBool(std::string key, bool value) {
  Add(std::move(key), NumberValue(GgufType::kBool, uint8_t{value}));
}
void GgufWriter::AddString(std::string key, std::string_view value) {
  Add(std::move(key), StringValue(value));
}
void GgufWriter::AddStrings(std::string key, const std::vector<std::string>& values) {
  Add(std::move(key), StringsValue(values));
}
void GgufWriter::AddF32s(std::string key, const std::vector<float>& values) {
  Add(std::move(key), NumbersValue(GgufType::kFloat32, values));
}
void GgufWriter::AddI32s(std::string key, const std::vector<int32_t>& values) {
  Add(std::move(key), NumbersValue(GgufType::kInt32, values));
}
void GgufWriter::AddU64s(std::string key, const std::vector<uint64_t>& values) {
  Add(std::move(key), NumbersValue(GgufType::kUint64, values));
}
void GgufWriter::AddBools(std::string key, const std::vector<bool>& values) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  Add(std::move(key), NumbersValue(GgufType::kBool, bytes));
}
void GgufWriter::AddU8s(std::string key, const std::vector<uint8_t>& values) {
  Add(std::move(key), NumbersValue(GgufType::kUint8, values));
}
void GgufWriter::AddValue(std::string key, const GgufValue& value) {
  Add(std::move(key), CopiedValue(value));
}

void GgufWriter::Add(std::string key, std::vector<std::byte> bytes) {
  if (key != kGgufAlignmentKey) Put(std::move(key), std::move(bytes));
}

void GgufWriter::Put(std::string key, std::vector<std::byte> bytes) {
  const auto [entry, is_new] = entry_of_key_.emplace(key, entries_.size());
  if (is_new) {
    entries_.push_back({std::move(key), std::move(bytes)});
  } else {
    entries_[entry->second].bytes = std::move(bytes);
  }
}

void GgufWriter::Remove(std::string_view key) {
  const auto entry = entry_of_key_.find(key);
  if (entry == entry_of_key_.end() || key == kGgufAlignmentKey) return;
  entries_[entry->second] = {};
  entry_of_key_.erase(entry);
}

Status GgufWriter::AddTensor(std::string name, const quant::FormatTraits& format,
                             std::span<const int64_t> dims) {
  if (name.empty() || name.size() > kTensorNameBytesMax) {
    return MakeError(ErrorCode::kInvalid,
                     "the name of tensor {} ({}) has {} bytes, expected 1 to {}", tensors_.size(),
                     Quoted(name), name.size(), kTensorNameBytesMax);
  }
  KVANT_ASSIGN(const int64_t size_bytes, TensorBytes(name, BlockSizeOf(format), dims));
  return Add(Tensor{.name = std::move(name),
                    .type = format.type,
                    .dims = {dims.begin(), dims.end()},
                    .size_bytes = static_cast<uint64_t>(size_bytes)});
}

Status GgufWriter::AddTensor(const GgufTensor& tensor) {
  return Add(Tensor{.name = std::string(tensor.name),
                    .type = tensor.type,
                    .dims = {tensor.dims, tensor.dims + tensor.n_dims},
                    .size_bytes = tensor.size_bytes});
}

Status GgufWriter::Add(Tensor tensor) {
  if (!tensor_names_.insert(tensor.name).second) {
    return MakeError(ErrorCode::kInvalid, "tensor {} is added twice", Quoted(tensor.name));
  }
  tensors_.push_back(std::move(tensor));
  return {};
}

Status GgufWriter::CheckMetadata() const {
  if (!GgufAlignmentValid(alignment_)) {
    return MakeError(ErrorCode::kInvalid,
                     "the alignment is {}, expected a power of two from {} to "
                     "{}",
                     alignment_, kGgufAlignmentMin, kGgufAlignmentMax);
  }
  for (const auto& [key, entry] : entry_of_key_) {
    if (key.empty() || key.size() > kKeyBytesMax) {
      return MakeError(ErrorCode::kInvalid, "key {} has {} bytes, expected 1 to {}", Quoted(key),
                       key.size(), kKeyBytesMax);
    }
  }
  return {};
}

Status GgufWriter::PlaceTensors() {
  uint64_t offset = 0;
  for (Tensor& tensor : tensors_) {
    if (tensor.size_bytes > kDataBytesMax - offset) {
      return MakeError(ErrorCode::kInvalid, "the tensors up to {} exceed {} bytes",
                       Quoted(tensor.name), kDataBytesMax);
    }
    tensor.offset = offset;
    offset = RoundUp(offset + tensor.size_bytes, alignment_);
  }
  return {};
}

// Everything before the tensor data, its padding excepted.
std::vector<std::byte> GgufWriter::Preamble() const {
  Bytes bytes;
  AppendBytes(bytes, "GGUF", 4);
  AppendNumber(bytes, kVersion);
  AppendNumber(bytes, uint64_t{tensors_.size()});
  AppendNumber(bytes, uint64_t{entry_of_key_.size()});
  for (const Entry& entry : entries_) {
    if (entry.bytes.empty()) continue;
    AppendString(bytes, entry.key);
    AppendBytes(bytes, entry.bytes.data(), entry.bytes.size());
  }
  for (const Tensor& tensor : tensors_) {
    AppendString(bytes, tensor.name);
    AppendNumber(bytes, static_cast<uint32_t>(tensor.dims.size()));
    for (const int64_t size : tensor.dims) AppendNumber(bytes, size);
    AppendNumber(bytes, tensor.type);
    AppendNumber(bytes, tensor.offset);
  }
  return bytes;
}

Result<uint64_t> GgufWriter::FileBytes() {
  KVANT_TRY(CheckMetadata());
  KVANT_TRY(PlaceTensors());
  const uint64_t begin = RoundUp(Preamble().size(), alignment_);
  if (tensors_.empty()) return begin;
  const Tensor& last = tensors_.back();
  return begin + RoundUp(last.offset + last.size_bytes, alignment_);
}

Status GgufWriter::Begin(const std::string& path) {
  KVANT_CHECK(path_.empty());
  KVANT_TRY(CheckMetadata());
  KVANT_TRY(PlaceTensors());
  KVANT_ASSIGN(file_, OutputFile::Create(path));
  path_ = path;
  KVANT_TRY(file_.Write(Preamble()));
  KVANT_TRY(Pad());
  data_begin_ = file_.position();
  return {};
}

Status GgufWriter::Reserve() {
  KVANT_CHECK(!path_.empty() && next_tensor_ == 0);
  next_tensor_ = tensors_.size();
  if (tensors_.empty()) return {};
  const Tensor& last = tensors_.back();
  return file_.Reserve(data_begin_ + RoundUp(last.offset + last.size_bytes, alignment_));
}

Status GgufWriter::WritePiece(size_t tensor, uint64_t offset,
                              std::span<const std::byte> bytes) const {
  KVANT_CHECK(tensor < tensors_.size());
  const uint64_t tensor_begin = data_begin_ + tensors_[tensor].offset;
  const uint64_t tensor_bytes = tensors_[tensor].size_bytes;
  KVANT_TRY(file_.WriteAt(tensor_begin + offset, bytes));
  if (offset + bytes.size() < tensor_bytes) return {};
  const std::vector<std::byte> zeros(RoundUp(tensor_bytes, alignment_) - tensor_bytes);
  return file_.WriteAt(tensor_begin + tensor_bytes, zeros);
}

Status GgufWriter::WriteTensor(std::span<const std::byte> bytes) {
  KVANT_CHECK(!path_.empty());
  if (next_tensor_ == tensors_.size()) {
    return MakeError(ErrorCode::kInvalid, "{}: all {} tensors are written already", path_,
                     tensors_.size());
  }
  const Tensor& tensor = tensors_[next_tensor_];
  if (bytes.size() != tensor.size_bytes) {
    return MakeError(ErrorCode::kInvalid, "{}: tensor {} has {} bytes, but {} were given", path_,
                     Quoted(tensor.name), tensor.size_bytes, bytes.size());
  }
  return WriteRest(bytes);
}

Status GgufWriter::WriteRest(std::span<const std::byte> bytes) {
  KVANT_CHECK(!path_.empty() && next_tensor_ < tensors_.size());
  const Tensor& tensor = tensors_[next_tensor_];
  next_byte_ += bytes.size();
  if (next_byte_ > tensor.size_bytes) {
    return MakeError(ErrorCode::kInvalid, "{}: tensor {} has {} bytes, but {} were given", path_,
                     Quoted(tensor.name), tensor.size_bytes, next_byte_);
  }
  KVANT_TRY(file_.Write(bytes));
  if (next_byte_ < tensor.size_bytes) return {};
  ++next_tensor_;
  next_byte_ = 0;
  return Pad();
}

Status GgufWriter::Finish() {
  KVANT_CHECK(!path_.empty());
  if (next_tensor_ != tensors_.size()) {
    return MakeError(ErrorCode::kInvalid, "{}: only {} of {} tensors are written", path_,
                     next_tensor_, tensors_.size());
  }
  return file_.Commit();
}

// Zeros up to the next multiple of the alignment, after the last tensor too, as other readers
// expect.
Status GgufWriter::Pad() {
  const std::vector<std::byte> zeros(RoundUp(file_.position(), alignment_) - file_.position());
  return file_.Write(zeros);
}

}  // namespace kvant::formats
