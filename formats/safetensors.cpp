// Checks one file: that the header fits the file, each tensor the data, and all tensors each other.
// safetensors_folder.cpp checks folders in the same way.
#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/result.h"
#include "formats/json.h"
#include "formats/other_files.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read in the host's order");

// The reference implementation's limit.
constexpr uint64_t kHeaderBytesMax = 100'000'000;

constexpr size_t kSafetensorsDimsMax = 8;

constexpr std::string_view kMetadataKey = "__metadata__";

// The specification's types of whole bytes. Types of 4 and 6 bits have no place in this table; they
// are refused like unknown ones.
constexpr SafetensorsType kTypes[] = {
    {"F64", 8},     {"F32", 4},     {"F16", 2},     {"BF16", 2}, {"I64", 8}, {"I32", 4},
    {"I16", 2},     {"I8", 1},      {"U64", 8},     {"U32", 4},  {"U16", 2}, {"U8", 1},
    {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"C64", 8},  {"BOOL", 1}};

std::string KnownTypes() {
  std::string names;
  for (const SafetensorsType& type : kTypes) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  }
  return names;
}

class SafetensorsParser {
 public:
  SafetensorsParser(std::span<const std::byte> bytes, const std::string& file)
      : bytes_(bytes), file_(file) {}

  Result<std::vector<SafetensorsTensor>> Parse() {
    KVANT_ASSIGN(const Json header, ReadHeader());
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadataKey) {
        KVANT_TRY(CheckMetadata(entry));
      } else {
        KVANT_TRY(AddTensor(name, entry));
      }
    }
    KVANT_TRY(CheckCoverage());
    return std::move(tensors_);
  }

 private:
  Result<Json> ReadHeader();
  Status CheckMetadata(const Json& metadata) const;
  Status AddTensor(const std::string& name, const Json& entry);
  Status ReadShape(const Json& shape, SafetensorsTensor& tensor) const;
  Status ReadOffsets(const Json& offsets, SafetensorsTensor& tensor) const;
  Status CheckCoverage();

  template <class... Args>
  Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kCorrupt, "{}: {}", file_,
                     fmt::format(format, std::forward<Args>(args)...));
  }
  uint64_t Begin(const SafetensorsTensor& tensor) const {
    return static_cast<uint64_t>(tensor.data - data_.data());
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::span<const std::byte> data_;
  std::vector<SafetensorsTensor> tensors_;
};

Result<Json> SafetensorsParser::ReadHeader() {
  uint64_t header_bytes = 0;
  if (bytes_.size() < sizeof(header_bytes)) {
    return Corrupt("the file of {} bytes ends inside the length of the header", bytes_.size());
  }
  std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
  if (header_bytes > kHeaderBytesMax) {
    return Corrupt("not a safetensors file: its header would have {} bytes, expected at most {}{}",
                   header_bytes, kHeaderBytesMax, OtherFileHint(bytes_));
  }
  const uint64_t remaining = bytes_.size() - sizeof(header_bytes);
  if (header_bytes > remaining) {
    return Corrupt("the file of {} bytes ends inside its header of {} bytes", bytes_.size(),
                   header_bytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + sizeof(header_bytes),
                              header_bytes);
  data_ = bytes_.subspan(sizeof(header_bytes) + header_bytes);
  if (!text.starts_with('{')) {
    return Corrupt("not a safetensors file: its header starts with {}, expected \"{{\"",
                   Quoted(text.substr(0, 1)));
  }
  return ParseJson(text, file_);
}

Status SafetensorsParser::CheckMetadata(const Json& metadata) const {
  if (metadata.is_null()) return {};  // as some writers have it
  if (!metadata.is_object()) return Corrupt("{} is no object of strings", kMetadataKey);
  for (const auto& [key, value] : metadata.items()) {
    if (value.is_string()) continue;
    return Corrupt("{}: the value of {} is {}, expected a string", kMetadataKey, Quoted(key),
                   value.type_name());
  }
  return {};
}

Status SafetensorsParser::AddTensor(const std::string& name, const Json& entry) {
  SafetensorsTensor tensor;
  tensor.name = name;
  if (name.empty()) return Corrupt("a tensor has an empty name");
  const bool complete = entry.is_object() && entry.contains("dtype") && entry.contains("shape") &&
                        entry.contains("data_offsets");
  if (!complete) {
    return Corrupt("tensor {}: expected an object of dtype, shape and data_offsets, found {}",
                   Quoted(name), Shown(entry));
  }
  const Json& type = entry["dtype"];
  if (!type.is_string()) {
    return Corrupt("tensor {}: dtype is {}, expected a string", Quoted(name), Shown(type));
  }
  tensor.type = FindSafetensorsType(type.get_ref<const std::string&>());
  if (tensor.type == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "{}: tensor {}: unknown dtype {} (known: {})", file_,
                     Quoted(name), Shown(type), KnownTypes());
  }
  KVANT_TRY(ReadShape(entry["shape"], tensor));
  KVANT_TRY(ReadOffsets(entry["data_offsets"], tensor));
  tensors_.push_back(std::move(tensor));
  return {};
}

