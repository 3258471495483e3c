// Llama 1 to 3, Mistral, Mixtral, TinyLlama and everything that is stored as "llama": pre-norm RMS
// layers, SiLU gates or experts, rotary embedding over neighbouring pairs. transformers rotates
// pairs of half-heads, so the conversion interleaves the rows of q and k.
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::llama {
namespace {

constexpr std::string_view kName = "llama";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions, {.normalize = true}));
  return model;
}

constexpr std::string_view kClasses[] = {"LlamaForCausalLM", "MistralForCausalLM"};

// transformers 5.24 writes folders of InternLM 3 with Llama's class.
bool IsInternLm3(const JsonObject& config) {
  const formats::Json* type = config.Find("model_type");
  return type != nullptr && *type == "internlm3";
}
constexpr double kMixtralRopeBase = 1e6;

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  // Mistral's window; other engines ignore the key and attend to everything.
  KVANT_TRY(AddWindowIfAny(config, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

// InternLM 3 and IQuest-Coder, whose classes have settings that Llama's has not.
constexpr std::string_view kLikeClasses[] = {"InternLM3ForCausalLM", "IQuestCoderForCausalLM"};

Status AddLikeParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseNumber(config, "clip_qkv"));
  KVANT_TRY(RefuseTrue(config, "use_sliding_window"));
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  return AddScalingUpToContext(config, shape, shape.head_dim, out);
}

constexpr std::string_view kExpertClasses[] = {"MixtralForCausalLM"};

constexpr std::array<HfTensor, 4> kMixtralExperts = {
    HfOfExperts("model.layers.{}.block_sparse_moe.gate.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w1.weight",
                "blk.{}.ffn_gate_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w3.weight",
                "blk.{}.ffn_up_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w2.weight",
                "blk.{}.ffn_down_exps.weight", Extent::kDim, Extent::kExpertFfn, ExpertForm::kEach),
};

constexpr auto kExpertTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kMixtralExperts));

// Folders of models that make vectors or scores have no output.
constexpr auto kInnerTensors =
    WithPairsInterleaved(Join(kHfInnerEnds, kHfNormBeforeAttention, kHfSeparateQkv,
                              kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));
constexpr auto kScoreTensors = Join(kInnerTensors, kHfScores);
constexpr std::string_view kInnerClasses[] = {"LlamaModel", "MistralModel"};
constexpr std::string_view kBothSidedClasses[] = {"LlamaBidirectionalModel"};
constexpr std::string_view kScoreClasses[] = {"LlamaForSequenceClassification",
                                              "MistralForSequenceClassification"};

Status AddBothSided(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddBool(out.Key("attention.causal"), false);
  return AddParameters(config, shape, out);
}

Status AddInner(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto causal, config.Bool("is_causal"));
  return causal.value_or(true) ? AddParameters(config, shape, out)
                               : AddBothSided(config, shape, out);
}

Status AddScoreParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddParameters(config, shape, out));
  return AddHfLabels(config, out);
}

constexpr HfFamily InnerRow(std::span<const std::string_view> classes,
                            Status (*add_parameters)(const JsonObject&, const HfShape&,
                                                     Parameters&)) {
  return {.classes = classes,
          .arch = kName,
          .activation = kSiluActivation,
          .optional_prefix = "model.",
          .tensors = kInnerTensors,
          .add_parameters = add_parameters,
          .is_inner = add_parameters == AddInner};
}

constexpr HfFamily RowOfScores() {
  HfFamily row = InnerRow(kScoreClasses, AddScoreParameters);
  row.tensors = kScoreTensors;
  row.finish_shape = ReadHfLabels;
  return row;
}

constexpr HfFamily kHf[] = {InnerRow(kInnerClasses, AddInner),
                            InnerRow(kBothSidedClasses, AddBothSided),
                            RowOfScores(),
                            {
                                .classes = kClasses,
                                .arch = kName,
                                .is_of = IsInternLm3,
                                .activation = kSiluActivation,
                                .tensors = kTensors,
                                .add_parameters = AddLikeParameters,
                            },
                            {
                                .classes = kClasses,
                                .arch = kName,
                                .activation = kSiluActivation,
                                .tensors = kTensors,
                                .add_parameters = AddParameters,
                            },
                            {
                                .classes = kLikeClasses,
                                .arch = kName,
                                .activation = kSiluActivation,
                                .tensors = kTensors,
                                .add_parameters = AddLikeParameters,
                            },
                            {
                                .classes = kExpertClasses,
                                .arch = kName,
                                .activation = kSiluActivation,
                                .rope_base = kMixtralRopeBase,
                                .tensors = kExpertTensors,
                                .add_parameters = AddParameters,
                                .experts = {.count = "num_local_experts",
                                            .used = "num_experts_per_tok",
                                            .ffn = "intermediate_size"},
                            }};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName,
                        .models = "Llama 1 to 3, Mistral, Mixtral, TinyLlama",
                        .read = Read,
                        .hf = kHf,
                        .mix = {.small_values = SmallValues::kIfGrouped}};

}  // namespace kvant::arch::llama
