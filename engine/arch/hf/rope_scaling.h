// Rotary position embedding in config.json: the base, and the ways of stretching it to longer
// contexts, which older files keep under "rope_scaling" and newer ones under "rope_parameters".
//
// Errors: kCorrupt for settings that make no sense, kNotSupported for an unknown way of stretching;
// both name the file and the key. Thread-safety: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/read_ropes.h"
#include "formats/json_object.h"

namespace kvant::arch {

// `otherwise` where config.json says nothing.
Result<float> ReadRopeBase(const JsonObject& config, double otherwise);

// The base of one kind of layer, where kinds differ: under `key` in older files, in newer ones
// under "rope_parameters" and the name of the kind.
Result<float> ReadRopeBaseOf(std::string_view layer_type, std::string_view key,
                             const JsonObject& config, double otherwise);

// The settings, and their type in lower case. Nothing where positions are not stretched.
struct RopeScaling {
  std::string type;
  JsonObject settings;

  // "config.json: rope_scaling: type "x" is not supported (known: ...)".
  Error Unsupported(std::string_view known) const;
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

// Writes the original context and what the type "longrope" needs: two lists of factors, by which
// frequencies are divided up to that context and beyond it. A class that knows no other type calls
// it whether it is there or not.
Status AddLongRope(const JsonObject& config, const HfShape& shape, int64_t n_rot, Parameters& out);

// Writes what YaRN needs apart from the factor on cosine and sine.
Status AddYarnKeys(const RopeScaling& scaling, const HfShape& shape, Parameters& out,
                   YarnRamp ramp = YarnRamp::kWholePairs);

// The factor 1 + 0.1 m ln(factor) of YaRN (arXiv 2309.00071) and its relatives.
double YarnAmplitude(double factor, double multiplier);

// Writes the base of classes that know only the type "dynamic" with a factor alpha, which makes the
// base alpha^(d / (d - 2)) times larger: the slowest of the d / 2 pairs rotates alpha times slower.
// Source: the definition of Hunyuan in transformers.
Status AddBaseWithAlpha(const JsonObject& config, const HfShape& shape, Parameters& out);

// The divisors of the frequencies base^(-2i / head_dim) that Llama 3.1 uses: 1 for wavelengths up
// to original / high_freq_factor, `factor` from original / low_freq_factor on, and a blend in
// between. [head_dim / 2]. Source: the Llama 3.1 model definition.
Result<std::vector<float>> Llama3Factors(const RopeScaling& scaling, const JsonObject& config,
                                         float base, int64_t head_dim);

}  // namespace kvant::arch
