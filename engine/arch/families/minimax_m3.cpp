// MiniMax M3, the text model: norms of the heads of queries and keys, a partial rotation over
// halves, gates with limits everywhere, a sigmoid router and a shared expert. Some layers have an
// indexer, each of whose heads chooses blocks of positions for some kv heads. Norms multiply by 1 +
// weight in folders.
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_block_sparse.h"
#include "engine/arch/hf/hf_indexer.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::minimax_m3 {
namespace {

using formats::Json;

constexpr std::string_view kName = "minimax-m3";

// Gives indexers to the layers that have their tensors.
Status AddIndexers(const Metadata& metadata, const ModelSpec& model,
                   std::vector<Attention>& attentions) {
  KVANT_ASSIGN(Indexer indexer, ReadIndexer(metadata, IndexUnits::kBlocks));
  indexer.epsilon = model.stacks.front().final_norm.epsilon;
  for (size_t i = 0; i < attentions.size(); ++i) {
    // A layer with some of them lacks the others, which is an error later.
    const bool has_one = std::ranges::any_of(
        std::array{"q_proj", "k_proj", "q_norm", "k_norm"}, [&](const char* tensor) {
          const std::string name = fmt::format("blk.{}.indexer.{}.weight", i, tensor);
          return metadata.file().FindTensor(name) != nullptr;
        });
    if (!has_one) continue;
    Attention& attention = attentions[i];
    indexer.rope = attention.rope;
    KVANT_TRY(CheckRotation(metadata, indexer, model.ropes));
    if (attention.kv_heads % indexer.shape.heads != 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: expected a divisor of {} kv heads, found {}",
                       metadata.file().path(), metadata.Key("attention.indexer.head_count"),
                       attention.kv_heads, indexer.shape.heads);
    }
    attention.indexer = indexer;
  }
  return {};
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_TRY(AddIndexers(metadata, model, attentions));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .shared = SharedExpert::kPlain,
                                   .activation = cpu::Activation::kSwigluClamped}));
  return model;
}

constexpr std::string_view kClasses[] = {"MiniMaxM3SparseForConditionalGeneration",
                                         "MiniMaxM3SparseForCausalLM", "MiniMaxM3VLForCausalLM"};
constexpr std::string_view kActivations[] = {"swigluoai", "silu"};
constexpr double kBase = 5e6;
constexpr double kGateFactor = 1.702;  // of cpu::Activation::kSwigluClamped, with its limit
constexpr double kGateLimit = 7.0;
constexpr int64_t kIndexMax = 1 << 20;  // positions of a block, and blocks

constexpr std::array<HfTensor, 1> kSelectionBias = {
    HfOfExperts("model.layers.{}.block_sparse_moe.e_score_correction_bias",
                "blk.{}.exp_probs_b.bias", Extent::kExperts, Extent::kNone)};

constexpr auto kExperts =
    Join(kHfBlockSparseRouter, kSelectionBias, kHfBlockSparseExperts, kHfBlockSparseSharedExpert);

constexpr std::array<HfTensor, 4> kIndexer = {{
    HfOfIndexer("model.layers.{}.self_attn.index_q_proj.weight", "blk.{}.indexer.q_proj.weight",
                Extent::kIndexQRows, Extent::kDim),
    HfOfIndexer("model.layers.{}.self_attn.index_k_proj.weight", "blk.{}.indexer.k_proj.weight",
                Extent::kIndexHeadDim, Extent::kDim),
    HfOfIndexer("model.layers.{}.self_attn.index_q_norm.weight", "blk.{}.indexer.q_norm.weight",
                Extent::kIndexHeadDim),
    HfOfIndexer("model.layers.{}.self_attn.index_k_norm.weight", "blk.{}.indexer.k_norm.weight",
                Extent::kIndexHeadDim),
}};

constexpr auto kTensors = WithNormsPlusOne(
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kIndexer, kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kExperts));

