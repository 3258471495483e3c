// Mistral Small 4: latent attention as DeepSeek V2 and V3 have it, queries whose temperature grows
// with their position, and experts behind a softmax router. The rope rotates neighbouring pairs of
// the last dimensions of a head.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/graph/attention/attention_nodes.h"
#include "engine/limits.h"

namespace kvant::arch::mistral4 {
namespace {

constexpr std::string_view kName = "mistral4";
constexpr const char* kTemperatureLengthKey = "attention.temperature_length";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions,
               ReadLatentAttentions(metadata, stack, cpu::RopeStyle::kInterleaved, model.ropes));
  KVANT_ASSIGN(const graph::QueryTemperature temperature,
               ReadTemperature(metadata, kTemperatureLengthKey));
  for (LatentAttention& attention : attentions) attention.temperature = temperature;
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.normalize = true,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain}));
  return model;
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishLatentShape(config, shape));
  shape.kv_heads = 1;  // of the cache
  return {};
}

constexpr std::array<HfTensor, 4> kExperts = {
    kHfExperts[0],
    HfOfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kFirstHalf),
    HfOfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kSecondHalf),
    HfOfExperts("model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight",
                Extent::kDim, Extent::kExpertFfn, ExpertForm::kStacked),
};

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfLatentProjections, kHfLatentKvOfHeads, kHfNormBeforeFfn,
    WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kExperts, kHfSharedExperts);

constexpr std::string_view kBeta = "llama_4_scaling_beta";
constexpr std::string_view kRopeNames[] = {kBeta, "max_position_embeddings"};

Status AddTemperature(const JsonObject& config, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  if (!settings.Has(kBeta)) return {};
  KVANT_ASSIGN(const double beta, settings.PositiveOr(kBeta, 0));
  KVANT_ASSIGN(const auto original,
               settings.Integer("original_max_position_embeddings", kContextMax));
  if (original.value_or(0) == 0) return settings.Wrong(kBeta, "an original context beside it");
  out.writer->AddF32(out.Key(kTemperatureScaleKey), static_cast<float>(beta));
  out.writer->AddU32(out.Key(kTemperatureLengthKey), static_cast<uint32_t>(*original));
  return {};
}

// The share of a head that is rotated follows from its sizes.
Status CheckShare(const JsonObject& config, const HfShape& shape) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  KVANT_ASSIGN(const auto share, settings.Number("partial_rotary_factor"));
  const double rotated = share.value_or(1) == 1 ? static_cast<double>(shape.rope)
                                                : *share * static_cast<double>(shape.head_dim);
  if (static_cast<int64_t>(std::lround(rotated)) == shape.rope) return {};
  return settings.Wrong("partial_rotary_factor", "the share of qk_rope_head_dim");
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(CheckShare(config, shape));
  constexpr uint32_t kSoftmax = 1;  // in expert_gating_func
  KVANT_ASSIGN(const auto interleaved, config.Bool("rope_interleave"));
  if (!interleaved.value_or(true)) return config.Wrong("rope_interleave", "true");
  AddLatentSizes(shape, HfLatentKv::kOfHeads, out);
  KVANT_ASSIGN(const auto dense, config.Integer("first_k_dense_replace", kLayersMax));
  out.writer->AddU32(out.Key("leading_dense_block_count"),
                     static_cast<uint32_t>(dense.value_or(0)));
  out.writer->AddU32(out.Key("expert_gating_func"), kSoftmax);
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  KVANT_TRY(AddExpertGroups(config, out));
  KVANT_TRY(AddTemperature(config, out));
  return AddLatentRopeScaling(config, shape, out);
}

constexpr std::string_view kClasses[] = {"Mistral4ForCausalLM"};
constexpr std::string_view kOuterClasses[] = {"Mistral3ForConditionalGeneration"};

// Models of the outer class differ by their text model.
bool IsMistral4(const JsonObject& config) {
  const formats::Json* type = config.Find("model_type");
  return type != nullptr && *type == kName;
}

constexpr HfFamily Row(std::span<const std::string_view> classes) {
  return {
      .classes = classes,
      .arch = kName,
      .activation = kSiluActivation,
      .finish_shape = FinishShape,
      .rope_share = 1,
      .rope_names = kRopeNames,
      .tensors = kTensors,
      .add_parameters = AddParameters,
      .experts = {.count = "n_routed_experts", .shared_count = "n_shared_experts"},
  };
}

constexpr HfFamily OuterRow() {
  HfFamily row = Row(kOuterClasses);
  row.is_of = IsMistral4;
  return row;
}

constexpr HfFamily kHf[] = {Row(kClasses), OuterRow()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Mistral Small 4", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mistral4
