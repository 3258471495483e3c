// Granite 4.5: the layer of Granite 3 with a window in most layers and a sink in every head's
// softmax; the file says which layers have a rotary embedding. Some models have experts, whose
// weights are a softmax over the chosen ones, and a shared expert with gate and up in one matrix.
#include <algorithm>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::granite_swa {
namespace {

constexpr std::string_view kName = "granite_swa";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions, the first one included
constexpr const char* kRopeKey = "attention.rope_pattern";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto windows,
               ReadWindowPattern(metadata, attentions.size(), kPattern, FullLayer::kFirst));
  KVANT_TRY(KeepWindows(metadata, windows, attentions));
  KVANT_ASSIGN(const auto rotated, metadata.FlagPerLayer(kRopeKey, attentions.size()));
  if (rotated.has_value()) RotateOnly(*rotated, attentions);
  for (Attention& attention : attentions) attention.sinks = Sinks::kRequired;
  KVANT_TRY(FillLayersWithExperts(
      metadata, stack, {}, attentions,
      {.gating = graph::Gating::kSoftmaxOfChosen, .shared = SharedExpert::kPlain}));
  KVANT_TRY(ReadStreamScales(metadata, {}, stack));
  return model;
}

constexpr std::string_view kClasses[] = {"GraniteSWAForCausalLM"};
constexpr std::string_view kMoeClasses[] = {"GraniteMoeSWAForCausalLM"};

constexpr auto kAttention = WithPairsInterleaved(
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
         HfNorm("model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight", Extent::kHeads),
         kHfNormBeforeFfn));
constexpr auto kTensors = Join(kAttention, kHfSeparateGateUp, kHfDown);

constexpr HfTensor OfExperts(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                             Extent columns, ExpertForm form) {
  HfTensor tensor = HfOfExperts(hf_name, gguf_name, rows, columns, form);
  if (form == ExpertForm::kStacked) tensor.presence = Presence::kOptional;
  return tensor;
}

// Experts have the names of one of two versions of the class.
constexpr auto kMoeTensors =
    Join(kAttention,
         std::array{OfExperts("model.layers.{}.block_sparse_moe.router.weight", kRouterName,
                              Extent::kExperts, Extent::kDim, ExpertForm::kNone),
                    OfExperts("model.layers.{}.block_sparse_moe.experts.gate_up_proj",
                              "blk.{}.ffn_gate_up_exps.weight", Extent::kTwoExpertFfn, Extent::kDim,
                              ExpertForm::kStacked),
                    OfExperts("model.layers.{}.block_sparse_moe.input_linear.weight",
                              "blk.{}.ffn_gate_up_exps.weight", Extent::kTwoExpertFfn, Extent::kDim,
                              ExpertForm::kStacked),
                    OfExperts("model.layers.{}.block_sparse_moe.experts.down_proj",
                              "blk.{}.ffn_down_exps.weight", Extent::kDim, Extent::kExpertFfn,
                              ExpertForm::kStacked),
                    OfExperts("model.layers.{}.block_sparse_moe.output_linear.weight",
                              "blk.{}.ffn_down_exps.weight", Extent::kDim, Extent::kExpertFfn,
                              ExpertForm::kStacked),
                    HfOfExperts("model.layers.{}.shared_mlp.input_linear.weight",
                                "blk.{}.ffn_up_shexp.weight", Extent::kTwoSharedFfn, Extent::kDim),
                    HfOfExperts("model.layers.{}.shared_mlp.output_linear.weight",
                                "blk.{}.ffn_down_shexp.weight", Extent::kDim, Extent::kSharedFfn)});

// Reads the bases of the layers' ropes, of which 0 stands for none. All others must be one, which
// becomes that of the file.
Status AddLayerBases(const JsonObject& config, const HfShape& shape, Parameters& out) {
  constexpr const char* kKey = "layer_rope_theta";
  KVANT_ASSIGN(float base, ReadRopeBase(config, kUsualRopeBase));
  KVANT_ASSIGN(const auto bases, config.Numbers(kKey));
  if (bases && std::ssize(*bases) != shape.layers) {
    return config.Wrong(kKey, fmt::format("an array of {} numbers", shape.layers));
  }
  std::vector<bool> rotated;
  float found = 0;
  for (const float one : bases.value_or(std::vector<float>())) {
    rotated.push_back(one != 0);
    if (one == 0) continue;
    if (!(one > 0) || (found != 0 && one != found)) {
      return config.Wrong(kKey, "0 or one positive number for all layers");
    }
    found = one;
  }
  if (found > 0) base = found;
  // Folders of before transformers 5.24: 1 for layers with a rotary embedding, 0 for others.
  constexpr const char* kOlderKey = "no_rope_layers";
  KVANT_ASSIGN(const auto turned, config.Numbers(kOlderKey));
  if (turned && !bases) {
    if (std::ssize(*turned) != shape.layers) {
      return config.Wrong(kOlderKey, fmt::format("an array of {} numbers", shape.layers));
    }
    for (const float one : *turned) rotated.push_back(one != 0);
  }
  out.writer->AddF32(out.Key("rope.freq_base"), base);
  if (std::ranges::find(rotated, false) != rotated.end()) {
    out.writer->AddBools(out.Key(kRopeKey), rotated);
  }
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddMultipliers(config, out));
  KVANT_TRY(AddLayerBases(config, shape, out));
  std::vector<bool> windows;
  for (int64_t i = 0; i < shape.layers; ++i) windows.push_back(i % kPattern != 0);
  if (config.Find("layer_types") != nullptr) {
    KVANT_ASSIGN(windows, ReadWindowLayers(config, shape.layers, 1));
  }
  KVANT_TRY(AddWindowFlags(config, windows, out));
  return RefuseRopeScaling(config);
}

constexpr HfFamily RowFor(std::span<const std::string_view> classes,
                          std::span<const HfTensor> tensors, const HfExperts& experts) {
  return {.classes = classes,
          .arch = kName,
          .activation = kSiluActivation,
          .own_rope_base = true,
          .tensors = tensors,
          .add_parameters = AddParameters,
          .experts = experts};
}

constexpr HfFamily kHf[] = {RowFor(kClasses, kTensors, {}),
                            RowFor(kMoeClasses, kMoeTensors,
                                   {.count = "num_local_experts",
                                    .ffn = "intermediate_size",
                                    .shared_ffn = "shared_intermediate_size"})};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Granite 4.5", .read = Read, .hf = kHf};

}  // namespace kvant::arch::granite_swa
