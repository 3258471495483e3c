// Llama 4, the text model: layers whose attention sees only the section of the sequence that the
// query is in, with a rotary embedding over neighbouring pairs and norms without weights behind it;
// every fourth layer sees everything, has no rotation, and sharpens queries with their position.
// Experts, one for each token and one for all, stand in every n-th layer; the router's weight
// multiplies what an expert reads.
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/graph/attention/attention_nodes.h"

namespace kvant::arch::llama4 {
namespace {

constexpr std::string_view kName = "llama4";
constexpr int64_t kPattern = 4;  // layers that see everything

// The settings of the released models, which files do not say.
constexpr int64_t kSection = 8192;
constexpr float kTemperatureScale = 0.1f;
constexpr int64_t kTemperatureLength = 8192;
constexpr float kTemperatureOffset = 1.0f;

// Maverick has no norms of queries and keys and is known by its experts.
constexpr int64_t kExpertsWithoutNorms = 128;

constexpr const char* kWindowKey = "attention.sliding_window";
constexpr const char* kScaleKey = "attention.temperature_scale";
constexpr const char* kLengthKey = "attention.temperature_length";

Result<graph::QueryTemperature> ReadTemperatureOr(const Metadata& metadata) {
  graph::QueryTemperature temperature = {.offset = kTemperatureOffset};
  KVANT_ASSIGN(temperature.scale, metadata.PositiveOr(kScaleKey, kTemperatureScale));
  KVANT_ASSIGN(const int64_t length, metadata.CountOr(kLengthKey, kContextMax, kTemperatureLength));
  temperature.length = static_cast<float>(length);
  return temperature;
}

// Reads which positions each layer sees. A window of 0 means that all layers see all positions and
// rotate.
Status ReadMasks(const Metadata& metadata, std::vector<Attention>& attentions) {
  KVANT_ASSIGN(const auto given, metadata.file().GetU32(metadata.Key(kWindowKey)));
  if (given == 0u) return {};
  KVANT_ASSIGN(const graph::QueryTemperature temperature, ReadTemperatureOr(metadata));
  KVANT_ASSIGN(const std::vector<bool> sections,
               ReadWindowPattern(metadata, attentions.size(), kPattern));
  for (size_t i = 0; i < attentions.size(); ++i) {
    Attention& attention = attentions[i];
    if (sections[i]) {
      attention.mask = {MaskKind::kSections, given.has_value() ? int64_t{*given} : kSection};
      continue;
    }
    attention.mask = {};
    attention.rope = Attention::kNoRope;
    attention.temperature = temperature;
  }
  return {};
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_TRY(ReadMasks(metadata, attentions));
  KVANT_ASSIGN(const int64_t experts, metadata.CountOr("expert_count", kExpertsMax, 0));
  for (Attention& attention : attentions) {
    const bool normed = attention.rope != Attention::kNoRope && experts != kExpertsWithoutNorms;
    attention.head_norms = normed ? HeadNorms::kWithoutWeights : HeadNorms::kNone;
    attention.head_norm_order = graph::NormOrder::kAfterRope;
  }
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .shared = SharedExpert::kPlain,
                                   .by_logits = true,
                                   .weighs = graph::Weighs::kInput}));
  return model;
}

constexpr std::string_view kClasses[] = {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"};
constexpr double kRopeBase = 500000.0;

// The folder has the matrices of experts as [experts, columns, rows].
constexpr HfTensor OfExperts(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                             Extent columns, RowPart part = RowPart::kAll) {
  HfTensor tensor = HfOfExperts(hf_name, gguf_name, rows, columns, ExpertForm::kStacked, part);
  tensor.order = RowOrder::kTransposed;
  return tensor;
}

constexpr std::string_view kGateUp = "model.layers.{}.feed_forward.experts.gate_up_proj";

constexpr std::array<HfTensor, 10> kFeedForward = {
    HfOfExperts("model.layers.{}.feed_forward.router.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    OfExperts(kGateUp, "blk.{}.ffn_gate_exps.weight", Extent::kExpertFfn, Extent::kDim,
              RowPart::kFirstHalf),
    OfExperts(kGateUp, "blk.{}.ffn_up_exps.weight", Extent::kExpertFfn, Extent::kDim,
              RowPart::kSecondHalf),
    OfExperts("model.layers.{}.feed_forward.experts.down_proj", "blk.{}.ffn_down_exps.weight",
              Extent::kDim, Extent::kExpertFfn),
    HfOfExperts("model.layers.{}.feed_forward.shared_expert.gate_proj.weight",
                "blk.{}.ffn_gate_shexp.weight", Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.feed_forward.shared_expert.up_proj.weight",
                "blk.{}.ffn_up_shexp.weight", Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.feed_forward.shared_expert.down_proj.weight",
                "blk.{}.ffn_down_shexp.weight", Extent::kDim, Extent::kSharedFfn),
    WithoutExperts(std::array{HfMatrix("model.layers.{}.feed_forward.gate_proj.weight",
                                       "blk.{}.ffn_gate.weight", Extent::kFfn, Extent::kDim)})
        .front(),
    WithoutExperts(std::array{HfMatrix("model.layers.{}.feed_forward.up_proj.weight",
                                       "blk.{}.ffn_up.weight", Extent::kFfn, Extent::kDim)})
        .front(),
    WithoutExperts(std::array{HfMatrix("model.layers.{}.feed_forward.down_proj.weight",
                                       "blk.{}.ffn_down.weight", Extent::kDim, Extent::kFfn)})
        .front(),
};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, kFeedForward);

