// Says which tensors a recipe gives a format to: all matrices except small and much needed ones.
//
// Source of the names: llama_model_quantize_impl in llama.cpp, commit c392e5094, file
// src/llama-quant.cpp.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/quantize/recipe.h"

namespace kvant::quantize {

bool IsQuantizable(const formats::GgufTensor& tensor) {
  // Pieces of names. The names from shortconv on are later than February 2025.
  constexpr std::string_view kKept[] = {"_norm.weight",
                                        "ffn_gate_inp.weight",
                                        "ssm_conv1d",
                                        "ple_conv1d",
                                        "time_mix_first.weight",
                                        "time_mix_w0.weight",
                                        "time_mix_w1.weight",
                                        "time_mix_w2.weight",
                                        "time_mix_v0.weight",
                                        "time_mix_v1.weight",
                                        "time_mix_v2.weight",
                                        "time_mix_a0.weight",
                                        "time_mix_a1.weight",
                                        "time_mix_a2.weight",
                                        "time_mix_g1.weight",
                                        "time_mix_g2.weight",
                                        "time_mix_decay_w1.weight",
                                        "time_mix_decay_w2.weight",
                                        "time_mix_lerp_fused.weight",
                                        "attn_rel_b.weight",
                                        "shortconv.conv.weight",
                                        "altup",
                                        "laurel",
                                        "per_layer_model_proj",
                                        "indexer.q_proj.weight",
                                        "indexer.k_proj.weight"};
  if (!tensor.name.ends_with("weight") || tensor.rows() < 2) return false;
  if (tensor.name.ends_with("position_embd.weight")) return false;
  if (tensor.name == "token_types.weight") return false;
  return std::none_of(std::begin(kKept), std::end(kKept), [&](std::string_view part) {
    return tensor.name.find(part) != std::string_view::npos;
  });
}

}  // namespace kvant::quantize
