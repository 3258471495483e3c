// Qwen 3.8 Flash-Next, which calls itself Qwen 4 (experimental): the delta nets, attentions and
// experts of Qwen 3.5 MoE, with hyper-connections of several streams in place of norms around them.
// Attention sees the blocks of positions that an indexer chooses by one key for each, and one layer
// adds embeddings of hashed n-grams. Norms multiply by 1 + weight in folders.
#include <algorithm>
#include <array>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/delta_mixers.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_indexer.h"
#include "engine/arch/hf/hf_ngrams.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_stacked_experts.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/limits.h"

namespace kvant::arch::qwen4exp {
namespace {

constexpr std::string_view kName = "qwen4exp";

// ---- The model's computation --------------------------------------------------------------------

// Gives the attentions indexers, by the positions that a block of each layer has; 0: none.
Status AddIndexers(const Metadata& metadata, const ModelSpec& model, std::vector<Block>& mixers) {
  constexpr const char* kRatios = "attention.compress_ratios";
  if (!metadata.Has(kRatios)) return {};
  KVANT_TRY(ReadIndexer(metadata, IndexUnits::kPositions));  // whether a layer has one or not
  KVANT_ASSIGN(const auto blocks,
               metadata.CountOrNonePerLayer(kRatios, mixers.size(), kConvTapsMax));
  for (size_t i = 0; i < mixers.size(); ++i) {
    auto* attention = std::get_if<Attention>(&mixers[i]);
    if (attention == nullptr || blocks[i] == 0) continue;
    if (blocks[i] == 1) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: key {}: blocks of 1 position are not supported, expected 0 or 2 to {}",
                       metadata.file().path(), metadata.Key(kRatios), kConvTapsMax);
    }
    KVANT_ASSIGN(attention->indexer, ReadPoolIndexer(metadata, blocks[i]));
    attention->indexer->epsilon = model.stacks.front().final_norm.epsilon;
    attention->indexer->rope = attention->rope;
    KVANT_TRY(CheckRotation(metadata, *attention->indexer, model.ropes));
  }
  return {};
}

// Puts hyper-connections in front of the blocks, and the n-grams in front of their layer's.
Status AddStreams(const Metadata& metadata, Stack& stack) {
  const float epsilon = stack.final_norm.epsilon;
  KVANT_ASSIGN(stack.hyper, ReadHyperStreams(metadata, stack.dim, epsilon));
  for (LayerSpec& layer : stack.layers) {
    layer.sublayers[0].connection = "hc_attn";
    layer.sublayers[1].connection = "hc_ffn";
  }
  KVANT_ASSIGN(const auto ngrams, ReadNgrams(metadata, stack.layers.size(), epsilon));
  if (ngrams.has_value()) {
    std::vector<Sublayer>& first = stack.layers[ngrams->layer].sublayers;
    first.insert(first.begin(), Sublayer{.norm_before = {}, .block = ngrams->input});
  }
  stack.final_norm = {NormKind::kNone, "", epsilon};  // the last connection stands in its place
  return {};
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto mixers, ReadDeltaMixers(metadata, stack, ValueHeads::kTiled, model.ropes));
  for (Block& mixer : mixers) {
    if (auto* net = std::get_if<DeltaNet>(&mixer)) {
      net->gate_activation = cpu::Activation::kSigmoid;
    }
  }
  KVANT_TRY(AddIndexers(metadata, model, mixers));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {.before_attention = "", .before_ffn = ""},
                                  mixers, {.normalize = true, .shared = SharedExpert::kGated}));
  KVANT_TRY(AddStreams(metadata, stack));
  return model;
}

// ---- Folders of Hugging Face --------------------------------------------------------------------

constexpr std::string_view kClasses[] = {"Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"};
constexpr int64_t kIndexMax = 1 << 20;  // positions that an indexer chooses
constexpr int64_t kStreamsUsual = 4;
constexpr int64_t kRankUsual = 320;

constexpr std::array<HfTensor, 2> kEnds = {kHfEnds[0], kHfEnds[2]};

constexpr HfTensor PlusOne(std::string_view hf_name, std::string_view gguf_name, Extent size) {
  return {.hf_name = hf_name, .gguf_name = gguf_name, .rows = size, .values = Values::kPlusOne};
}

constexpr std::array<HfTensor, 11> kConnections = {{
    PlusOne("model.hyper_connection_mixer.hc_norm.weight", "output_hc_norm.weight",
            Extent::kAllStreams),
    HfMatrix("model.hyper_connection_mixer.input_mix_weight_down.weight", "output_hc_down.weight",
             Extent::kHyperRank, Extent::kAllStreams),
    HfMatrix("model.hyper_connection_mixer.input_mix_weight_up.weight", "output_hc_up.weight",
             Extent::kAllStreams, Extent::kHyperRank),
    PlusOne("model.layers.{}.attn_hyper_connection.hc_norm.weight", "blk.{}.hc_attn_norm.weight",
            Extent::kAllStreams),
    HfMatrix("model.layers.{}.attn_hyper_connection.input_mix_weight_down.weight",
             "blk.{}.hc_attn_down.weight", Extent::kHyperRank, Extent::kAllStreams),
    HfMatrix("model.layers.{}.attn_hyper_connection.input_mix_weight_up.weight",
             "blk.{}.hc_attn_up.weight", Extent::kAllStreams, Extent::kHyperRank),
    HfMatrix("model.layers.{}.attn_hyper_connection.block_inject_weight.weight",
             "blk.{}.hc_attn_inject.weight", Extent::kStreams, Extent::kAllStreams),
    PlusOne("model.layers.{}.mlp_hyper_connection.hc_norm.weight", "blk.{}.hc_ffn_norm.weight",
            Extent::kAllStreams),
    HfMatrix("model.layers.{}.mlp_hyper_connection.input_mix_weight_down.weight",
             "blk.{}.hc_ffn_down.weight", Extent::kHyperRank, Extent::kAllStreams),
    HfMatrix("model.layers.{}.mlp_hyper_connection.input_mix_weight_up.weight",
             "blk.{}.hc_ffn_up.weight", Extent::kAllStreams, Extent::kHyperRank),
    HfMatrix("model.layers.{}.mlp_hyper_connection.block_inject_weight.weight",
             "blk.{}.hc_ffn_inject.weight", Extent::kStreams, Extent::kAllStreams),
}};

