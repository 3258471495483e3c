// CodeShell: the layer of StarCoder 2, with q, k and v in one matrix. The embedding and the output
// are one, so a file may have it under the name of the output alone.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_gpt2_names.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::codeshell {
namespace {

constexpr std::string_view kName = "codeshell";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, starcoder2::Read(metadata));
  if (metadata.file().FindTensor(kEmbeddingName) == nullptr) {
    Stack& stack = model.stacks.front();
    stack.input.tensor = stack.output.tensor;
  }
  return model;
}

constexpr std::string_view kClasses[] = {"CodeShellForCausalLM"};

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(ReadHfGpt2Width(config, shape));
  KVANT_ASSIGN(const auto grouped, config.Bool("group_query_attention"));
  if (!grouped.value_or(true)) return config.Wrong("group_query_attention", "true");
  KVANT_ASSIGN(shape.kv_heads, config.Count("num_query_groups", kHeadsMax));
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto positions, config.String("position_embedding_type"));
  if (positions.value_or("rope") != "rope") return config.Wrong("position_embedding_type", "rope");
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kHfGpt2Activation,
    .keys = kHfGpt2Keys,
    .epsilon = kHfGpt2Epsilon,
    .finish_shape = FinishShape,
    .optional_prefix = "transformer.",
    .tensors = kHfGpt2Names,
    .add_parameters = AddParameters,
    .tied_unless_told = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "CodeShell", .read = Read, .hf = kHf};

}  // namespace kvant::arch::codeshell
