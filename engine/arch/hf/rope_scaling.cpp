#include "engine/arch/hf/rope_scaling.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numbers>

#include "base/log.h"
#include "base/result.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

// Defaults of the Llama 3.1 model definition.
constexpr double kLlama3Factor = 8;
constexpr double kLlama3LowFreqFactor = 1;
constexpr double kLlama3HighFreqFactor = 4;

constexpr std::string_view kShareName = "partial_rotary_factor";
constexpr std::string_view kOriginalName = "original_max_position_embeddings";

}  // namespace

Status AddRope(const HfFamily& family, const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  KVANT_TRY(settings.CheckNames(family.rope_names));
  KVANT_TRY(family.window_ropes ? CheckTwoRopes(config) : CheckOneRope(config));
  if (family.rope_share == 0) {
    KVANT_ASSIGN(const auto share, settings.Number(kShareName));
    if (share.value_or(1) != 1) return settings.Wrong(kShareName, "1 for models of this class");
  }
  if (family.own_rope_base) return {};
  KVANT_ASSIGN(const float base, ReadRopeBase(config, family.rope_base));
  out.writer->AddF32(out.Key("rope.freq_base"), base);
  return {};
}

Result<float> ReadRopeBase(const JsonObject& config, double otherwise) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  KVANT_ASSIGN(const double base, settings.PositiveOr("rope_theta", otherwise));
  return static_cast<float>(base);
}

Result<float> ReadWindowRopeBase(const JsonObject& config, std::string_view base_key,
                                 double otherwise) {
  KVANT_ASSIGN(const RopeSettings settings,
               RopeSettings::Read(config, {.type = kWindowLayers, .base_key = base_key}));
  KVANT_ASSIGN(const auto type, settings.Type());
  if (type) return settings.UnsupportedType("default");
  KVANT_ASSIGN(const auto share, settings.Number(kShareName));
  if (share.value_or(1) != 1) return settings.Wrong(kShareName, "1 in layers with a window");
  KVANT_ASSIGN(const double base, settings.PositiveOr("rope_theta", otherwise));
  return static_cast<float>(base);
}

namespace {

Result<int64_t> RotatedDimensions(const RopeSettings& settings, const HfShape& shape,
                                  double otherwise) {
  KVANT_ASSIGN(const auto given, settings.Number(kShareName));
  const double share = given.value_or(otherwise);
  if (!(share > 0 && share <= 1)) return settings.Wrong(kShareName, "0 to 1");
  const auto n_rot = static_cast<int64_t>(share * static_cast<double>(shape.head_dim));
  if (n_rot >= 2 && n_rot % 2 == 0) return n_rot;
  return settings.Wrong(
      kShareName, fmt::format("an even number of the {} dimensions of a head", shape.head_dim));
}

}  // namespace

Status AddWindowRope(const JsonObject& config, const HfShape& shape,
                     const WindowRopeDefaults& otherwise, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings settings,
               RopeSettings::Read(config, {.type = kWindowLayers, .base_key = otherwise.base_key}));
  KVANT_ASSIGN(const auto type, settings.Type());
  if (type) return settings.UnsupportedType("default");
  KVANT_ASSIGN(const double base, settings.PositiveOr("rope_theta", otherwise.base));
  KVANT_ASSIGN(const int64_t n_rot, RotatedDimensions(settings, shape, otherwise.share));
  out.writer->AddF32(out.Key("rope.freq_base_swa"), static_cast<float>(base));
  out.writer->AddU32(out.Key("rope.dimension_count_swa"), static_cast<uint32_t>(n_rot));
  return {};
}

Result<int64_t> AddPartialRotation(const JsonObject& config, const HfShape& shape,
                                   Parameters& out) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  KVANT_ASSIGN(const int64_t n_rot, RotatedDimensions(settings, shape, out.rope_share));
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(n_rot));
  return n_rot;
}

Status AddLinearScaling(const RopeScaling& scaling, Parameters& out) {
  KVANT_ASSIGN(const auto factor, scaling.settings.Number("factor"));
  if (!factor || !(*factor > 0)) return scaling.settings.Wrong("factor", "a positive number");
  out.writer->AddString(out.Key("rope.scaling.type"), "linear");
  out.writer->AddF32(out.Key("rope.scaling.factor"), static_cast<float>(*factor));
  return {};
}

Result<std::optional<RopeScaling>> ReadRopeScaling(const JsonObject& config) {
  KVANT_ASSIGN(RopeSettings settings, RopeSettings::Read(config));
  KVANT_ASSIGN(std::optional<std::string> type, settings.Type());
  if (!type) return std::optional<RopeScaling>();
  return std::optional(RopeScaling{std::move(*type), std::move(settings)});
}

