#include "engine/arch/read_ropes.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

using graph::RopeSpec;

Result<std::vector<float>> ReadFactors(const formats::GgufFile& file, const char* name,
                                       int64_t n_rot) {
  const formats::GgufTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->format->quantized() || tensor->n_values() != n_rot / 2) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected {} float values, found {} of {}",
                     file.path(), name, n_rot / 2, tensor->n_values(), tensor->format->name);
  }
  std::vector<float> factors(static_cast<size_t>(n_rot / 2));
  tensor->format->decode(tensor->data, factors.data(), n_rot / 2);
  for (const float factor : factors) {
    if (!std::isfinite(factor) || factor <= 0) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected positive factors, found {}",
                       file.path(), name, factor);
    }
  }
  return factors;
}

// YaRN (Peng et al. 2023, arXiv 2309.00071): pairs that rotate often within the original context
// keep their frequency, pairs that rotate seldom are slowed down by the factor, and a ramp lies
// between. All of it is a factor for each pair, and one for cosine and sine.
Status ApplyYarn(const Metadata& metadata, YarnRamp ramp, RopeSpec& rope) {
  if (!rope.factors.empty()) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: rope_freqs.weight and RoPE scaling \"yarn\" in one file",
                     metadata.file().path());
  }
  KVANT_ASSIGN(const float stretch, metadata.Positive("rope.scaling.factor"));
  KVANT_ASSIGN(const float fast, metadata.PositiveOr("rope.scaling.yarn_beta_fast", 32.0f));
  KVANT_ASSIGN(const float slow, metadata.PositiveOr("rope.scaling.yarn_beta_slow", 1.0f));
  // The pair that makes `turns` full turns within the original context.
  const auto pair_of = [&rope](float turns) {
    const double length = static_cast<double>(rope.original_context) /
                          (2.0 * std::numbers::pi * static_cast<double>(turns));
    return static_cast<double>(rope.n_rot) * std::log(length) /
           (2.0 * std::log(static_cast<double>(rope.base)));
  };
  const double last = static_cast<double>(rope.n_rot) - 1.0;
  double low = pair_of(fast);
  double high = pair_of(slow);
  if (ramp == YarnRamp::kWholePairs) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(0.0, low);
  high = std::min(last, high);
  for (int64_t i = 0; i < rope.n_rot / 2; ++i) {
    const double along = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    const double slowed = std::clamp(along, 0.0, 1.0);
    rope.factors.push_back(
        static_cast<float>(1.0 / (slowed / static_cast<double>(stretch) + 1.0 - slowed)));
  }
  KVANT_ASSIGN(const float given, metadata.PositiveOr(kYarnAmplitudeKey, 0));
  if (given > 0) {
    rope.amplitude *= given;
  } else if (stretch > 1.0f) {
    rope.amplitude *= 1.0f + 0.1f * std::log(stretch);
  }
  return {};
}

// The number of a rope, which is added if it is a new one.
size_t IndexOf(const RopeSpec& rope, std::vector<RopeSpec>& ropes) {
  const auto found = std::ranges::find(ropes, rope);
  const auto index = static_cast<size_t>(found - ropes.begin());
  if (found == ropes.end()) ropes.push_back(rope);
  return index;
}

}  // namespace

Result<RopeSpec> ReadRope(const Metadata& metadata, cpu::RopeStyle style, int64_t k_dim,
                          YarnRamp ramp) {
  const formats::GgufFile& file = metadata.file();
  RopeSpec rope;
  rope.style = style;
  KVANT_ASSIGN(rope.n_rot, metadata.CountOr("rope.dimension_count", kDimMax, k_dim));
  if (rope.n_rot > k_dim || rope.n_rot % 2 != 0) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: key {}: expected an even number up to the head size {}, found {}",
                     file.path(), metadata.Key("rope.dimension_count"), k_dim, rope.n_rot);
  }
  KVANT_ASSIGN(rope.base, metadata.PositiveOr("rope.freq_base", rope.base));
  KVANT_ASSIGN(rope.linear_factor, metadata.PositiveOr("rope.scale_linear", 1.0f));
  KVANT_ASSIGN(const auto type, file.GetString(metadata.Key("rope.scaling.type")));
  const std::string_view scaling = type.value_or("linear");
  if (scaling == "linear") {
    KVANT_ASSIGN(rope.linear_factor,
                 metadata.PositiveOr("rope.scaling.factor", rope.linear_factor));
  } else if (scaling != "none" && scaling != "longrope" && scaling != "llama3" &&
             scaling != "yarn") {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: key {}: RoPE scaling \"{}\" is not supported (known: none, linear, "
                     "llama3, longrope, yarn)",
                     file.path(), metadata.Key("rope.scaling.type"), scaling);
  }
  KVANT_ASSIGN(const int64_t context, metadata.Count("context_length", kContextMax));
  KVANT_ASSIGN(rope.original_context,
               metadata.CountOr("rope.scaling.original_context_length", kContextMax, context));
  KVANT_ASSIGN(rope.amplitude, metadata.PositiveOr("rope.scaling.attn_factor", 1.0f));
  KVANT_ASSIGN(rope.factors, ReadFactors(file, "rope_freqs.weight", rope.n_rot));
  if (scaling == "yarn") {
    KVANT_TRY(ApplyYarn(metadata, ramp, rope));
  } else if (rope.factors.empty()) {
    KVANT_ASSIGN(rope.factors, ReadFactors(file, "rope_factors_short.weight", rope.n_rot));
    KVANT_ASSIGN(rope.factors_long, ReadFactors(file, "rope_factors_long.weight", rope.n_rot));
  }
  return rope;
}

