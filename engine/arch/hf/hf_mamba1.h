// Tensors and sizes of the classes with Mamba 1.
//
// Errors: kCorrupt for settings that make no sense. Thread-safety: pure.
#pragma once

#include <string_view>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// The keys of its sizes. The width is `expand` times that of the stream where there is no key.
struct HfMamba1Keys {
  std::string_view inner;
  std::string_view expand;
  std::string_view state_dim;
  std::string_view rank;  // "auto" or absent: a 16th of the stream's width, rounded up
  std::string_view taps;
};
Status ReadHfMamba1(const JsonObject& config, const HfMamba1Keys& keys, HfShape& shape);

// Writes the ssm keys.
Status AddMamba1(const JsonObject& config, const HfShape& shape, Parameters& out);

inline constexpr std::array<HfTensor, 11> kHfMixerMamba1 = {{
    HfMatrix("backbone.layers.{}.mixer.in_proj.weight", "blk.{}.ssm_in.weight",
             Extent::kTwoMambaInner, Extent::kDim),
    HfBias("backbone.layers.{}.mixer.in_proj.bias", "blk.{}.ssm_in.bias", Extent::kTwoMambaInner),
    HfMatrix("backbone.layers.{}.mixer.conv1d.weight", "blk.{}.ssm_conv1d.weight",
             Extent::kMambaInner, Extent::kConvTaps),
    HfBias("backbone.layers.{}.mixer.conv1d.bias", "blk.{}.ssm_conv1d.bias", Extent::kMambaInner),
    HfMatrix("backbone.layers.{}.mixer.x_proj.weight", "blk.{}.ssm_x.weight",
             Extent::kMambaParameters, Extent::kMambaInner),
    HfMatrix("backbone.layers.{}.mixer.dt_proj.weight", "blk.{}.ssm_dt.weight", Extent::kMambaInner,
             Extent::kMambaRank),
    {.hf_name = "backbone.layers.{}.mixer.dt_proj.bias",
     .gguf_name = "blk.{}.ssm_dt.bias",
     .rows = Extent::kMambaInner},
    {.hf_name = "backbone.layers.{}.mixer.A_log",
     .gguf_name = "blk.{}.ssm_a",
     .rows = Extent::kMambaInner,
     .columns = Extent::kMambaState,
     .values = Values::kMinusExp},
    {.hf_name = "backbone.layers.{}.mixer.D",
     .gguf_name = "blk.{}.ssm_d",
     .rows = Extent::kMambaInner},
    HfMatrix("backbone.layers.{}.mixer.out_proj.weight", "blk.{}.ssm_out.weight", Extent::kDim,
             Extent::kMambaInner),
    HfBias("backbone.layers.{}.mixer.out_proj.bias", "blk.{}.ssm_out.bias", Extent::kDim),
}};

}  // namespace kvant::arch
