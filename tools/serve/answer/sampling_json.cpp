#include "tools/serve/answer/sampling_json.h"

#include <cmath>
#include <variant>

#include "engine/generate/samplers/stage.h"
#include "tools/serve/request/setting_names.h"

namespace kvant::tools {
namespace {

// The number of a setting, as JSON.
Json SettingJson(const SamplerSetting& setting, const SamplingOptions& options) {
  return std::visit([&](const auto& number) { return Json(options.*number.ours); }, setting.value);
}

// The biases of tokens; null stands for -infinity, which forbids a token.
Json BiasesJson(const TextFields& fields, const Tokenizer& tokenizer) {
  Json out = Json::array();
  for (const LogitBias& one : fields.sampling.logit_bias) {
    const bool forbids = std::isinf(one.bias);
    out.push_back({{"bias", forbids ? Json(nullptr) : Json(one.bias)}, {"token", one.token}});
  }
  if (!fields.ignore_eos) return out;
  for (const TokenId id : tokenizer.special().end_of_generation) {
    out.push_back({{"bias", nullptr}, {"token", id}});
  }
  return out;
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

Json SettingsJson(const TextFields& fields, const Tokenizer& tokenizer) {
  Json out = SamplingJson(fields.sampling);
  out["samplers"] = SamplerNamesJson(fields.sampling);
  out["logit_bias"] = BiasesJson(fields, tokenizer);
  out["stop"] = fields.stop_texts;
  out["max_tokens"] = out["n_predict"] = fields.max_tokens;
  out["n_keep"] = out["n_discard"] = 0;
  out["ignore_eos"] = fields.ignore_eos;
  out["stream"] = fields.stream;
  out["n_probs"] = fields.log_probs.value_or(0);
  out["grammar"] = fields.grammar.has_value() ? fields.grammar->text : "";
  out["timings_per_token"] = fields.timings_in_chunks;
  out["post_sampling_probs"] = fields.after_sampling;
  out["lora"] = Json::array();
  return out;
}

}  // namespace kvant::tools
