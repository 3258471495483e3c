// StarCoder 1, SantaCoder and others of the class of BigCode: the layer of GPT-2, where all query
// heads share one key and value, in most models, and matrices lie as they multiply.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_gpt2_names.h"
#include "engine/arch/hf/hf_settings.h"

namespace kvant::arch::starcoder {
namespace {

constexpr std::string_view kName = "starcoder";

constexpr std::string_view kClasses[] = {"GPTBigCodeForCausalLM"};

// StarCoder and StarCoderBase say "gelu", which is that of the error function; files of other
// engines do not say which.
constexpr std::string_view kErf = "gelu";
constexpr std::string_view kActivations[] = {"gelu_pytorch_tanh", "gelu_new", "gelu_fast", kErf};

// In models with as many keys as queries, each head's query, key and value lie together.
constexpr auto kTensors = [] {
  auto tensors =
      Join(kHfGpt2Names, std::array{HfMatrix("transformer.wpe.weight", "position_embd.weight",
                                             Extent::kContext, Extent::kDim)});
  for (HfTensor& tensor : tensors) {
    if (tensor.rows == Extent::kQkvRows) tensor = Grouped(tensor);
  }
  return tensors;
}();

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(ReadHfGpt2Width(config, shape));
  KVANT_ASSIGN(const auto one, config.Bool("multi_query"));
  shape.kv_heads = one.value_or(true) ? 1 : shape.heads;
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape&, Parameters& out) {
  KVANT_ASSIGN(const auto activation, config.String(kHfGpt2Activation.key));
  if (activation == kErf) out.writer->AddString(out.Key("hidden_activation"), *activation);
  KVANT_ASSIGN(const auto scaled, config.Bool("scale_attn_weights"));
  if (!scaled.value_or(true)) return config.Wrong("scale_attn_weights", "true");
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = kHfGpt2Activation.key, .names = kActivations},
    .keys = kHfGpt2Keys,
    .epsilon = kHfGpt2Epsilon,
    .finish_shape = FinishShape,
    .optional_prefix = "transformer.",
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .tied_unless_told = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "StarCoder 1", .read = gpt2::Read, .hf = kHf};

}  // namespace kvant::arch::starcoder
