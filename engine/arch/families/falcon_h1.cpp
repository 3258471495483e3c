// Falcon-H1: in each layer attention and Mamba 2 beside each other, which read one norm, and then a
// gated feed-forward. The factors by which the model multiplies inputs and results of matrices are
// in the rows of the matrices in the GGUF architecture.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::falcon_h1 {
namespace {

constexpr std::string_view kName = "falcon-h1";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  const float epsilon = stack.final_norm.epsilon;
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const Mamba2 mamba, ReadMamba2(metadata, epsilon));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  const Norm norm = {NormKind::kRms, "attn_norm", epsilon};
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    stack.layers[i].flow = Flow::kParallelMixers;
    stack.layers[i].sublayers = {
        {norm, attentions[i]}, {norm, mamba}, {Norm{NormKind::kRms, "ffn_norm", epsilon}, ffns[i]}};
  }
  return model;
}

constexpr std::string_view kClasses[] = {"FalconH1ForCausalLM"};

constexpr auto kEnds =
    Join(HfEmbedding("model.embed_tokens.weight"),
         HfNorm("model.final_layernorm.weight", "output_norm.weight"), HfOutput("lm_head.weight"));

constexpr std::array<HfTensor, 6> kFfn = {
    HfMatrix("model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight",
             Extent::kFfn, Extent::kDim),
    HfBias("model.layers.{}.feed_forward.gate_proj.bias", "blk.{}.ffn_gate.bias", Extent::kFfn),
    HfMatrix("model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("model.layers.{}.feed_forward.up_proj.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight",
             Extent::kDim, Extent::kFfn),
    HfBias("model.layers.{}.feed_forward.down_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

// Other engines know the norm before the feed-forward by a name without an ending.
constexpr auto kTensors =
    Join(kEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput, kHfMamba2,
         HfNorm("model.layers.{}.pre_ff_layernorm.weight", "blk.{}.ffn_norm"), kFfn);

constexpr std::string_view kMambaNorm = "blk.{}.ssm_norm.weight";

// Some models have no norm before the output of Mamba 2.
constexpr auto kTensorsWithoutNorm = [] {
  std::array<HfTensor, kTensors.size() - 1> tensors;
  std::copy_if(kTensors.begin(), kTensors.end(), tensors.begin(),
               [](const HfTensor& tensor) { return tensor.gguf_name != kMambaNorm; });
  return tensors;
}();

bool HasNorm(const JsonObject& config) {
  const auto has_norm = config.Bool("mamba_rms_norm");
  return has_norm.ok() && has_norm->value_or(false);
}

// The factors of the rows of a matrix: of its input, which a bias does not see, and of its result.
struct MatrixFactors {
  std::string_view matrix;
  Extent rows;
  std::string_view input = {};
  std::string_view result = {};
  size_t place = 0;  // in a list of `count` numbers under the key of the result
  size_t count = 0;  // 0: a number
};
constexpr MatrixFactors kFactors[] = {
    {.matrix = "token_embd", .rows = Extent::kVocab, .result = "embedding_multiplier"},
    {.matrix = "output", .rows = Extent::kVocab, .result = "lm_head_multiplier"},
    {.matrix = "blk.{}.attn_q", .rows = Extent::kQRows, .input = "attention_in_multiplier"},
    {.matrix = "blk.{}.attn_k",
     .rows = Extent::kKvRows,
     .input = "attention_in_multiplier",
     .result = "key_multiplier"},
    {.matrix = "blk.{}.attn_v", .rows = Extent::kKvRows, .input = "attention_in_multiplier"},
    {.matrix = "blk.{}.attn_output", .rows = Extent::kDim, .result = "attention_out_multiplier"},
    {.matrix = "blk.{}.ffn_gate", .rows = Extent::kFfn, .result = "mlp_multipliers", .count = 2},
    {.matrix = "blk.{}.ffn_down",
     .rows = Extent::kDim,
     .result = "mlp_multipliers",
     .place = 1,
     .count = 2},
    {.matrix = "blk.{}.ssm_out", .rows = Extent::kDim, .result = "ssm_out_multiplier"},
};
constexpr std::string_view kMambaIn = "blk.{}.ssm_in";
constexpr std::string_view kMambaInput = "ssm_in_multiplier";
constexpr std::string_view kMambaParts = "ssm_multipliers";

// A number, 1 where the key is absent or empty.
Result<float> ReadFactor(const JsonObject& config, std::string_view key) {
  if (key.empty()) return 1.0f;
  KVANT_ASSIGN(const auto given, config.Number(key));
  return static_cast<float>(given.value_or(1.0));
}

Result<std::vector<float>> ReadFactors(const JsonObject& config, std::string_view key,
                                       size_t count) {
  KVANT_ASSIGN(const auto given, config.Numbers(key));
  if (!given) return std::vector<float>(count, 1.0f);
  if (given->size() != count) return config.Wrong(key, fmt::format("{} numbers", count));
  return *given;
}

// The gates, x, b, c and steps have a factor each.
Result<std::vector<RowFactor>> FactorsOfMamba(const JsonObject& config, const HfShape& shape,
                                              float of_input) {
  KVANT_ASSIGN(const auto factors, ReadFactors(config, kMambaParts, 5));
  const int64_t b_and_c = shape.mamba.groups * shape.mamba.state_dim;
  const int64_t rows[] = {shape.mamba.inner(), shape.mamba.inner(), b_and_c, b_and_c,
                          shape.mamba.heads};
  std::vector<RowFactor> parts;
  for (size_t i = 0; i < factors.size(); ++i) parts.push_back({rows[i], of_input * factors[i]});
  return parts;
}

Result<std::vector<RowFactor>> FactorsOf(const JsonObject& config, const HfShape& shape,
                                         std::string_view gguf_name, HfOutputIs) {
  const std::string_view matrix = gguf_name.substr(0, gguf_name.rfind('.'));
  const bool is_bias = gguf_name.ends_with(".bias");
  if (matrix == kMambaIn) {
    KVANT_ASSIGN(const float of_input, ReadFactor(config, is_bias ? "" : kMambaInput));
    return FactorsOfMamba(config, shape, of_input);
  }
  for (const MatrixFactors& row : kFactors) {
    if (row.matrix != matrix) continue;
    KVANT_ASSIGN(float factor, ReadFactor(config, is_bias ? "" : row.input));
    if (row.count > 0) {
      KVANT_ASSIGN(const auto list, ReadFactors(config, row.result, row.count));
      factor *= list[row.place];
    } else {
      KVANT_ASSIGN(const float of_result, ReadFactor(config, row.result));
      factor *= of_result;
    }
    return std::vector<RowFactor>{{ExtentSize(row.rows, shape), factor}};
  }
  return std::vector<RowFactor>();
}

constexpr std::string_view kWidth = "mamba_d_ssm";
constexpr std::string_view kHeadDim = "mamba_d_head";

Status FinishShape(const JsonObject& config, HfShape& shape) {
  const formats::Json* head_dim = config.Find(kHeadDim);
  const bool by_width = head_dim == nullptr || *head_dim == "auto";
  KVANT_TRY(ReadMamba(config,
                      {.heads = "mamba_n_heads",
                       .head_dim = by_width ? "" : kHeadDim,
                       .state_dim = "mamba_d_state",
                       .groups = "mamba_n_groups",
                       .taps = "mamba_d_conv"},
                      shape));
  KVANT_ASSIGN(const auto given, config.Integer(kWidth, kDimMax));
  KVANT_ASSIGN(const auto expand, config.Integer("mamba_expand", kDimMax / shape.dim));
  const int64_t width = given.value_or(expand.value_or(2) * shape.dim);
  HfMamba& mamba = shape.mamba;
  if (by_width) mamba.head_dim = width / mamba.heads;
  if (width > 0 && mamba.inner() == width) return {};
  return config.Wrong(kWidth, by_width
                                  ? fmt::format("a multiple of {} heads", mamba.heads)
                                  : fmt::format("{} heads of {}", mamba.heads, mamba.head_dim));
}

// Other engines multiply by the gates and then norm.
Status AddParametersOf(const JsonObject& config, const HfShape& shape, Parameters& out) {
  constexpr std::string_view kOrder = "mamba_norm_before_gate";
  KVANT_ASSIGN(const auto before, config.Bool(kOrder));
  if (HasNorm(config) && before.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: expected false in a model with mamba_rms_norm",
                     config.Where(kOrder));
  }
  KVANT_TRY(AddMamba(config, shape, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr double kRopeBase = 100000.0;

constexpr HfFamily OfTensors(std::span<const HfTensor> tensors,
                             bool (*is_of)(const JsonObject& config)) {
  return {.classes = kClasses,
          .arch = kName,
          .is_of = is_of,
          .activation = kSiluActivation,
          .finish_shape = FinishShape,
          .rope_base = kRopeBase,
          .tensors = tensors,
          .add_parameters = AddParametersOf,
          .row_factors = FactorsOf};
}
constexpr HfFamily kHf[] = {OfTensors(kTensors, HasNorm), OfTensors(kTensorsWithoutNorm, nullptr)};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Falcon-H1", .read = Read, .hf = kHf};

}  // namespace kvant::arch::falcon_h1
