// dots.llm1: the Llama layer with norms of each head's query and key, rotary embedding over halves,
// and experts behind a sigmoid router whose choice has a bias of its own; the first layers have
// none.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::dots1 {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain}));
  return model;
}

namespace {

constexpr std::string_view kName = "dots1";

constexpr std::string_view kClasses[] = {"Dots1ForCausalLM"};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts,
         kHfSelectionBias, kHfSharedExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseWindows(config));
  KVANT_TRY(AddSigmoidRouter(config, out));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kAsTheyAre, ExpertWeights::kNormalized, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "n_routed_experts", .shared_count = "n_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "dots.llm1", .read = Read, .hf = kHf};

}  // namespace kvant::arch::dots1
