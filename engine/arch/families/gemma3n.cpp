// Gemma 3n, the text models: four streams of which layers compute on one, a learned residual of low
// rank beside each attention, feed-forwards whose first layers have few active gates, and inputs of
// layers by the token. Queries and keys are normed with weights, values without; four layers with a
// window and their own rotary base for each that sees everything; the last layers read the keys and
// values of earlier ones.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::gemma3n {
namespace {

constexpr std::string_view kName = "gemma3n";
constexpr int64_t kPattern = 5;  // every fifth layer sees all positions
constexpr float kLocalBase = 10000.0f;
constexpr double kGlobalBase = 1000000.0;
constexpr const char* kSparsityKey = "activation_sparsity_scale";

// Gives feed-forwards their deviations; a number that is not finite is one of a layer without.
Status ReadSparsity(const Metadata& metadata, std::vector<GatedFfn>& ffns) {
  if (!metadata.Has(kSparsityKey)) return {};
  KVANT_ASSIGN(const formats::GgufArray* array,
               metadata.file().GetArray(metadata.Key(kSparsityKey), formats::GgufType::kFloat32));
  if (array->count != ffns.size()) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} numbers, found {}",
                     metadata.file().path(), metadata.Key(kSparsityKey), ffns.size(), array->count);
  }
  for (size_t i = 0; i < ffns.size(); ++i) {
    float deviations = 0;
    std::memcpy(&deviations, array->data + i * sizeof deviations, sizeof deviations);
    if (std::isfinite(deviations)) ffns[i].deviations = deviations;
  }
  return {};
}

Result<int64_t> ReadLaurelRank(const Metadata& metadata, const Stack& stack) {
  const std::string name = fmt::format("{}.0.laurel_l.weight", stack.layer_prefix);
  const formats::GgufTensor* left = metadata.file().FindTensor(name);
  if (left != nullptr && left->dims[1] <= int64_t{kDimMax}) return left->dims[1];
  return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected a matrix of at most {} rows",
                   metadata.file().path(), name, kDimMax);
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kGeluTanh));
  KVANT_TRY(ReadSparsity(metadata, ffns));
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  KVANT_ASSIGN(const float local_base, metadata.PositiveOr("rope.freq_base_swa", kLocalBase));
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!windows[i]) attentions[i].mask = {};
    attentions[i].scale = 1;
    attentions[i].head_norms = HeadNorms::kRequired;
    attentions[i].norm_values = true;
  }
  GiveLayersTheBase(local_base, windows, attentions, model.ropes);
  KVANT_TRY(ShareKeys(metadata, windows, attentions));
  KVANT_ASSIGN(const int64_t rank, ReadLaurelRank(metadata, stack));
  KVANT_ASSIGN(stack.streams, ReadStreams(metadata, stack.dim));
  KVANT_ASSIGN(stack.layer_inputs, ReadLayerInputs(metadata, stack));
  if (!stack.layer_inputs.has_value()) return metadata.Missing("embedding_length_per_layer_input");
  KVANT_ASSIGN(stack.output.cap, metadata.PositiveOr("final_logit_softcapping", 0));
  stack.input.scale = std::sqrt(static_cast<float>(stack.dim));
  const auto norm = [&stack](std::string_view tensor) {
    return Norm{NormKind::kRms, tensor, stack.final_norm.epsilon};
  };
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    stack.layers[i].sublayers = {
        {{}, PredictStreams{norm("altup_router_norm")}},
        {norm("attn_norm"), attentions[i], norm("post_attention_norm")},
        {{}, Laurel{rank, norm("attn_norm"), norm("laurel_post_norm")}},
        {norm("ffn_norm"), ffns[i], norm("post_ffw_norm")},
        {{}, CorrectStreams{norm("altup_router_norm")}},
        {{}, LayerInput{.width = stack.layer_inputs->width}, norm("post_norm")}};
  }
  return model;
}

constexpr std::string_view kClasses[] = {"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"};

