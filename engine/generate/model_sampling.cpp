#include "engine/generate/model_sampling.h"

#include <cmath>
#include <limits>
#include <utility>
#include <variant>

namespace kvant {
namespace {

constexpr std::string_view kSamplingPrefix = "general.sampling.";
constexpr std::string_view kSequenceKey = "sequence";

std::optional<double> SettingNumber(const formats::GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value.value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value.value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value.value)) return static_cast<double>(*number);
  return std::nullopt;
}

const SamplerSetting* FindSetting(std::string_view key) {
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      if (!setting.key.empty() && setting.key == key) return &setting;
    }
  }
  return nullptr;
}

// The value, if it is a number that makes sense. No model recommends a temperature below 0.
std::optional<double> UsableNumber(const SamplerSetting& setting, const formats::GgufValue& value) {
  const auto number = SettingNumber(value);
  const double min = setting.key == "temp" ? 0 : setting.min;
  if (!number || !(*number >= min && *number <= setting.max)) return std::nullopt;
  if (setting.is_whole() && std::holds_alternative<double>(value.value)) return std::nullopt;
  return number;
}

// Whether the entry is a setting of the samplers with a value that makes sense, which is then set.
bool TakeEntry(std::string_view key, const formats::GgufValue& value, ModelSampling& out) {
  if (key == kSequenceKey) {
    const auto* names = std::get_if<std::string_view>(&value.value);
    if (names == nullptr) return false;
    auto chain = ParseSamplers(*names);
    if (!chain.ok()) return false;
    out.samplers = std::move(chain).value();
    return true;
  }
  const SamplerSetting* setting = FindSetting(key);
  if (setting == nullptr) return false;
  const auto number = UsableNumber(*setting, value);
  if (!number) return false;
  out.settings.push_back({setting, *number});
  return true;
}

}  // namespace

std::optional<double> ModelSampling::Find(std::string_view key) const {
  for (const Setting& entry : settings) {
    if (entry.setting->key == key) return entry.value;
  }
  return std::nullopt;
}

ModelSampling ReadModelSampling(const formats::GgufFile& file) {
  ModelSampling out;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kSamplingPrefix)) continue;
    const std::string_view name = key.substr(kSamplingPrefix.size());
    if (!TakeEntry(name, value, out)) out.unused.emplace_back(key);
  }
  return out;
}

}  // namespace kvant
