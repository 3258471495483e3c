// LFM2: gated convolutions over the last rows, and attention with norms of heads in the layers that
// have kv heads. The norm that files name after the embedding is the final norm.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::lfm2 {
namespace {

constexpr std::string_view kName = "lfm2";
constexpr double kRopeBase = 1000000.0;
constexpr double kFfnFactorMax = 16;
constexpr int64_t kUsualMultiple = 256;  // of the width of feed-forwards

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  stack.final_norm.tensor = "token_embd_norm";
  KVANT_ASSIGN(auto attentions, ReadSomeAttentions(metadata, stack));
  for (auto& attention : attentions) {
    if (attention.has_value()) attention->head_norms = HeadNorms::kRequired;
  }
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const ShortConv conv, ReadShortConv(metadata));
  KVANT_ASSIGN(const auto gated, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, MixersOf(attentions, conv), std::vector<Block>(gated.begin(), gated.end()));
  return model;
}

constexpr std::string_view kClasses[] = {"Lfm2ForCausalLM"};

constexpr auto kTensors = Join(
    HfEmbedding("model.embed_tokens.weight"),
    HfNorm("model.embedding_norm.weight", "token_embd_norm.weight"), HfOutput("lm_head.weight"),
    HfNorm("model.layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight"),
    InAttentionLayers(kHfSeparateQkv), InAttentionLayers(kHfQueryKeyLayerNorms),
    InAttentionLayers(kHfAttentionOut), InOtherLayers(kHfShortConv),
    HfNorm("model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight"), kHfFeedForward);

// The width that the class makes of the one in config.json.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  if (config.Find("block_ff_dim") != nullptr) {
    KVANT_ASSIGN(shape.ffn, config.Count("block_ff_dim", kDimMax));
  }
  KVANT_ASSIGN(const auto adjusted, config.Bool("block_auto_adjust_ff_dim"));
  if (adjusted.value_or(true)) {
    KVANT_ASSIGN(const auto factor, config.Number("block_ffn_dim_multiplier"));
    KVANT_ASSIGN(const auto multiple, config.Integer("block_multiple_of", kDimMax));
    if (factor.has_value() && !(*factor > 0 && *factor <= kFfnFactorMax)) {
      return config.Wrong("block_ffn_dim_multiplier", fmt::format("up to {}", kFfnFactorMax));
    }
    const int64_t whole = multiple.value_or(kUsualMultiple);
    if (whole < 1) return config.Wrong("block_multiple_of", "at least 1");
    const auto width =
        static_cast<int64_t>(factor.value_or(1.0) * static_cast<double>(2 * shape.ffn / 3));
    shape.ffn = (width + whole - 1) / whole * whole;
  }
  return ReadConvLayers(config, shape);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("shortconv.l_cache"), static_cast<uint32_t>(shape.conv_taps));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

// Folders of models that make vectors have no output, and may see both sides.
constexpr auto kInnerTensors =
    Join(HfEmbedding("model.embed_tokens.weight"),
         HfNorm("model.embedding_norm.weight", "token_embd_norm.weight"),
         HfNorm("model.layers.{}.operator_norm.weight", "blk.{}.attn_norm.weight"),
         InAttentionLayers(kHfSeparateQkv), InAttentionLayers(kHfQueryKeyLayerNorms),
         InAttentionLayers(kHfAttentionOut), InOtherLayers(kHfShortConv),
         HfNorm("model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight"), kHfFeedForward);
constexpr std::string_view kInnerClasses[] = {"Lfm2Model"};
constexpr std::string_view kBothSidedClasses[] = {"Lfm2BidirectionalModel"};

Status AddBothSided(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddBool(out.Key("attention.causal"), false);
  return AddParameters(config, shape, out);
}

constexpr HfFamily Row(std::span<const std::string_view> classes, std::span<const HfTensor> tensors,
                       Status (*add_parameters)(const JsonObject&, const HfShape&, Parameters&)) {
  return {.classes = classes,
          .arch = kName,
          .activation = kSiluActivation,
          .epsilon = {.key = "norm_eps"},
          .finish_shape = FinishShape,
          .optional_prefix = "model.",
          .rope_base = kRopeBase,
          .tensors = tensors,
          .add_parameters = add_parameters};
}

constexpr HfFamily InnerRow() {
  HfFamily row = Row(kInnerClasses, kInnerTensors, AddParameters);
  row.is_inner = true;
  return row;
}

constexpr HfFamily kHf[] = {Row(kClasses, kTensors, AddParameters), InnerRow(),
                            Row(kBothSidedClasses, kInnerTensors, AddBothSided)};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "LFM2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::lfm2