// Whether each layer sees everything and is not rotated. Empty: all see everything and are rotated.
Result<std::vector<bool>> ReadLayers(const JsonObject& config, const HfShape& shape) {
  const auto count = static_cast<size_t>(shape.layers);
  KVANT_ASSIGN(const auto rotated, config.Numbers("no_rope_layers"));
  KVANT_ASSIGN(const auto interval, config.Integer("no_rope_layer_interval", kLayersMax));
  const auto every = static_cast<size_t>(interval.value_or(kPattern));
  const bool listed = rotated.has_value() && !rotated->empty();
  if (listed && rotated->size() != count) {
    return config.Wrong("no_rope_layers", fmt::format("{} numbers", count));
  }
  if (!listed && every == 0) return config.Wrong("no_rope_layer_interval", "at least 1");
  const formats::Json* types = config.Find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != count)) {
    return config.Wrong("layer_types", fmt::format("an array of {} texts", count));
  }
  std::vector<bool> full;
  bool all_see_everything = types != nullptr;
  bool contradiction = false;
  for (size_t i = 0; i < count; ++i) {
    full.push_back(listed ? (*rotated)[i] == 0 : (i + 1) % every == 0);
    if (types == nullptr) continue;
    const bool sees_everything = (*types)[i] == "full_attention";
    all_see_everything = all_see_everything && sees_everything && !full[i];
    contradiction = contradiction || sees_everything != full[i];
  }
  if (all_see_everything) return std::vector<bool>();
  if (!contradiction) return full;
  return MakeError(ErrorCode::kNotSupported,
                   "{}: expected full_attention in the layers without rotation only, or in all "
                   "layers and all of them with rotation",
                   config.Where("layer_types"));
}

// Writes which layers see everything: the layers whose number is a multiple of some number.
Status AddPattern(const JsonObject& config, const std::vector<bool>& full, Parameters& out) {
  const auto follows = [&full](size_t pattern) {
    for (size_t i = 0; i < full.size(); ++i) {
      if (full[i] != ((i + 1) % pattern == 0)) return false;
    }
    return true;
  };
  if (follows(kPattern)) return {};
  for (size_t pattern = 1; pattern <= full.size(); ++pattern) {
    if (!follows(pattern)) continue;
    out.writer->AddU32(out.Key("attention.sliding_window_pattern"), static_cast<uint32_t>(pattern));
    return {};
  }
  return MakeError(ErrorCode::kNotSupported,
                   "{}: expected every n-th layer alone to be without rotation",
                   config.Where("no_rope_layers"));
}

// A flag that some files have as a number.
bool IsOff(const formats::Json* value) {
  return value != nullptr && (*value == false || *value == 0);
}

Status AddTemperature(const JsonObject& config, Parameters& out) {
  if (IsOff(config.Find("attn_temperature_tuning"))) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: false is not supported where layers have no rotation",
                     config.Where("attn_temperature_tuning"));
  }
  KVANT_ASSIGN(const auto scale, config.Number("attn_scale"));
  if (scale && !(*scale > 0)) return config.Wrong("attn_scale", "a positive number");
  if (scale && static_cast<float>(*scale) != kTemperatureScale) {
    out.writer->AddF32(out.Key(kScaleKey), static_cast<float>(*scale));
  }
  KVANT_ASSIGN(const auto length, config.Integer("floor_scale", kContextMax));
  if (length == 0) return config.Wrong("floor_scale", "at least 1");
  if (length.value_or(kTemperatureLength) != kTemperatureLength) {
    out.writer->AddU32(out.Key(kLengthKey), static_cast<uint32_t>(*length));
  }
  return {};
}

Status AddMasks(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const std::vector<bool> full, ReadLayers(config, shape));
  if (full.empty()) {
    out.writer->AddU32(out.Key(kWindowKey), 0);
    return {};
  }
  KVANT_ASSIGN(const auto section, config.Integer("attention_chunk_size", kContextMax));
  if (section == 0) return config.Wrong("attention_chunk_size", "at least 1");
  if (section.value_or(kSection) != kSection) {
    out.writer->AddU32(out.Key(kWindowKey), static_cast<uint32_t>(*section));
  }
  KVANT_TRY(AddPattern(config, full, out));
  return AddTemperature(config, out);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddMasks(config, shape, out));
  KVANT_ASSIGN(const auto normed, config.Bool("use_qk_norm"));
  if (normed.value_or(true) == (shape.experts == kExpertsWithoutNorms)) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: expected true, or false in a model with {} experts, whose files say it "
                     "by that number",
                     config.Where("use_qk_norm"), kExpertsWithoutNorms);
  }
  // Other engines want both also where there are no experts.
  KVANT_ASSIGN(const auto step, config.Integer("interleave_moe_layer_step", kLayersMax));
  out.writer->AddU32(out.Key("interleave_moe_layer_step"), static_cast<uint32_t>(step.value_or(1)));
  if (shape.experts == 0) {
    KVANT_ASSIGN(const int64_t width, config.Count("intermediate_size", kDimMax));
    out.writer->AddU32(out.Key("expert_feed_forward_length"), static_cast<uint32_t>(width));
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.ffn = "intermediate_size_mlp"},
    .rope_base = kRopeBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_local_experts",
                .ffn = "intermediate_size",
                .shared_ffn = "intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Llama 4", .read = Read, .hf = kHf};

}  // namespace kvant::arch::llama4