constexpr HfTensor OfIndexQk(std::string_view gguf_name, Extent rows, RowPart part) {
  HfTensor tensor = HfMatrix("model.layers.{}.self_attn.indexer.index_qk_proj.weight", gguf_name,
                             rows, Extent::kDim);
  tensor.part = part;
  return tensor;
}

constexpr std::array<HfTensor, 5> kAttention = {{
    PlusOne("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight",
            Extent::kHeadDim),
    OfIndexQk("blk.{}.indexer.q_proj.weight", Extent::kIndexQRows, RowPart::kIndexQueries),
    OfIndexQk("blk.{}.indexer.k_proj.weight", Extent::kIndexHeadDim, RowPart::kIndexKey),
    PlusOne("model.layers.{}.self_attn.indexer.q_layernorm.weight", "blk.{}.indexer.q_norm.weight",
            Extent::kIndexHeadDim),
    PlusOne("model.layers.{}.self_attn.indexer.k_layernorm.weight", "blk.{}.indexer.k_norm.weight",
            Extent::kIndexHeadDim),
}};

constexpr auto kTensors = Join(
    kEnds, kConnections, InAttentionLayers(Join(WithNormsPlusOne(kHfGatedAttention), kAttention)),
    InOtherLayers(Join(kHfTiledDelta, kHfDeltaNorm)), kHfNgrams, kHfStackedOrEachExperts,
    kHfGatedSharedExpert);

Status FinishShape(const JsonObject& config, HfShape& shape) {
  // Transformers has another word for attention with an indexer; published folders have the usual.
  KVANT_TRY(ReadDeltaLayers(
      config, {.other = "linear_attention", .older_attention = "indexed_attention"}, shape));
  KVANT_ASSIGN(const auto streams, config.Integer("hc_count", graph::kStreamsMax));
  shape.streams = streams.value_or(kStreamsUsual);
  if (shape.streams < 2) return config.Wrong("hc_count", "at least 2");
  KVANT_ASSIGN(const auto rank, config.Integer("hc_lowrank", kDimMax));
  shape.hyper_rank = rank.value_or(kRankUsual);
  if (shape.hyper_rank < 1) return config.Wrong("hc_lowrank", "at least 1");
  KVANT_ASSIGN(shape.index_heads, config.Count("indexer_n_heads", kHeadsMax));
  KVANT_ASSIGN(shape.index_dim, config.Count("indexer_head_dim", kHeadDimMax));
  return ReadNgramShape(config, shape);
}

// The sigmoid is what the GGUF architecture knows.
Status CheckGates(const JsonObject& config) {
  KVANT_ASSIGN(const auto gate, config.String("output_gate_type"));
  KVANT_ASSIGN(const auto otherwise, config.String("hidden_act"));
  const std::string found = gate.has_value() ? *gate : otherwise.value_or("silu");
  if (found == "sigmoid") return {};
  return MakeError(ErrorCode::kNotSupported, "{}: \"{}\" is not supported, expected \"sigmoid\"",
                   config.Where("output_gate_type"), found);
}

Status AddIndexer(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t keys, config.Count("indexer_kv_heads", kHeadsMax));
  if (keys != 1) return config.Wrong("indexer_kv_heads", "1");
  KVANT_ASSIGN(const int64_t block, config.Count("indexer_compress_ratio", kConvTapsMax));
  KVANT_ASSIGN(const int64_t budget, config.Count("indexer_budget", kIndexMax));
  if (block < 2) return config.Wrong("indexer_compress_ratio", "at least 2");
  if (budget % block != 0) {
    return config.Wrong("indexer_budget", fmt::format("a multiple of {}", block));
  }
  AddIndexSizes(shape, budget, out);
  std::vector<int32_t> blocks;
  for (const bool attention : shape.attention_layers) {
    blocks.push_back(attention ? static_cast<int32_t>(block) : 0);
  }
  out.writer->AddI32s(out.Key("attention.compress_ratios"), blocks);
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(CheckGates(config));
  KVANT_TRY(AddSectionedDelta(config, shape, out));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  out.writer->AddU32(out.Key("hyper_connection.count"), static_cast<uint32_t>(shape.streams));
  out.writer->AddU32(out.Key("hyper_connection.low_rank"), static_cast<uint32_t>(shape.hyper_rank));
  KVANT_TRY(AddIndexer(config, shape, out));
  return AddNgramParameters(config, shape, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.ffn = ""},
    .finish_shape = FinishShape,
    .rope_share = 1,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_ffn = "shared_expert_intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen 3.8 Flash-Next", .read = Read, .hf = kHf};

}  // namespace kvant::arch::qwen4exp
