// Rotary embeddings of a model, from its metadata and from tensors of factors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/metadata.h"
#include "engine/arch/sublayers/attention.h"
#include "engine/graph/rowwise/rope.h"

namespace kvant::arch {

// Where the ramp of YaRN begins and ends. No key says so.
enum class YarnRamp : uint8_t {
  kWholePairs,  // at a whole pair: rounded down and up
  kExact,       // between pairs
};

// Reads the keys rope.dimension_count, rope.freq_base and rope.scaling.* and gives every attention
// its rope. Attentions with the same key size share one. kNotSupported for an unknown type of
// scaling.
Status ReadRopes(const Metadata& metadata, cpu::RopeStyle style, std::vector<Attention>& attentions,
                 std::vector<graph::RopeSpec>& ropes, YarnRamp ramp = YarnRamp::kWholePairs);

// The rope of heads with `dims` dimensions, by the same keys.
Result<graph::RopeSpec> ReadRope(const Metadata& metadata, cpu::RopeStyle style, int64_t dims,
                                 YarnRamp ramp = YarnRamp::kWholePairs);

// Gives ropes to the attentions of a model only some of whose layers have attention.
Status ReadRopes(const Metadata& metadata, cpu::RopeStyle style,
                 std::vector<std::optional<Attention>>& attentions,
                 std::vector<graph::RopeSpec>& ropes);

// Granite's files say with rope.scaling.finetuned whether positions rotate queries and keys; in
// other families the key tells how a model was trained.
Result<bool> ReadHasRope(const Metadata& metadata);

// Divides the factor on cosine and sine, in families with rope.scaling.yarn_log_multiplier, by the
// factor that YaRN would have with its logarithm times that number.
Status DivideYarnAmplitudes(const Metadata& metadata, std::vector<graph::RopeSpec>& ropes);
inline constexpr const char* kYarnLogMultiplierKey = "rope.scaling.yarn_log_multiplier";

// The factor on cosine and sine in place of YaRN's own: the attention_factor of a Hugging Face
// folder, as converters write it.
inline constexpr const char* kYarnAmplitudeKey = "rope.scaling.yarn_attn_factor";

// Gives the chosen attentions, which have a window, ropes with another base. Such a rope has no
// scaling, which stretches positions for layers that see far.
void GiveLayersTheBase(float base, const std::vector<bool>& chosen,
                       std::vector<Attention>& attentions, std::vector<graph::RopeSpec>& ropes);

// Gives the chosen attentions, which have a window, ropes without scaling: of the base
// rope.freq_base_swa and the dimensions rope.dimension_count_swa, which are otherwise those that
// they have.
Status ReadWindowRopes(const Metadata& metadata, const std::vector<bool>& chosen,
                       std::vector<Attention>& attentions, std::vector<graph::RopeSpec>& ropes);

// Takes the rope from attentions that are not chosen.
void RotateOnly(const std::vector<bool>& chosen, std::vector<Attention>& attentions);

}  // namespace kvant::arch
