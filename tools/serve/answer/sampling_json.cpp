#include "tools/serve/answer/sampling_json.h"

#include <variant>

#include "engine/generate/samplers/stage.h"
#include "tools/serve/request/setting_names.h"

namespace kvant::tools {
namespace {

// The number of a setting, as JSON.
Json SettingJson(const SamplerSetting& setting, const SamplingOptions& options) {
  return std::visit([&](const auto& number) { return Json(options.*number.ours); }, setting.value);
}

}  // namespace

Json SamplingJson(const SamplingOptions& options) {
  Json out = Json::object();
  for (const SamplerRow* const sampler : AllSamplers()) {
    for (const SamplerSetting& setting : sampler->settings) {
      out[AnswerName(setting)] = SettingJson(setting, options);
    }
  }
  out["min_keep"] = options.min_keep;
  out["dry_sequence_breakers"] = options.dry_sequence_breakers;
  return out;
}

Json SamplerNamesJson(const SamplingOptions& options) {
  Json out = Json::array();
  if (options.samplers.has_value()) {
    for (const std::string& name : *options.samplers) out.push_back(name);
    return out;
  }
  for (const SamplerRow* const sampler : AllSamplers()) {
    if (sampler->order == SamplerRow::Order::kDefault) out.push_back(sampler->name);
  }
  return out;
}

}  // namespace kvant::tools
