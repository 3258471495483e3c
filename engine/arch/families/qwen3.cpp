// Qwen 3, the dense models: the Llama layer with norms of each head's query and key, heads of any
// size and rotary embedding over halves.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::qwen3 {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

namespace {

constexpr std::string_view kName = "qwen3";

constexpr std::string_view kClasses[] = {"Qwen3ForCausalLM"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms,
                               kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  if (config.Find("head_dim") == nullptr) return config.Wrong("head_dim", "a number");
  KVANT_TRY(RefuseTrue(config, "use_sliding_window"));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

// Folders of models that make vectors or scores have no output.
constexpr auto kInnerTensors =
    Join(kHfInnerEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);
constexpr auto kScoreTensors = Join(kInnerTensors, kHfScores);
constexpr std::string_view kInnerClasses[] = {"Qwen3Model"};
constexpr std::string_view kScoreClasses[] = {"Qwen3ForSequenceClassification"};

Status AddScoreParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddParameters(config, shape, out));
  return AddHfLabels(config, out);
}

constexpr HfFamily Row(std::span<const std::string_view> classes,
                       std::span<const HfTensor> tensors) {
  return {.classes = classes,
          .arch = kName,
          .activation = kSiluActivation,
          .optional_prefix = "model.",
          .tensors = tensors,
          .add_parameters = AddParameters};
}

constexpr HfFamily RowOfScores() {
  HfFamily row = Row(kScoreClasses, kScoreTensors);
  row.finish_shape = ReadHfLabels;
  row.add_parameters = AddScoreParameters;
  return row;
}

constexpr HfFamily InnerRow() {
  HfFamily row = Row(kInnerClasses, kInnerTensors);
  row.is_inner = true;
  return row;
}

constexpr HfFamily kHf[] = {Row(kClasses, kTensors), InnerRow(), RowOfScores()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::qwen3
