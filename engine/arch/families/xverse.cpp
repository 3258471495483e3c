// XVERSE, the dense models: the Llama layer. The model rotates pairs of half-heads, so the
// conversion interleaves the rows of q and k.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::xverse {
namespace {

constexpr std::string_view kName = "xverse";

constexpr std::string_view kClasses[] = {"XverseForCausalLM"};

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "XVERSE", .read = ernie4_5::Read, .hf = kHf};

}  // namespace kvant::arch::xverse
