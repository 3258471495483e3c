// MiniMax M2: norms of queries and keys over whole projections, a partial rotation over halves, and
// in every layer experts behind a sigmoid router whose choice has a bias of its own.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_block_sparse.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::minimax_m2 {
namespace {

constexpr std::string_view kName = "minimax-m2";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) {
    attention.head_norms = HeadNorms::kRequired;
    attention.head_norm_weights = HeadNormWeights::kProjection;
  }
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid, .normalize = true}));
  return model;
}

constexpr std::string_view kClasses[] = {"MiniMaxM2ForCausalLM"};
constexpr double kBase = 5e6;

constexpr std::array<HfTensor, 1> kSelectionBias = {
    HfOfExperts("model.layers.{}.block_sparse_moe.e_score_correction_bias",
                "blk.{}.exp_probs_b.bias", Extent::kExperts, Extent::kNone)};

constexpr auto kExperts = Join(kHfBlockSparseRouter, kSelectionBias, kHfBlockSparseExperts);

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv,
    HfNorm("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", Extent::kQRows),
    HfNorm("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", Extent::kKvRows),
    kHfAttentionOutput, kHfNormBeforeFfn, kExperts);

// Published folders give the rotated dimensions under a key of their own; folders that transformers
// writes give them as a share of a head.
Result<int64_t> AddRotatedDimensions(const JsonObject& config, const HfShape& shape,
                                     Parameters& out) {
  KVANT_ASSIGN(const auto given, config.Integer("rotary_dim", shape.head_dim));
  if (given && (*given < 2 || *given % 2 != 0)) {
    return config.Wrong("rotary_dim", fmt::format("an even number up to {}", shape.head_dim));
  }
  if (given) out.rope_share = static_cast<double>(*given) / static_cast<double>(shape.head_dim);
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  if (n_rot == given.value_or(n_rot)) return n_rot;
  return config.Wrong("rotary_dim", fmt::format("{}, as partial_rotary_factor makes it", n_rot));
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t n_rot, AddRotatedDimensions(config, shape, out));
  KVANT_TRY(AddSigmoidRouter(config, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .rope_share = 1,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_local_experts", .ffn = "intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "MiniMax M2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::minimax_m2
