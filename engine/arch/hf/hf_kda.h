// Kimi delta attention in Hugging Face classes: sizes, tensors and metadata. The other layers of
// these classes have latent attention.
#pragma once

#include <string_view>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// The heads of the delta attention and the rows that its convolutions see. kNotSupported for
// another number of heads than the latent attention has, which the GGUF architecture gives both.
struct HfKda {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t taps = 0;
};
Status SetKda(const JsonObject& config, const HfKda& kda, HfShape& shape);

// Writes the sizes of both kinds of attention, and that the router is a sigmoid.
Status AddKdaSizes(const JsonObject& config, const HfShape& shape, Parameters& out);

// The keys of two settings of a router.
struct HfRouterKeys {
  std::string_view normalized;  // whether weights of experts are normalized; where absent, they are
  std::string_view groups;
};
Status AddKdaRouter(const JsonObject& config, const HfRouterKeys& keys, Parameters& out);

// The parts of a layer with delta attention that classes name alike, behind what the name of the
// attention is: "self_attn." or "attention.".
constexpr HfTensor HfKdaConv(std::string_view hf_name, std::string_view gguf_name) {
  return HfMatrix(hf_name, gguf_name, Extent::kDeltaValues, Extent::kConvTapsApart);
}
constexpr HfTensor HfKdaMatrix(std::string_view hf_name, std::string_view gguf_name) {
  return HfMatrix(hf_name, gguf_name, Extent::kDeltaValues, Extent::kDim);
}
constexpr HfTensor HfKdaRates(std::string_view hf_name, Values values) {
  HfTensor rates = HfMatrix(hf_name, "blk.{}.ssm_a", Extent::kDeltaHeads, Extent::kOne);
  rates.values = values;
  return rates;
}

}  // namespace kvant::arch
