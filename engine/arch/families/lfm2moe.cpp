// LFM2, the models with experts: the mixers of LFM2, and experts chosen by a sigmoid router in all
// layers but the first.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::lfm2moe {
namespace {

constexpr std::string_view kName = "lfm2moe";
constexpr double kRopeBase = 1000000.0;
constexpr uint32_t kSigmoid = 2;  // in expert_gating_func

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  stack.final_norm.tensor = "token_embd_norm";
  KVANT_ASSIGN(auto attentions, ReadSomeAttentions(metadata, stack));
  for (auto& attention : attentions) {
    if (attention.has_value()) attention->head_norms = HeadNorms::kRequired;
  }
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const ShortConv conv, ReadShortConv(metadata));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, MixersOf(attentions, conv),
                                  {.gating = graph::Gating::kSigmoid, .normalize = true}));
  return model;
}

constexpr std::string_view kClasses[] = {"Lfm2MoeForCausalLM"};

constexpr std::array<HfTensor, 2> kRouter = {
    HfOfExperts("model.layers.{}.feed_forward.gate.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    IfPresent(std::array<HfTensor, 1>{HfOfExperts("model.layers.{}.feed_forward.expert_bias",
                                                  "blk.{}.exp_probs_b.bias", Extent::kExperts,
                                                  Extent::kNone)})[0],
};

// Published folders have a tensor for each expert; later versions of the class write one for all.
constexpr auto kExperts = IfPresent(std::array<HfTensor, 6>{
    HfOfExperts("model.layers.{}.feed_forward.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.feed_forward.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.feed_forward.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight",
                Extent::kDim, Extent::kExpertFfn, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kFirstHalf),
    HfOfExperts("model.layers.{}.feed_forward.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kSecondHalf),
    HfOfExperts("model.layers.{}.feed_forward.experts.down_proj", "blk.{}.ffn_down_exps.weight",
                Extent::kDim, Extent::kExpertFfn, ExpertForm::kStacked),
});

constexpr auto kTensors = Join(
    HfEmbedding("model.embed_tokens.weight"),
    HfNorm("model.embedding_norm.weight", "token_embd_norm.weight"), HfOutput("lm_head.weight"),
    HfNorm("model.layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight"),
    InAttentionLayers(kHfSeparateQkv), InAttentionLayers(kHfQueryKeyLayerNorms),
    InAttentionLayers(kHfAttentionOut), InOtherLayers(kHfShortConv),
    HfNorm("model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight"),
    WithoutExperts(kHfFeedForward), kRouter, kExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("shortconv.l_cache"), static_cast<uint32_t>(shape.conv_taps));
  out.writer->AddU32(out.Key("expert_gating_func"), kSigmoid);
  KVANT_ASSIGN(const auto dense, config.Integer("num_dense_layers", kLayersMax));
  out.writer->AddU32(out.Key("leading_dense_block_count"),
                     static_cast<uint32_t>(dense.value_or(0)));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .epsilon = {.key = "norm_eps"},
    .finish_shape = ReadConvLayers,
    .rope_base = kRopeBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "LFM2 MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::lfm2moe
