// Names, sizes and checked conversions of GGUF metadata values.
#include "formats/gguf_value.h"

#include <cmath>
#include <limits>

#include "base/result.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

// A value in the words of a message: "an array of 3 string values", "uint32".
std::string Describe(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.value);
  if (array == nullptr) return GgufTypeName(value.type);
  return fmt::format("an array of {} {} values", array->count, GgufTypeName(array->type));
}

Error WrongType(const std::string& file, std::string_view key, std::string_view expected,
                const GgufValue& value) {
  return MakeError(ErrorCode::kCorrupt, "{}: key {} is {}, expected {}", file, Quoted(key),
                   Describe(value), expected);
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kUint8: return "uint8";
    case GgufType::kInt8: return "int8";
    case GgufType::kUint16: return "uint16";
    case GgufType::kInt16: return "int16";
    case GgufType::kUint32: return "uint32";
    case GgufType::kInt32: return "int32";
    case GgufType::kFloat32: return "float32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kUint64: return "uint64";
    case GgufType::kInt64: return "int64";
    case GgufType::kFloat64: return "float64";
  }
  return "unknown";
}

uint64_t GgufTypeBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool: return 1;
    case GgufType::kUint16:
    case GgufType::kInt16: return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32: return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

Result<std::optional<uint32_t>> ValueAsU32(const std::string& file, std::string_view key,
                                           const GgufValue* value) {
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  const auto out_of_range = [&](auto number) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {} is {}, expected 0 to {}", file, Quoted(key),
                     number, kMax);
  };
  if (value == nullptr) return std::optional<uint32_t>();
  if (const auto* number = std::get_if<uint64_t>(&value->value)) {
    if (*number > kMax) return out_of_range(*number);
    return std::optional<uint32_t>(static_cast<uint32_t>(*number));
  }
  if (const auto* number = std::get_if<int64_t>(&value->value)) {
    if (*number < 0 || *number > int64_t{kMax}) return out_of_range(*number);
    return std::optional<uint32_t>(static_cast<uint32_t>(*number));
  }
  return WrongType(file, key, "an integer", *value);
}

Result<std::optional<float>> ValueAsF32(const std::string& file, std::string_view key,
                                        const GgufValue* value) {
  if (value == nullptr) return std::optional<float>();
  const auto* number = std::get_if<double>(&value->value);
  if (number == nullptr) return WrongType(file, key, "float32 or float64", *value);
  if (std::isfinite(*number) && std::abs(*number) > double{std::numeric_limits<float>::max()}) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {} is {}, which exceeds the range of float32",
                     file, Quoted(key), *number);
  }
  return std::optional<float>(static_cast<float>(*number));
}

Result<std::optional<bool>> ValueAsBool(const std::string& file, std::string_view key,
                                        const GgufValue* value) {
  if (value == nullptr) return std::optional<bool>();
  const auto* truth = std::get_if<bool>(&value->value);
  if (truth == nullptr) return WrongType(file, key, "bool", *value);
  return std::optional<bool>(*truth);
}

Result<std::optional<std::string_view>> ValueAsString(const std::string& file, std::string_view key,
                                                      const GgufValue* value) {
  if (value == nullptr) return std::optional<std::string_view>();
  const auto* text = std::get_if<std::string_view>(&value->value);
  if (text == nullptr) return WrongType(file, key, "a string", *value);
  return std::optional<std::string_view>(*text);
}

Result<const GgufArray*> ValueAsArray(const std::string& file, std::string_view key,
                                      const GgufValue* value, GgufType element) {
  if (value == nullptr) return static_cast<const GgufArray*>(nullptr);
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (array == nullptr || array->type != element) {
    return WrongType(file, key, fmt::format("an array of {} values", GgufTypeName(element)),
                     *value);
  }
  return array;
}

}  // namespace kvant::formats