// A number of the indexer: published folders keep them together, under other names.
Result<int64_t> IndexNumber(const JsonObject& config, std::string_view key,
                            std::string_view published, int64_t max) {
  KVANT_ASSIGN(const auto own, config.Object("sparse_attention_config"));
  if (own && own->Find(published) != nullptr) return own->Count(published, max);
  return config.Count(key, max);
}

// Says for each layer whether it is of a kind, by the numbers 0 and 1 of `flags` or by names.
Result<std::vector<bool>> LayersOf(const JsonObject& config, const Json* flags,
                                   std::string_view names, std::string_view kind, int64_t layers,
                                   bool otherwise) {
  std::vector<bool> are(static_cast<size_t>(layers), otherwise);
  const Json* list = flags != nullptr ? flags : config.Find(names);
  if (list == nullptr || list->is_null()) return are;
  if (!list->is_array() || std::ssize(*list) < layers) {
    return config.Wrong(names, fmt::format("an array for {} layers", layers));
  }
  for (size_t i = 0; i < are.size(); ++i) {
    const Json& one = (*list)[i];
    are[i] = flags != nullptr ? one != 0 : one == Json(kind);
  }
  return are;
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(shape.index_heads,
               IndexNumber(config, "index_n_heads", "sparse_num_index_heads", kHeadsMax));
  KVANT_ASSIGN(shape.index_dim,
               IndexNumber(config, "index_head_dim", "sparse_index_dim", kHeadDimMax));
  KVANT_ASSIGN(const auto own, config.Object("sparse_attention_config"));
  const Json* flags = own ? own->Find("sparse_attention_freq") : nullptr;
  KVANT_ASSIGN(shape.index_layers,
               LayersOf(config, flags, "layer_types", "minimax_m3_sparse", shape.layers, false));
  return {};
}

Status CheckGates(const JsonObject& config) {
  KVANT_ASSIGN(const auto factor, config.Number("swiglu_alpha"));
  if (factor.value_or(kGateFactor) != kGateFactor) {
    return config.Wrong("swiglu_alpha", fmt::format("{}", kGateFactor));
  }
  KVANT_ASSIGN(const auto limit, config.Number("swiglu_limit"));
  if (limit.value_or(kGateLimit) == kGateLimit) return {};
  return config.Wrong("swiglu_limit", fmt::format("{}", kGateLimit));
}

Status AddRotation(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto given, config.Integer("rotary_dim", shape.head_dim));
  if (given) out.rope_share = static_cast<double>(*given) / static_cast<double>(shape.head_dim);
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  if (n_rot > shape.index_dim) {
    return config.Wrong("index_head_dim", fmt::format("at least {}", n_rot));
  }
  return AddRopeScaling(config, shape, n_rot, out);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(CheckGates(config));
  KVANT_TRY(AddRotation(config, shape, out));
  KVANT_ASSIGN(const auto experts, LayersOf(config, config.Find("moe_layer_freq"),
                                            "mlp_layer_types", "sparse", shape.layers, true));
  AddSigmoidGating(std::ranges::find(experts, true) - experts.begin(), out);
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  const auto add = [&](std::string_view key, std::string_view published,
                       std::string_view name) -> Status {
    KVANT_ASSIGN(const int64_t number, IndexNumber(config, key, published, kIndexMax));
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(number));
    return {};
  };
  KVANT_ASSIGN(const int64_t most,
               IndexNumber(config, "index_topk_blocks", "sparse_topk_blocks", kIndexMax));
  AddIndexSizes(shape, most, out);
  // llama.cpp multiplies the width of the shared expert, which is this one's, by it.
  out.writer->AddU32(out.Key("expert_shared_count"), 1);
  KVANT_TRY(add("index_block_size", "sparse_block_size", "attention.indexer.block_size"));
  return add("index_local_blocks", "sparse_local_block", "attention.indexer.local_blocks");
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .keys = {.ffn = "dense_intermediate_size"},
    .finish_shape = FinishShape,
    .rope_base = kBase,
    .rope_share = 0.5,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_local_experts",
                .ffn = "intermediate_size",
                .shared_ffn = "shared_intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "MiniMax M3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::minimax_m3
