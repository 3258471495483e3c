// Rotary position embedding in config.json, as metadata: the base, the share of a head that is
// rotated, and the ways of stretching positions to longer contexts. rope_settings.h finds what is
// read here.
//
// Errors: kCorrupt for settings that make no sense, kNotSupported for an unknown way of stretching;
// both name the file and the key. Thread-safety: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/rope_settings.h"
#include "engine/arch/read_ropes.h"
#include "formats/json_object.h"

namespace kvant::arch {

// Refuses settings that the class does not have, and writes the base where the class does not do it
// (HfFamily::own_rope_base).
Status AddRope(const HfFamily& family, const JsonObject& config, Parameters& out);

// `otherwise` where config.json says nothing.
Result<float> ReadRopeBase(const JsonObject& config, double otherwise);

// The base of layers with a window, for classes where they have settings of their own: at the top
// under `base_key`. kNotSupported where these layers stretch positions or rotate a share of a head.
Result<float> ReadWindowRopeBase(const JsonObject& config, std::string_view base_key,
                                 double otherwise);

// Writes rope.freq_base_swa and rope.dimension_count_swa for classes whose layers with a window
// have a rope with a base and a share of its own. kNotSupported where these layers stretch
// positions.
struct WindowRopeDefaults {
  double base = 0;
  std::string_view base_key = "rope_theta";  // of the base at the top
  double share = 1;
};
Status AddWindowRope(const JsonObject& config, const HfShape& shape,
                     const WindowRopeDefaults& otherwise, Parameters& out);

// Writes rope.dimension_count for a class that rotates a share of each head (HfFamily::rope_share),
// and returns the number.
Result<int64_t> AddPartialRotation(const JsonObject& config, const HfShape& shape, Parameters& out);

// The settings, and their type in lower case. Nothing where positions are not stretched.
struct RopeScaling {
  std::string type;
  RopeSettings settings;
};
Result<std::optional<RopeScaling>> ReadRopeScaling(const JsonObject& config);

// Writes the keys of the scaling type "linear".
Status AddLinearScaling(const RopeScaling& scaling, Parameters& out);

// Writes the keys of "linear" for a class that knows no other type.
Status AddLinearScalingIfAny(const JsonObject& config, Parameters& out);

// How the readers of a family understand YaRN's keys.
struct YarnForm {
  YarnRamp ramp = YarnRamp::kWholePairs;
  // Whether they divide the factor on cosine and sine by the one that follows from
  // rope.scaling.yarn_log_multiplier, which is written for "mscale_all_dim".
  bool divides_by_all_dims = false;
};

// Writes what the common ways of stretching need, for `n_rot` dimensions of a head: linear,
// llama3 or yarn, or nothing. kNotSupported for a "truncate" of yarn that does not make the ramp
// that readers of the family assume.
Status AddRopeScaling(const JsonObject& config, const HfShape& shape, int64_t n_rot,
                      Parameters& out, const YarnForm& form = {});

// As AddRopeScaling for classes that know the type "dynamic", too. It changes nothing up to the
// context that the model was trained for, and is left out with a warning.
Status AddScalingUpToContext(const JsonObject& config, const HfShape& shape, int64_t n_rot,
                             Parameters& out);

// Writes the original context and what the type "longrope" needs: two lists of factors, by which
// frequencies are divided up to that context and beyond it. A class that knows no other type calls
// it whether it is there or not. kCorrupt for a "factor" that is not the context over the original
// one, of which versions of transformers take one or the other.
Status AddLongRope(const JsonObject& config, const HfShape& shape, int64_t n_rot, Parameters& out);

// Writes what YaRN needs apart from the factor on cosine and sine.
Status AddYarnKeys(const RopeScaling& scaling, const HfShape& shape, Parameters& out,
                   YarnRamp ramp = YarnRamp::kWholePairs);

// The factor 1 + 0.1 m ln(factor) of YaRN (arXiv 2309.00071) and its relatives.
double YarnAmplitude(double factor, double multiplier);

// Writes the base of classes that know only the type "dynamic" with a factor alpha, which makes the
// base alpha^(d / (d - 2)) times larger: the slowest of the d / 2 pairs rotates alpha times slower.
// Source: the definition of Hunyuan in transformers.
inline constexpr std::string_view kAlphaNames[] = {"alpha"};
float BaseWithAlpha(double base, double alpha, int64_t dims);
Status AddBaseWithAlpha(const JsonObject& config, const HfShape& shape, Parameters& out);

// The divisors of the frequencies base^(-2i / head_dim) that Llama 3.1 uses: 1 for wavelengths up
// to original / high_freq_factor, `factor` from original / low_freq_factor on, and a blend in
// between. [head_dim / 2]. `context` is the original one where no setting says it. Source: the
// Llama 3.1 model definition.
Result<std::vector<float>> Llama3Factors(const RopeSettings& settings, int64_t context, float base,
                                         int64_t head_dim);

}  // namespace kvant::arch
