// Spark-X2.5: a gate for each head of the attention's result, GELU gates, a window in some layers,
// which have a rope of their own.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::spark2_5 {
namespace {

constexpr std::string_view kName = "spark2_5";
constexpr int64_t kPattern = 4;  // every fourth layer sees all positions

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto windows,
               metadata.FlagPerLayer("attention.sliding_window_pattern", attentions.size()));
  if (!windows.has_value()) return metadata.Missing("attention.sliding_window_pattern");
  KVANT_TRY(KeepWindows(metadata, *windows, attentions));
  KVANT_TRY(ReadWindowRopes(metadata, *windows, attentions, model.ropes));
  KVANT_TRY(ReadResultGates(metadata, stack, cpu::Activation::kSigmoid, attentions));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kGeluErf));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Spark2_5ForCausalLM"};
constexpr std::string_view kErfGelu[] = {"gelu"};

constexpr std::array<HfTensor, 1> kQkv = {
    HfMatrix("model.layers.{}.self_attn.q_k_v_proj.weight", "blk.{}.attn_qkv.weight",
             Extent::kQkvRows, Extent::kDim),
};

constexpr auto kTensors =
    Join(HfEmbedding("model.embedding.weight"), HfNorm("model.norm.weight", "output_norm.weight"),
         HfOutput("lm_head.weight"), kHfNormBeforeAttention, kQkv,
         HfGate("model.layers.{}.self_attn.g_proj.weight", Extent::kHeads), kHfAttentionOut,
         kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto mode, config.String("gate_attn_act_mode"));
  if (mode.value_or("sigmoid") != "sigmoid") return config.Wrong("gate_attn_act_mode", "sigmoid");
  KVANT_ASSIGN(const auto gated, config.Bool("headwise_attn_output_gate"));
  if (!gated.value_or(true)) return config.Wrong("headwise_attn_output_gate", "true");
  KVANT_TRY(RefuseTrue(config, "attention_bias"));
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  KVANT_TRY(AddPartialRotation(config, shape, out));
  KVANT_TRY(AddWindowRope(config, shape, {.base = kUsualRopeBase}, out));
  return RefuseRopeScaling(config);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kErfGelu},
    .rope_share = 1,
    .window_ropes = true,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .tied_unless_told = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Spark-X2.5", .read = Read, .hf = kHf};

}  // namespace kvant::arch::spark2_5
