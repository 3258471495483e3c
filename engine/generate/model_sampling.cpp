#include "engine/generate/model_sampling.h"

#include <limits>
#include <string_view>
#include <variant>

namespace kvant {
namespace {

constexpr std::string_view kPrefix = "general.sampling.";

// A setting and the range in which it makes sense.
struct RealKey {
  std::string_view name;
  std::optional<float> ModelSampling::*setting;
  double min;
  double max;
};
struct WholeKey {
  std::string_view name;
  std::optional<int32_t> ModelSampling::*setting;
  int64_t min;
};

constexpr double kFloatMin = std::numeric_limits<float>::min();
constexpr double kFloatMax = std::numeric_limits<float>::max();

constexpr RealKey kRealKeys[] = {
    {"temp", &ModelSampling::temperature, 0, kFloatMax},
    {"top_p", &ModelSampling::top_p, 0, 1},
    {"min_p", &ModelSampling::min_p, 0, 1},
    {"penalty_repeat", &ModelSampling::repeat_penalty, kFloatMin, kFloatMax},
};
constexpr WholeKey kWholeKeys[] = {
    {"top_k", &ModelSampling::top_k, std::numeric_limits<int32_t>::min()},
    {"penalty_last_n", &ModelSampling::repeat_last_n, -1},
};

std::optional<double> Number(const formats::GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value.value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value.value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value.value)) return static_cast<double>(*number);
  return std::nullopt;
}

std::optional<int64_t> WholeNumber(const formats::GgufValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value.value)) return *number;
  const auto* number = std::get_if<uint64_t>(&value.value);
  if (number == nullptr || *number > uint64_t{std::numeric_limits<int32_t>::max()}) return {};
  return static_cast<int64_t>(*number);
}

// Whether the entry is a setting of the sampler with a value that makes sense, which is then set.
bool Take(std::string_view name, const formats::GgufValue& value, ModelSampling& out) {
  for (const RealKey& key : kRealKeys) {
    if (key.name != name) continue;
    const auto number = Number(value);
    if (!number || !(*number >= key.min && *number <= key.max)) return false;
    out.*key.setting = static_cast<float>(*number);
    return true;
  }
  for (const WholeKey& key : kWholeKeys) {
    if (key.name != name) continue;
    const auto number = WholeNumber(value);
    if (!number || *number < key.min || *number > std::numeric_limits<int32_t>::max()) return false;
    out.*key.setting = static_cast<int32_t>(*number);
    return true;
  }
  return false;
}

}  // namespace

ModelSampling ReadModelSampling(const formats::GgufFile& file) {
  ModelSampling out;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kPrefix)) continue;
    if (!Take(key.substr(kPrefix.size()), value, out)) out.unused.emplace_back(key);
  }
  return out;
}

}  // namespace kvant
