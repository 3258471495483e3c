// Names and metadata of split GGUF models.
#include "formats/gguf_split.h"

#include <algorithm>
#include <limits>

#include "base/result.h"
#include "formats/gguf_value.h"

namespace kvant::formats {
namespace {

constexpr std::string_view kOf = "-of-";
constexpr std::string_view kExtension = ".gguf";
constexpr size_t kDigits = 5;

// Removes `ending` from the end of `text`.
bool RemoveEnding(std::string_view& text, std::string_view ending) {
  if (!text.ends_with(ending)) return false;
  text.remove_suffix(ending.size());
  return true;
}

// Removes five digits from the end of `text`.
bool RemoveNumber(std::string_view& text, uint32_t& number) {
  if (text.size() < kDigits) return false;
  number = 0;
  for (const char digit : text.substr(text.size() - kDigits)) {
    if (digit < '0' || digit > '9') return false;
    number = number * 10 + static_cast<uint32_t>(digit - '0');
  }
  text.remove_suffix(kDigits);
  return true;
}

}  // namespace

std::optional<SplitName> ParseSplitName(std::string_view path) {
  SplitName name;
  uint32_t ordinal = 0;
  if (!RemoveEnding(path, kExtension) || !RemoveNumber(path, name.count) ||
      !RemoveEnding(path, kOf) || !RemoveNumber(path, ordinal) || !RemoveEnding(path, "-")) {
    return std::nullopt;
  }
  if (ordinal == 0 || ordinal > name.count) return std::nullopt;
  name.prefix = path;
  name.number = ordinal - 1;
  return name;
}

std::string SplitPath(std::string_view prefix, uint32_t number, uint32_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number + 1, count);
}

Result<SplitInfo> ReadSplitInfo(const GgufShard& shard, const std::string& file) {
  const auto get = [&](std::string_view key) {
    const auto entry = std::find_if(shard.metadata.begin(), shard.metadata.end(),
                                    [key](const auto& pair) { return pair.first == key; });
    return ValueAsU32(file, key, entry == shard.metadata.end() ? nullptr : &entry->second);
  };
  SplitInfo info;
  KVANT_ASSIGN(const auto count, get(kSplitCountKey));
  if (count.value_or(0) <= 1) return info;
  KVANT_ASSIGN(const auto number, get(kSplitNumberKey));
  KVANT_ASSIGN(const auto tensor_count, get(kSplitTensorsKey));
  if (!number || !tensor_count) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}, but {} is missing", file, kSplitCountKey,
                     *count, number ? kSplitTensorsKey : kSplitNumberKey);
  }
  if (*number >= *count) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}, expected less than {} = {}", file,
                     kSplitNumberKey, *number, kSplitCountKey, *count);
  }
  return SplitInfo{*number, *count, *tensor_count};
}

void AddSplitKeys(GgufWriter& writer, uint16_t number, uint16_t count, size_t tensors) {
  const auto add_u16 = [&](std::string_view key, uint64_t value) {
    writer.AddValue(std::string(key), {.type = GgufType::kUint16, .value = value});
  };
  add_u16(kSplitNumberKey, number);
  add_u16(kSplitCountKey, count);
  writer.AddI32(std::string(kSplitTensorsKey), static_cast<int32_t>(tensors));
}

}  // namespace kvant::formats