constexpr HfTensor In(InLayers layers, HfTensor tensor) {
  tensor.layers = layers;
  return tensor;
}

constexpr HfTensor Repeated(HfTensor tensor) {
  tensor.order = RowOrder::kFirstBeyond;
  return tensor;
}

constexpr HfTensor OfStreams(std::string_view hf_name, std::string_view gguf_name) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = Extent::kDim,
          .columns = Extent::kDim,
          .experts = ExpertForm::kEachStream};
}

constexpr std::array<HfTensor, 8> kAttention = {
    kHfSeparateQkv[0],
    kHfSeparateQkv[1],
    In(InLayers::kWithKeys, kHfSeparateQkv[2]),
    In(InLayers::kWithKeys, kHfSeparateQkv[3]),
    In(InLayers::kWithKeys, kHfSeparateQkv[4]),
    In(InLayers::kWithKeys, kHfSeparateQkv[5]),
    kHfHeadNorms[0],
    In(InLayers::kWithKeys, kHfHeadNorms[1]),
};

constexpr std::array<HfTensor, 12> kStreams = {
    OfStreams("model.altup_projections.{}.weight", "altup_proj.weight"),
    OfStreams("model.altup_unembed_projections.{}.weight", "altup_unembd_proj.weight"),
    HfMatrix("model.layers.{}.altup.modality_router.weight", "blk.{}.altup_router.weight",
             Extent::kStreams, Extent::kDim),
    HfNorm("model.layers.{}.altup.router_norm.weight", "blk.{}.altup_router_norm.weight")[0],
    HfMatrix("model.layers.{}.altup.prediction_coefs.weight", "blk.{}.altup_predict_coef.weight",
             Extent::kStreamPairs, Extent::kStreams),
    HfMatrix("model.layers.{}.altup.correction_coefs.weight", "blk.{}.altup_correct_coef.weight",
             Extent::kStreams, Extent::kStreams),
    In(InLayers::kWithCorrectScale, HfNorm("model.layers.{}.altup.correct_output_scale",
                                           "blk.{}.altup_correct_scale.weight")[0]),
    HfMatrix("model.layers.{}.laurel.linear_left.weight", "blk.{}.laurel_l.weight", Extent::kLaurel,
             Extent::kDim),
    HfMatrix("model.layers.{}.laurel.linear_right.weight", "blk.{}.laurel_r.weight", Extent::kDim,
             Extent::kLaurel),
    HfNorm("model.layers.{}.laurel.post_laurel_norm.weight", "blk.{}.laurel_post_norm.weight")[0],
    Repeated(kHfLayerInputs[0]),
    kHfLayerInputs[1],
};

constexpr std::array<HfTensor, 4> kInputs = {kHfLayerInputs[2], kHfLayerInputs[3],
                                             kHfLayerInputs[4], kHfLayerInputs[5]};

constexpr auto kTensors =
    Join(kHfEnds, kStreams, kInputs, kHfNormBeforeAttention, kAttention, kHfAttentionOutput,
         kHfNormsBetweenSublayers, kHfSeparateGateUp, kHfDown, kHfNormAfterFfn);

