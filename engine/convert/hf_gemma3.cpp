// Gemma 3, the text models: weights of norms are stored less one, layers with a window and layers
// without alternate in a fixed pattern, and each kind has a rotary base of its own.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/convert/hf_family.h"
#include "engine/convert/rope_scaling.h"

namespace kvant::convert {
namespace {

constexpr std::string_view kClasses[] = {"Gemma3ForCausalLM"};
constexpr std::string_view kGeluNames[] = {"gelu_pytorch_tanh"};

// What readers of the format assume; the keys are written only where a model differs.
constexpr int64_t kPatternDefault = 6;
constexpr double kLocalBaseDefault = 10000;
constexpr int64_t kLayers27b = 62;

constexpr HfTensor Norm(std::string_view hf_name, std::string_view gguf_name, Extent size) {
  return {.hf_name = hf_name, .gguf_name = gguf_name, .rows = size, .values = Values::kPlusOne};
}

constexpr HfTensor kTensors[] = {
    {"model.embed_tokens.weight", kEmbeddingName, Extent::kVocab, Extent::kDim},
    Norm("model.norm.weight", "output_norm.weight", Extent::kDim),
    {"lm_head.weight", kOutputName, Extent::kVocab, Extent::kDim, RowOrder::kSame,
     Presence::kUnlessTied},
    Norm("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", Extent::kDim),
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", Extent::kQRows,
     Extent::kDim},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", Extent::kKvRows,
     Extent::kDim},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", Extent::kKvRows,
     Extent::kDim},
    Norm("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", Extent::kHeadDim),
    Norm("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", Extent::kHeadDim),
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
     Extent::kQRows},
    Norm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
         Extent::kDim),
    Norm("model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight",
         Extent::kDim),
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", Extent::kFfn, Extent::kDim},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", Extent::kFfn, Extent::kDim},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim, Extent::kFfn},
    Norm("model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight",
         Extent::kDim),
};

// Whether each layer of "layer_types" sees everything; empty if the file has none.
Result<std::vector<bool>> ReadLayerTypes(const JsonObject& config, int64_t layers) {
  std::vector<bool> is_global;
  const formats::Json* types = config.Find("layer_types");
  if (types == nullptr) return is_global;
  const auto count = static_cast<size_t>(layers);
  if (!types->is_array() || types->size() != count) {
    return config.Wrong("layer_types", fmt::format("an array of {} texts", count));
  }
  for (const formats::Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return config.Wrong("layer_types", "full_attention or sliding_attention for each layer");
    }
    is_global.push_back(type == "full_attention");
  }
  return is_global;
}

bool FollowsPattern(const std::vector<bool>& is_global, int64_t pattern) {
  for (size_t i = 0; i < is_global.size(); ++i) {
    if (is_global[i] != ((static_cast<int64_t>(i) + 1) % pattern == 0)) return false;
  }
  return true;
}

// Every how manieth layer sees everything.
Result<int64_t> ReadPattern(const JsonObject& config, int64_t layers) {
  KVANT_ASSIGN(const std::vector<bool> is_global, ReadLayerTypes(config, layers));
  if (is_global.empty()) {
    KVANT_ASSIGN(const auto pattern, config.Integer("sliding_window_pattern", INT32_MAX));
    if (pattern == 0) return config.Wrong("sliding_window_pattern", "at least 1");
    return pattern.value_or(kPatternDefault);
  }
  if (FollowsPattern(is_global, kPatternDefault)) return kPatternDefault;
  for (int64_t pattern = 1; pattern <= layers; ++pattern) {
    if (FollowsPattern(is_global, pattern)) return pattern;
  }
  return MakeError(ErrorCode::kNotSupported,
                   "{}: expected full_attention in every n-th layer and sliding_attention in the "
                   "others",
                   config.Where("layer_types"));
}

Status CheckSupported(const JsonObject& config) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.Find(key) == nullptr) continue;
    return MakeError(ErrorCode::kNotSupported, "{} is not supported for this class",
                     config.Where(key));
  }
  KVANT_ASSIGN(const auto bidirectional, config.Bool("use_bidirectional_attention"));
  if (!bidirectional.value_or(false)) return {};
  return MakeError(ErrorCode::kNotSupported, "{}: true is not supported",
                   config.Where("use_bidirectional_attention"));
}

// The scale of queries times keys, where readers would assume another.
Status AddScale(const JsonObject& config, const HfShape& shape, Parameters& out) {
  constexpr const char* kKey = "query_pre_attn_scalar";
  KVANT_ASSIGN(const auto scalar, config.Number(kKey));
  if (!scalar || !(*scalar > 0)) return config.Wrong(kKey, "a positive number");
  const double assumed = shape.layers == kLayers27b
                             ? static_cast<double>(shape.dim) / static_cast<double>(shape.heads)
                             : static_cast<double>(shape.head_dim);
  if (*scalar == assumed) return {};
  out.writer->AddF32(out.Key("attention.scale"), static_cast<float>(1.0 / std::sqrt(*scalar)));
  return {};
}

Status AddRope(const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const float local_base, ReadRopeBaseOf("sliding_attention", "rope_local_base_freq",
                                                      config, kLocalBaseDefault));
  if (local_base != static_cast<float>(kLocalBaseDefault)) {
    out.writer->AddF32(out.Key("rope.freq_base_swa"), local_base);
  }
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (!scaling) return {};
  if (scaling->type != "linear") return scaling->Unsupported("default, linear");
  return AddLinearScaling(*scaling, out);
}

Status AddGemma3Parameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(CheckSupported(config));
  if (config.Find("head_dim") == nullptr) return config.Wrong("head_dim", "a number");
  KVANT_ASSIGN(const int64_t window, config.Count("sliding_window", INT32_MAX));
  out.writer->AddU32(out.Key("attention.sliding_window"), static_cast<uint32_t>(window));
  KVANT_ASSIGN(const int64_t pattern, ReadPattern(config, shape.layers));
  if (pattern != kPatternDefault) {
    out.writer->AddU32(out.Key("attention.sliding_window_pattern"), static_cast<uint32_t>(pattern));
  }
  KVANT_TRY(AddScale(config, shape, out));
  return AddRope(config, out);
}

}  // namespace

extern const HfFamily kHfGemma3;
const HfFamily kHfGemma3 = {
    .classes = kClasses,
    .arch = "gemma3",
    .activation = {.key = "hidden_activation", .names = kGeluNames},
    .rope_base = 1000000.0,
    .tensors = kTensors,
    .add_parameters = AddGemma3Parameters,
};

}  // namespace kvant::convert