Status AddLinearScalingIfAny(const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (!scaling) return {};
  if (scaling->type != "linear") return scaling->settings.UnsupportedType("default, linear");
  return AddLinearScaling(*scaling, out);
}

double YarnAmplitude(double factor, double multiplier) {
  return factor <= 1 ? 1.0 : 1.0 + 0.1 * multiplier * std::log(factor);
}

namespace {

// The factor that the model uses, as a multiple of the usual one.
Result<double> YarnAmplitudeShare(const RopeSettings& settings, double factor) {
  const double usual = YarnAmplitude(factor, 1);
  KVANT_ASSIGN(const double given, settings.PositiveOr("attention_factor", 0));
  if (given > 0) return given / usual;
  KVANT_ASSIGN(const auto one, settings.Number("mscale"));
  KVANT_ASSIGN(const auto all, settings.Number("mscale_all_dim"));
  if (one.value_or(0) == 0 || all.value_or(0) == 0) return 1.0;
  return YarnAmplitude(factor, *one) / YarnAmplitude(factor, *all) / usual;
}

}  // namespace

Status AddYarnKeys(const RopeScaling& scaling, const HfShape& shape, Parameters& out,
                   YarnRamp ramp) {
  const RopeSettings& settings = scaling.settings;
  KVANT_ASSIGN(const auto factor, settings.Number("factor"));
  if (!factor || !(*factor > 0)) return settings.Wrong("factor", "a positive number");
  KVANT_ASSIGN(const auto truncate, settings.Bool("truncate"));
  if (truncate.value_or(true) != (ramp == YarnRamp::kWholePairs)) {
    return MakeError(ErrorCode::kNotSupported, "{}: {} is not supported",
                     settings.Where("truncate"), truncate.value_or(true));
  }
  KVANT_ASSIGN(const auto original, settings.Integer(kOriginalName, kContextMax));
  out.writer->AddString(out.Key("rope.scaling.type"), "yarn");
  out.writer->AddF32(out.Key("rope.scaling.factor"), static_cast<float>(*factor));
  out.writer->AddU32(out.Key("rope.scaling.original_context_length"),
                     static_cast<uint32_t>(original.value_or(shape.context)));
  for (const std::string_view beta : {"beta_fast", "beta_slow"}) {
    KVANT_ASSIGN(const double turns, settings.PositiveOr(beta, 0));
    if (turns == 0) continue;
    out.writer->AddF32(out.Key(fmt::format("rope.scaling.yarn_{}", beta)),
                       static_cast<float>(turns));
  }
  return {};
}

namespace {

Status AddYarn(const RopeScaling& scaling, const HfShape& shape, const YarnForm& form,
               Parameters& out) {
  KVANT_TRY(AddYarnKeys(scaling, shape, out, form.ramp));
  const RopeSettings& settings = scaling.settings;
  KVANT_ASSIGN(const auto factor, settings.Number("factor"));
  KVANT_ASSIGN(double share, YarnAmplitudeShare(settings, *factor));
  if (form.divides_by_all_dims) {
    KVANT_ASSIGN(const double all, settings.PositiveOr("mscale_all_dim", 0));
    if (all > 0) out.writer->AddF32(out.Key(kYarnLogMultiplierKey), static_cast<float>(all));
    share *= YarnAmplitude(*factor, all);
  }
  if (std::abs(share - 1) > 1e-12) {
    out.writer->AddF32(out.Key("rope.scaling.attn_factor"), static_cast<float>(share));
  }
  return {};
}

}  // namespace

Status AddRopeScaling(const JsonObject& config, const HfShape& shape, int64_t n_rot,
                      Parameters& out, const YarnForm& form) {
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (!scaling) return {};
  if (scaling->type == "linear") return AddLinearScaling(*scaling, out);
  if (scaling->type == "yarn") return AddYarn(*scaling, shape, form, out);
  if (scaling->type != "llama3")
    return scaling->settings.UnsupportedType("default, linear, llama3, yarn");
  KVANT_ASSIGN(const float base, ReadRopeBase(config, out.rope_base));
  KVANT_ASSIGN(auto factors, Llama3Factors(scaling->settings, shape.context, base, n_rot));
  out.tensors.push_back({"rope_freqs.weight", std::move(factors)});
  return {};
}

Status AddScalingUpToContext(const JsonObject& config, const HfShape& shape, int64_t n_rot,
                             Parameters& out) {
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (!scaling || scaling->type != "dynamic") return AddRopeScaling(config, shape, n_rot, out);
  Log(LogLevel::kWarning,
      fmt::format("{}: \"dynamic\" counts beyond {} positions only and is left out",
                  scaling->settings.Where("rope_type"), shape.context));
  return {};
}

