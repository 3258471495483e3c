#include "engine/arch/metadata.h"

#include <cmath>
#include <cstring>

#include "base/result.h"

namespace kvant::arch {

using formats::GgufArray;
using formats::GgufType;
using formats::GgufValue;

std::string Metadata::Key(std::string_view name) const {
  if (!asked_.contains(name)) asked_.emplace(name);
  return fmt::format("{}.{}", arch_, name);
}

Error Metadata::Missing(std::string_view name) const {
  return MakeError(ErrorCode::kCorrupt, "{}: key {} is missing", file_.path(), Key(name));
}

Result<int64_t> Metadata::Count(std::string_view name, uint32_t max) const {
  KVANT_ASSIGN(const int64_t value, CountOr(name, max, 0));
  if (value == 0) return Missing(name);
  return value;
}

Result<int64_t> Metadata::CountOr(std::string_view name, uint32_t max, int64_t otherwise) const {
  KVANT_ASSIGN(const std::optional<uint32_t> value, file_.GetU32(Key(name)));
  if (!value.has_value() || (*value == 0 && otherwise == 0)) return otherwise;
  KVANT_TRY(CheckRange(name, *value, max));
  return int64_t{*value};
}

// Whether an array has as many entries as the model has layers, layers that are left out included.
bool Metadata::HasOnePerLayer(uint64_t count, size_t layers) const {
  if (count == layers) return true;
  const auto all = file_.GetU32(Key("block_count"));
  return all.ok() && all->has_value() && count == **all && count > layers;
}

Result<std::vector<int64_t>> Metadata::CountPerLayer(std::string_view name, size_t layers,
                                                     uint32_t max,
                                                     std::vector<int64_t> otherwise) const {
  if (Has(name)) return NumbersPerLayer(name, layers, 1, max);
  if (otherwise.empty()) return Missing(name);
  return otherwise;
}

Result<std::vector<int64_t>> Metadata::CountOrNonePerLayer(std::string_view name, size_t layers,
                                                           uint32_t max) const {
  if (!Has(name)) return Missing(name);
  return NumbersPerLayer(name, layers, 0, max);
}

Result<std::vector<int64_t>> Metadata::NumbersPerLayer(std::string_view name, size_t layers,
                                                       uint32_t min, uint32_t max) const {
  const std::string key = Key(name);
  const GgufValue* value = file_.Find(key);
  if (value->type != GgufType::kArray) {
    KVANT_ASSIGN(const int64_t number, Count(name, max));
    return std::vector<int64_t>(layers, number);
  }
  const auto& array = std::get<GgufArray>(value->value);
  const bool integers = array.type == GgufType::kInt32 || array.type == GgufType::kUint32;
  if (!integers || !HasOnePerLayer(array.count, layers)) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} 32-bit integers, found {} of {}",
                     file_.path(), key, layers, array.count, formats::GgufTypeName(array.type));
  }
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < layers; ++i) {
    uint32_t number = 0;
    std::memcpy(&number, array.data + i * sizeof number, sizeof number);
    if (number != 0 || min > 0) KVANT_TRY(CheckRange(name, number, max));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::optional<std::vector<bool>>> Metadata::FlagPerLayer(std::string_view name,
                                                                size_t layers) const {
  const std::string key = Key(name);
  const GgufValue* value = file_.Find(key);
  const bool number = value != nullptr && (std::holds_alternative<uint64_t>(value->value) ||
                                           std::holds_alternative<int64_t>(value->value));
  if (value == nullptr || number) return std::optional<std::vector<bool>>();
  if (value->type != GgufType::kArray) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} booleans, found {}",
                     file_.path(), key, layers, formats::GgufTypeName(value->type));
  }
  const auto& array = std::get<GgufArray>(value->value);
  // Files of MiMo V2 have the integers of config.json, 0 and 1.
  const bool integers = array.type == GgufType::kInt32 || array.type == GgufType::kUint32;
  if ((array.type != GgufType::kBool && !integers) || !HasOnePerLayer(array.count, layers)) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} booleans, found {} of {}",
                     file_.path(), key, layers, array.count, formats::GgufTypeName(array.type));
  }
  std::vector<bool> flags;
  for (size_t i = 0; i < layers; ++i) {
    uint32_t flag = 0;
    if (integers) {
      std::memcpy(&flag, array.data + i * sizeof flag, sizeof flag);
    } else {
      flag = array.data[i] != std::byte{0} ? 1 : 0;
    }
    if (flag > 1) {
      return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected 0 or 1 for each layer, found {}",
                       file_.path(), key, flag);
    }
    flags.push_back(flag == 1);
  }
  return std::optional(std::move(flags));
}

Result<std::vector<float>> Metadata::NumberPerLayer(std::string_view name, size_t layers) const {
  return FloatsPerLayer(Key(name), layers);
}

Result<std::vector<float>> Metadata::WholeKeyPerLayer(std::string_view key, size_t layers) const {
  asked_whole_.emplace(key);
  return FloatsPerLayer(std::string(key), layers);
}

Result<std::vector<float>> Metadata::FloatsPerLayer(const std::string& key, size_t layers) const {
  const GgufValue* value = file_.Find(key);
  if (value == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {} is missing", file_.path(), key);
  }
  std::vector<float> numbers(layers);
  if (value->type != GgufType::kArray) {
    KVANT_ASSIGN(const std::optional<float> number, file_.GetF32(key));
    numbers.assign(layers, number.value_or(0));
  } else {
    const auto& array = std::get<GgufArray>(value->value);
    if (array.type != GgufType::kFloat32 || !HasOnePerLayer(array.count, layers)) {
      return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} 32-bit floats, found {} of {}",
                       file_.path(), key, layers, array.count, formats::GgufTypeName(array.type));
    }
    std::memcpy(numbers.data(), array.data, layers * sizeof(float));
  }
  for (const float number : numbers) {
    if (std::isfinite(number)) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected finite numbers, found {}",
                     file_.path(), key, number);
  }
  return numbers;
}

Result<float> Metadata::PositiveOr(std::string_view name, float otherwise) const {
  KVANT_ASSIGN(const std::optional<float> value, file_.GetF32(Key(name)));
  if (!value.has_value()) return otherwise;
  if (!std::isfinite(*value) || *value <= 0) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a positive number, found {}",
                     file_.path(), Key(name), *value);
  }
  return *value;
}

Result<float> Metadata::Positive(std::string_view name) const {
  if (!Has(name)) return Missing(name);
  return PositiveOr(name, 0);
}

Status Metadata::CheckRange(std::string_view name, uint32_t value, uint32_t max) const {
  if (value >= 1 && value <= max) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected 1 to {}, found {}", file_.path(),
                   Key(name), max, value);
}

}  // namespace kvant::arch
