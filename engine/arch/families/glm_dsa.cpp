// GLM 5, 5.1 and 5.2: DeepSeek V3 with indexers whose rope rotates neighbouring pairs. In GLM 5.2
// some layers see what the indexer of an earlier layer has chosen.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_indexer.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::glm_dsa {
namespace {

constexpr std::string_view kName = "glm-dsa";
constexpr std::string_view kClasses[] = {"GlmMoeDsaForCausalLM"};

// Files of GLM 5.2 may say nothing about their indexers: they are known by their context, and have
// indexers in the first two layers and in every fourth layer from the third on.
constexpr int64_t kContextOf52 = 1 << 20;
constexpr size_t kFirstOf52 = 2;
constexpr size_t kEveryOf52 = 4;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(const int64_t layers, metadata.Count("block_count", kLayersMax));
  KVANT_ASSIGN(const int64_t predicting, metadata.CountOr("nextn_predict_layers", kLayersMax, 0));
  KVANT_ASSIGN(const int64_t context, metadata.CountOr("context_length", kContextMax, 0));
  const auto count = static_cast<size_t>(std::max<int64_t>(1, layers - predicting));
  KVANT_ASSIGN(auto own, ReadIndexerTypes(metadata, count));
  if (!own.has_value() && context >= kContextOf52) {
    own.emplace();
    for (size_t i = 0; i < count; ++i) {
      own->push_back(i < kFirstOf52 || (i - kFirstOf52) % kEveryOf52 == 0);
    }
  }
  return deepseek32::ReadIndexed(metadata, cpu::RopeStyle::kInterleaved, std::move(own));
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishLatentShape(config, shape));
  shape.kv_heads = 1;  // of the cache
  KVANT_TRY(FinishIndexShape(config, shape));
  return ReadIndexLayers(config, shape);
}

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfLatentProjections,
    HfOptional("model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", Extent::kDim),
    kHfLatentKvOfHeads, kHfLatentIndexer, kHfNormBeforeFfn,
    WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts, kHfSelectionBias,
    kHfSharedExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto interleaved, config.Bool("indexer_rope_interleave"));
  if (!interleaved.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: false is not supported",
                     config.Where("indexer_rope_interleave"));
  }
  KVANT_TRY(AddIndexedLatents(config, shape, out));
  out.writer->AddBools(out.Key("attention.indexer.types"), shape.index_layers);
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = FinishShape,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "n_routed_experts", .shared_count = "n_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "GLM 5", .read = Read, .hf = kHf};

}  // namespace kvant::arch::glm_dsa