namespace {

// The factor on cosine and sine that goes with the longer context. Source: LongRoPE
// (arXiv 2402.13753) as in the Phi-3 model definition.
float LongRopeAmplitude(int64_t context, int64_t original) {
  const double stretch = static_cast<double>(context) / static_cast<double>(original);
  if (stretch <= 1.0) return 1.0f;
  return static_cast<float>(
      std::sqrt(1.0 + std::log(stretch) / std::log(static_cast<double>(original))));
}

Status AddFactors(const RopeSettings& settings, const char* key, const char* tensor, int64_t n_rot,
                  Parameters& out) {
  KVANT_ASSIGN(auto factors, settings.Numbers(key));
  if (!factors || static_cast<int64_t>(factors->size()) != n_rot / 2) {
    return settings.Wrong(key, fmt::format("{} numbers", n_rot / 2));
  }
  out.tensors.push_back({tensor, std::move(*factors)});
  return {};
}

// Reads the factor from the folder: for contexts up to the original one, and for longer ones.
Result<float> ReadLongRopeAmplitude(const RopeSettings& settings, int64_t context,
                                    int64_t original) {
  const double stretch = static_cast<double>(context) / static_cast<double>(original);
  KVANT_ASSIGN(const double factor, settings.PositiveOr("factor", stretch));
  if (std::abs(factor - stretch) > 1e-6 * stretch) {
    return settings.Wrong("factor", fmt::format("{}, the context over the original one", stretch));
  }
  const double usual = static_cast<double>(LongRopeAmplitude(context, original));
  KVANT_ASSIGN(const double of_both, settings.PositiveOr("attention_factor", usual));
  KVANT_ASSIGN(const double of_short, settings.PositiveOr("short_mscale", of_both));
  KVANT_ASSIGN(const double of_long, settings.PositiveOr("long_mscale", of_both));
  if (of_short != of_long) {
    return settings.Wrong("long_mscale", fmt::format("short_mscale, which is {}", of_short));
  }
  return static_cast<float>(of_short);
}

}  // namespace

Status AddLongRope(const JsonObject& config, const HfShape& shape, int64_t n_rot, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  KVANT_ASSIGN(const auto original, settings.Integer(kOriginalName, INT32_MAX));
  const int64_t original_context = original.value_or(shape.context);
  if (original_context < 2) return settings.Wrong(kOriginalName, "a number of positions");
  out.writer->AddU32(out.Key("rope.scaling.original_context_length"),
                     static_cast<uint32_t>(original_context));
  KVANT_ASSIGN(const auto type, settings.Type());
  if (!type) return {};
  if (*type != "longrope") return settings.UnsupportedType("default, longrope, su");
  KVANT_ASSIGN(const float amplitude,
               ReadLongRopeAmplitude(settings, shape.context, original_context));
  out.writer->AddF32(out.Key("rope.scaling.attn_factor"), amplitude);
  KVANT_TRY(AddFactors(settings, "long_factor", "rope_factors_long.weight", n_rot, out));
  return AddFactors(settings, "short_factor", "rope_factors_short.weight", n_rot, out);
}

float BaseWithAlpha(double base, double alpha, int64_t dims) {
  const auto count = static_cast<double>(dims);
  return static_cast<float>(base * std::pow(alpha, count / (count - 2.0)));
}

Status AddBaseWithAlpha(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const float given, ReadRopeBase(config, kUsualRopeBase));
  float base = given;
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (scaling) {
    if (scaling->type != "dynamic")
      return scaling->settings.UnsupportedType("default, dynamic with alpha");
    KVANT_ASSIGN(const auto alpha, scaling->settings.Number("alpha"));
    if (!alpha || !(*alpha > 0)) return scaling->settings.Wrong("alpha", "a positive number");
    base = BaseWithAlpha(given, *alpha, shape.head_dim);
  }
  out.writer->AddF32(out.Key("rope.freq_base"), base);
  return {};
}

Result<std::vector<float>> Llama3Factors(const RopeSettings& settings, int64_t context, float base,
                                         int64_t head_dim) {
  KVANT_ASSIGN(const double factor, settings.PositiveOr("factor", kLlama3Factor));
  KVANT_ASSIGN(const double low, settings.PositiveOr("low_freq_factor", kLlama3LowFreqFactor));
  KVANT_ASSIGN(const double high, settings.PositiveOr("high_freq_factor", kLlama3HighFreqFactor));
  KVANT_ASSIGN(const double original,
               settings.PositiveOr(kOriginalName, static_cast<double>(context)));
  if (high < low) return settings.Wrong("high_freq_factor", fmt::format("at least {}", low));

  std::vector<float> factors;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double wavelength =
        2.0 * std::numbers::pi * std::pow(static_cast<double>(base), exponent);
    double divisor = 1.0;
    if (wavelength > original / low) {
      divisor = factor;
    } else if (high > low && wavelength >= original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
    }
    factors.push_back(static_cast<float>(divisor));
  }
  return factors;
}

}  // namespace kvant::arch