// Sets shape and size_bytes.
Status SafetensorsParser::ReadShape(const Json& shape, SafetensorsTensor& tensor) const {
  if (!shape.is_array()) {
    return Corrupt("tensor {}: shape is {}, expected an array", Quoted(tensor.name), Shown(shape));
  }
  if (shape.size() > kSafetensorsDimsMax) {
    return Corrupt("tensor {}: shape has {} dimensions, expected at most {}", Quoted(tensor.name),
                   shape.size(), kSafetensorsDimsMax);
  }
  int64_t bytes = tensor.type->bytes;
  for (const Json& dim : shape) {
    const bool valid = dim.is_number_unsigned() &&
                       dim.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
    if (!valid) {
      return Corrupt("tensor {}: a dimension is {}, expected a whole number", Quoted(tensor.name),
                     Shown(dim));
    }
    tensor.shape.push_back(dim.get<int64_t>());
    if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) {
      return Corrupt("tensor {}: shape {} has more than 2^63 - 1 bytes", Quoted(tensor.name),
                     Shown(shape));
    }
  }
  tensor.size_bytes = static_cast<uint64_t>(bytes);
  return {};
}

Status SafetensorsParser::ReadOffsets(const Json& offsets, SafetensorsTensor& tensor) const {
  const bool pair = offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
                    offsets[1].is_number_unsigned();
  if (!pair) {
    return Corrupt("tensor {}: data_offsets is {}, expected [begin, end]", Quoted(tensor.name),
                   Shown(offsets));
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end) {
    return Corrupt("tensor {}: data_offsets begin at {} and end before that, at {}",
                   Quoted(tensor.name), begin, end);
  }
  if (end > data_.size()) {
    return Corrupt("tensor {}: data ends at byte {}, but the file has only {} bytes of data",
                   Quoted(tensor.name), end, data_.size());
  }
  if (end - begin != tensor.size_bytes) {
    return Corrupt("tensor {}: data_offsets give {} bytes, but its shape and {} make {}",
                   Quoted(tensor.name), end - begin, tensor.type->name, tensor.size_bytes);
  }
  tensor.data = data_.data() + begin;
  return {};
}

// Sorts the tensors by their place; they must follow each other from the first byte to the last.
Status SafetensorsParser::CheckCoverage() {
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& left, const auto& right) {
    return std::tie(left.data, left.size_bytes, left.name) <
           std::tie(right.data, right.size_bytes, right.name);
  });
  uint64_t end = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t begin = Begin(tensors_[i]);
    if (begin < end) {
      return Corrupt("tensors {} and {} overlap", Quoted(tensors_[i - 1].name),
                     Quoted(tensors_[i].name));
    }
    if (begin > end) {
      return Corrupt("bytes {} to {} of the data, before tensor {}, belong to no tensor", end,
                     begin, Quoted(tensors_[i].name));
    }
    end = begin + tensors_[i].size_bytes;
  }
  if (end != data_.size()) {
    return Corrupt("bytes {} to {} of the data, after the last tensor, belong to no tensor", end,
                   data_.size());
  }
  return {};
}

}  // namespace

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const SafetensorsType& row) { return row.name == name; });
  return type == std::end(kTypes) ? nullptr : type;
}

Result<SafetensorsModel> SafetensorsModel::OpenFile(const std::string& path, FileAccess access) {
  SafetensorsModel model;
  KVANT_TRY(model.AddMapped(path, access));
  KVANT_TRY(model.BuildIndex());
  return model;
}

Result<SafetensorsModel> SafetensorsModel::Parse(std::span<const std::byte> bytes,
                                                 const std::string& name) {
  SafetensorsModel model;
  KVANT_TRY(model.AddFile(bytes, name));
  KVANT_TRY(model.BuildIndex());
  return model;
}

Result<SafetensorsModel> SafetensorsModel::FromTensors(std::vector<SafetensorsTensor> tensors,
                                                       const std::string& file) {
  SafetensorsModel model;
  model.tensors_ = std::move(tensors);
  for (SafetensorsTensor& tensor : model.tensors_) tensor.file = 0;
  model.files_.push_back(file);
  KVANT_TRY(model.BuildIndex());
  return model;
}

Status SafetensorsModel::AddMapped(const std::string& path, FileAccess access) {
  KVANT_ASSIGN(MappedFile mapping, MappedFile::Open(path, access));
  mappings_.push_back(std::move(mapping));
  return AddFile(mappings_.back().bytes(), path);
}

Status SafetensorsModel::AddFile(std::span<const std::byte> bytes, const std::string& path) {
  KVANT_ASSIGN(std::vector<SafetensorsTensor> tensors, SafetensorsParser(bytes, path).Parse());
  for (SafetensorsTensor& tensor : tensors) {
    tensor.file = static_cast<int>(files_.size());
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(path);
  return {};
}

Status SafetensorsModel::BuildIndex() {
  const auto duplicate =
      index_.Build(tensors_, [](const auto& tensor) { return std::string_view(tensor.name); });
  if (!duplicate) return {};
  const SafetensorsTensor& first = tensors_[duplicate->first];
  const SafetensorsTensor& second = tensors_[duplicate->second];
  return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is in {} already", FileOf(second),
                   Quoted(second.name), FileOf(first));
}

const SafetensorsTensor* SafetensorsModel::Find(std::string_view name) const {
  const auto position = index_.Find(name);
  return position ? &tensors_[*position] : nullptr;
}

}  // namespace kvant::formats
