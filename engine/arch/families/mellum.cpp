// Mellum 2: the layer of Qwen 3 with experts, and a window in most layers, which have a rope of
// their own that stretches no positions.
#include <algorithm>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::mellum {
namespace {

constexpr std::string_view kName = "mellum";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_ASSIGN(const int64_t window, metadata.CountOr("attention.sliding_window", kContextMax, 0));
  if (window > 0) {
    KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
    KVANT_TRY(KeepWindows(metadata, windows, attentions));
    KVANT_TRY(ReadWindowRopes(metadata, windows, attentions, model.ropes));
  }
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions, {.normalize = true}));
  return model;
}

constexpr std::string_view kClasses[] = {"MellumForCausalLM"};
constexpr double kBase = 500000.0;
constexpr double kWindowBase = 10000.0;

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, 1));
  KVANT_ASSIGN(const auto used, config.Bool("use_sliding_window"));
  if (used.value_or(true) && std::ranges::find(windows, true) != windows.end()) {
    KVANT_TRY(AddWindowFlags(config, windows, out));
    KVANT_TRY(AddWindowRope(config, shape, {.base = kWindowBase}, out));
  }
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .window_ropes = true,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Mellum 2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mellum
