// DeepSeek V3.2: DeepSeek V3 with an indexer in every layer, whose rope rotates halves of the first
// values of a head, while that of the attention rotates neighbouring pairs of the last.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_indexer.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::deepseek32 {

// The epsilon of the indexer's layer norm, and of the norms of latents and of what queries are made
// of: transformers has them as constants, and no file says them.
constexpr float kInnerEpsilon = 1e-6f;

Result<ModelSpec> ReadIndexed(const Metadata& metadata, cpu::RopeStyle index_style,
                              std::optional<std::vector<bool>> own) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions,
               ReadLatentAttentions(metadata, stack, cpu::RopeStyle::kInterleaved, model.ropes));
  KVANT_ASSIGN(Indexer indexer, ReadIndexer(metadata, IndexUnits::kPositions));
  if (attentions.front().q_rank == 0) return metadata.Missing("attention.q_lora_rank");
  indexer.epsilon = kInnerEpsilon;
  indexer.rope = RopeOfIndexer(index_style, *attentions.front().rope, model.ropes);
  KVANT_TRY(CheckRotation(metadata, indexer, model.ropes));
  for (size_t i = 0; i < attentions.size(); ++i) {
    attentions[i].epsilon = kInnerEpsilon;
    attentions[i].indexer = indexer;
    attentions[i].indexer->reuses = own.has_value() && !(*own)[i];
  }
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain}));
  return model;
}

namespace {

constexpr std::string_view kName = "deepseek32";
constexpr std::string_view kClasses[] = {"DeepseekV32ForCausalLM"};

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadIndexed(metadata, cpu::RopeStyle::kHalves, {});
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishLatentShape(config, shape));
  shape.kv_heads = 1;  // of the cache
  return FinishIndexShape(config, shape);
}

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfLatentProjections, kHfLatentKvOfHeads,
         kHfLatentIndexer, kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)),
         kHfExperts, kHfSelectionBias, kHfSharedExperts);

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = FinishShape,
    .tensors = kTensors,
    .add_parameters = AddIndexedLatents,
    .experts = {.count = "n_routed_experts", .shared_count = "n_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "DeepSeek V3.2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::deepseek32