// The width of each feed-forward: one number, or one for each layer.
Result<std::vector<int64_t>> ReadWidths(const JsonObject& config, int64_t layers) {
  constexpr const char* kKey = "intermediate_size";
  const formats::Json* value = config.Find(kKey);
  if (value == nullptr || !value->is_array()) {
    KVANT_ASSIGN(const int64_t width, config.Count(kKey, kDimMax));
    return std::vector<int64_t>(static_cast<size_t>(layers), width);
  }
  std::vector<int64_t> widths;
  for (const formats::Json& width : *value) {
    const bool good = width.is_number_unsigned() && width.get<uint64_t>() >= 1 &&
                      width.get<uint64_t>() <= kDimMax;
    if (!good) return config.Wrong(kKey, fmt::format("numbers from 1 to {}", kDimMax));
    widths.push_back(width.get<int64_t>());
  }
  if (std::ssize(widths) == layers) return widths;
  return config.Wrong(kKey, fmt::format("{} numbers", layers));
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const int64_t head_dim, config.Count("head_dim", kHeadDimMax));
  KVANT_ASSIGN(const auto widths, ReadWidths(config, shape.layers));
  KVANT_ASSIGN(const auto shared, config.Integer("num_kv_shared_layers", shape.layers - 1));
  for (int64_t i = 0; i < shape.layers; ++i) {
    const bool own = i < shape.layers - shared.value_or(0);
    shape.layer_sizes.push_back(
        {head_dim, shape.kv_heads, widths[static_cast<size_t>(i)], own, own});
  }
  KVANT_ASSIGN(shape.layer_inputs, config.Count("hidden_size_per_layer_input", kDimMax));
  KVANT_ASSIGN(shape.layer_input_vocab, config.Count("vocab_size_per_layer_input", shape.vocab));
  KVANT_ASSIGN(shape.streams, config.Count("altup_num_inputs", graph::kStreamsMax));
  if (shape.streams < 2) return config.Wrong("altup_num_inputs", "at least 2");
  KVANT_ASSIGN(shape.laurel, config.Count("laurel_rank", kDimMax));
  KVANT_ASSIGN(const auto scaled, config.Bool("altup_correct_scale"));
  shape.correct_scale = scaled.value_or(true);
  return {};
}

// The value that `share` of normally distributed values lies below, in deviations from the mean.
double NormalQuantile(double share) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    const double below = std::erfc(-middle / std::numbers::sqrt2) / 2;
    (below < share ? low : high) = middle;
  }
  return low;
}

Status AddSparsity(const JsonObject& config, const HfShape& shape, Parameters& out) {
  constexpr const char* kKey = "activation_sparsity_pattern";
  KVANT_ASSIGN(const auto shares, config.Numbers(kKey));
  if (!shares.has_value() || std::ssize(*shares) != shape.layers) {
    return config.Wrong(kKey, fmt::format("{} numbers", shape.layers));
  }
  std::vector<float> scales;
  for (const float share : *shares) {
    if (!(share >= 0 && share < 1)) return config.Wrong(kKey, "numbers from 0 to less than 1");
    const double scale = share > 0 ? NormalQuantile(static_cast<double>(share))
                                   : -std::numeric_limits<double>::infinity();
    scales.push_back(static_cast<float>(scale));
  }
  out.writer->AddF32s(out.Key(kSparsityKey), scales);
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&out](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  KVANT_ASSIGN(const auto active, config.Integer("altup_active_idx", graph::kStreamsMax));
  if (active.value_or(0) != 0) {
    return MakeError(ErrorCode::kNotSupported, "{}: {} is not supported, expected 0",
                     config.Where("altup_active_idx"), active.value_or(0));
  }
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  add("attention.key_length", shape.head_dim);
  add("attention.value_length", shape.head_dim);
  KVANT_ASSIGN(const float local_base,
               ReadWindowRopeBase(config, "rope_local_base_freq", kLocalBase));
  out.writer->AddF32(out.Key("rope.freq_base_swa"), local_base);
  int64_t shared = 0;
  for (const HfLayerSizes& sizes : shape.layer_sizes) shared += sizes.own_keys ? 0 : 1;
  add("attention.shared_kv_layers", shared);
  add("embedding_length_per_layer_input", shape.layer_inputs);
  add("altup.active_idx", 0);
  add("altup.num_inputs", shape.streams);
  KVANT_TRY(AddSparsity(config, shape, out));
  KVANT_ASSIGN(const auto cap, config.Number("final_logit_softcapping"));
  if (cap.has_value()) {
    KVANT_TRY(AddPositive(config, "final_logit_softcapping", "final_logit_softcapping", out));
  }
  return AddLinearScalingIfAny(config, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kGeluActivation,
    .keys = {.ffn = ""},
    .finish_shape = FinishShape,
    .rope_base = kGlobalBase,
    .window_ropes = true,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Gemma 3n", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gemma3n
