// Mamba 2, a model of recurrent layers alone.
#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::mamba2 {
namespace {

constexpr std::string_view kName = "mamba2";

// The model has no limit; other engines write this one.
constexpr int64_t kContext = 1 << 20;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const Mamba2 mamba, ReadMamba2(metadata, stack.final_norm.epsilon));
  for (LayerSpec& layer : stack.layers) {
    layer.sublayers = {{Norm{NormKind::kRms, "attn_norm", stack.final_norm.epsilon}, mamba}};
  }
  return model;
}

constexpr std::string_view kClasses[] = {"Mamba2ForCausalLM"};

constexpr auto kTensors =
    Join(HfEmbedding("backbone.embeddings.weight"),
         HfNorm("backbone.norm_f.weight", "output_norm.weight"), HfOutput("lm_head.weight"),
         HfNorm("backbone.layers.{}.norm.weight", "blk.{}.attn_norm.weight"), kHfMixerMamba2);

Status FinishShape(const JsonObject& config, HfShape& shape) {
  shape.context = kContext;
  return ReadMamba(config,
                   {.heads = "num_heads",
                    .head_dim = "head_dim",
                    .state_dim = "state_size",
                    .groups = "n_groups",
                    .taps = "conv_kernel"},
                   shape);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.ffn = "", .heads = "", .kv_heads = "", .context = ""},
    .epsilon = {.key = "layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddMamba,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Mamba 2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mamba2
