// Apertus: the layer of Qwen 3 with a feed-forward without gates, whose activation (xIELU) has
// numbers that each layer has learned.
#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::apertus {
namespace {

constexpr std::string_view kName = "apertus";
constexpr float kBeta = 0.5f;
constexpr float kEpsilon = -1e-6f;  // the largest number whose exponential is taken

// Below this size the epsilon changes nothing that floats would show.
constexpr float kEpsilonMax = 1e-5f;

// Learned numbers are a few units in size. Much larger ones would make infinities of activations.
constexpr float kLearnedMax = 1e4f;

float Softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

Result<std::vector<float>> ReadLearned(const Metadata& metadata, const char* key, size_t layers) {
  KVANT_ASSIGN(auto numbers, metadata.WholeKeyPerLayer(key, layers));
  const auto wrong = std::find_if(numbers.begin(), numbers.end(),
                                  [](float number) { return std::abs(number) > kLearnedMax; });
  if (wrong == numbers.end()) return numbers;
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected numbers from {} to {}, found {}",
                   metadata.file().path(), key, -kLearnedMax, kLearnedMax, *wrong);
}

Status ReadXielu(const Metadata& metadata, std::vector<PlainFfn>& ffns) {
  KVANT_ASSIGN(const auto negative, ReadLearned(metadata, "xielu.alpha_n", ffns.size()));
  KVANT_ASSIGN(const auto positive, ReadLearned(metadata, "xielu.alpha_p", ffns.size()));
  KVANT_ASSIGN(const auto beta, ReadLearned(metadata, "xielu.beta", ffns.size()));
  KVANT_ASSIGN(const auto epsilon, metadata.WholeKeyPerLayer("xielu.eps", ffns.size()));
  for (size_t i = 0; i < ffns.size(); ++i) {
    if (std::abs(epsilon[i]) > kEpsilonMax) {
      return MakeError(ErrorCode::kNotSupported, "{}: key xielu.eps: expected at most {}, found {}",
                       metadata.file().path(), kEpsilonMax, epsilon[i]);
    }
    ffns[i].xielu = {.positive = Softplus(positive[i]),
                     .negative = beta[i] + Softplus(negative[i]),
                     .beta = beta[i]};
  }
  return {};
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_ASSIGN(auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kSigmoid));
  KVANT_TRY(ReadXielu(metadata, ffns));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"ApertusForCausalLM"};
constexpr std::string_view kActivations[] = {"xielu"};
constexpr double kBase = 12e6;

constexpr auto kTensors =
    Join(kHfEnds, HfNorm("model.layers.{}.attention_layernorm.weight", "blk.{}.attn_norm.weight"),
         kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         HfNorm("model.layers.{}.feedforward_layernorm.weight", "blk.{}.ffn_norm.weight"),
         kHfPlainUp, kHfDown);

// Keys of no architecture, as other engines read them.
constexpr HfNumber kNumbers[] = {
    {"model.layers.{}.mlp.act_fn.alpha_n", "xielu.alpha_n"},
    {"model.layers.{}.mlp.act_fn.alpha_p", "xielu.alpha_p"},
    {"model.layers.{}.mlp.act_fn.beta", "xielu.beta", kBeta},
    {"model.layers.{}.mlp.act_fn.eps", "xielu.eps", kEpsilon},
};

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .rope_base = kBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .numbers = kNumbers,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Apertus", .read = Read, .hf = kHf};

}  // namespace kvant::arch::apertus