Status ReadRopes(const Metadata& metadata, cpu::RopeStyle style, std::vector<Attention>& attentions,
                 std::vector<RopeSpec>& ropes, YarnRamp ramp) {
  int64_t k_dim = 0;
  for (Attention& attention : attentions) {
    if (attention.k_dim != k_dim) {
      k_dim = attention.k_dim;
      KVANT_ASSIGN(const RopeSpec rope, ReadRope(metadata, style, k_dim, ramp));
      attention.rope = IndexOf(rope, ropes);
    } else {
      attention.rope = (&attention - 1)->rope;
    }
  }
  return {};
}

Status ReadRopes(const Metadata& metadata, cpu::RopeStyle style,
                 std::vector<std::optional<Attention>>& attentions, std::vector<RopeSpec>& ropes) {
  std::vector<Attention> all;
  for (const auto& attention : attentions) {
    if (attention.has_value()) all.push_back(*attention);
  }
  KVANT_TRY(ReadRopes(metadata, style, all, ropes));
  size_t next = 0;
  for (auto& attention : attentions) {
    if (attention.has_value()) attention->rope = all[next++].rope;
  }
  return {};
}

Result<bool> ReadHasRope(const Metadata& metadata) {
  KVANT_ASSIGN(const auto turned, metadata.file().GetBool(metadata.Key("rope.scaling.finetuned")));
  return turned.value_or(true);
}

Status DivideYarnAmplitudes(const Metadata& metadata, std::vector<RopeSpec>& ropes) {
  KVANT_ASSIGN(const auto type, metadata.file().GetString(metadata.Key("rope.scaling.type")));
  KVANT_ASSIGN(const auto given, metadata.file().GetF32(metadata.Key(kYarnLogMultiplierKey)));
  if (given.value_or(0) == 0 || type != "yarn" || metadata.Has(kYarnAmplitudeKey)) return {};
  KVANT_ASSIGN(const float multiplier, metadata.Positive(kYarnLogMultiplierKey));
  KVANT_ASSIGN(const float stretch, metadata.Positive("rope.scaling.factor"));
  if (stretch <= 1.0f) return {};
  for (RopeSpec& rope : ropes) rope.amplitude /= 1.0f + 0.1f * multiplier * std::log(stretch);
  return {};
}

Status ReadWindowRopes(const Metadata& metadata, const std::vector<bool>& chosen,
                       std::vector<Attention>& attentions, std::vector<RopeSpec>& ropes) {
  constexpr const char* kDimensionsKey = "rope.dimension_count_swa";
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!chosen[i]) continue;
    const RopeSpec& given = ropes[attentions[i].rope];
    RopeSpec local;
    local.style = given.style;
    local.original_context = given.original_context;
    KVANT_ASSIGN(local.base, metadata.PositiveOr("rope.freq_base_swa", given.base));
    KVANT_ASSIGN(local.n_rot, metadata.CountOr(kDimensionsKey, kDimMax, given.n_rot));
    if (local.n_rot > attentions[i].k_dim || local.n_rot % 2 != 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: expected an even number up to the head size {}, found {}",
                       metadata.file().path(), metadata.Key(kDimensionsKey), attentions[i].k_dim,
                       local.n_rot);
    }
    attentions[i].rope = IndexOf(local, ropes);
  }
  return {};
}

void RotateOnly(const std::vector<bool>& chosen, std::vector<Attention>& attentions) {
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!chosen[i]) attentions[i].rope = Attention::kNoRope;
  }
}

void GiveLayersTheBase(float base, const std::vector<bool>& chosen,
                       std::vector<Attention>& attentions, std::vector<RopeSpec>& ropes) {
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!chosen[i]) continue;
    RopeSpec local = ropes[attentions[i].rope];
    local.base = base;
    local.linear_factor = 1.0f;
    local.amplitude = 1.0f;
    local.factors.clear();
    local.factors_long.clear();
    attentions[i].rope = IndexOf(local, ropes);
  }
}

}  // namespace kvant::arch
