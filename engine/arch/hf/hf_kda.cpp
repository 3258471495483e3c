#include "engine/arch/hf/hf_kda.h"

#include "base/result.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/limits.h"

namespace kvant::arch {

Status SetKda(const JsonObject& config, const HfKda& kda, HfShape& shape) {
  if (kda.taps < 2) {
    return MakeError(ErrorCode::kCorrupt, "{}: convolutions see {} rows, expected at least 2",
                     config.where(), kda.taps);
  }
  if (kda.heads != shape.heads) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: linear attention has {} heads, expected {}, as num_attention_heads",
                     config.where(), kda.heads, shape.heads);
  }
  shape.conv_taps = kda.taps;
  shape.delta.value_heads = kda.heads;
  shape.delta.value_dim = kda.head_dim;
  shape.kv_heads = 1;  // of the cache
  return {};
}

Status AddKdaSizes(const JsonObject& config, const HfShape& shape, Parameters& out) {
  AddLatentSizes(shape, HfLatentKv::kOfHeads, out);
  out.writer->AddU32(out.Key("ssm.conv_kernel"), static_cast<uint32_t>(shape.conv_taps));
  out.writer->AddU32(out.Key("kda.head_dim"), static_cast<uint32_t>(shape.delta.value_dim));
  KVANT_ASSIGN(const auto leading, config.Integer("first_k_dense_replace", kLayersMax));
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers, leading.value_or(0)));
  AddSigmoidGating(dense, out);
  return {};
}

Status AddKdaRouter(const JsonObject& config, const HfRouterKeys& keys, Parameters& out) {
  KVANT_ASSIGN(const auto normalized, config.Bool(keys.normalized));
  out.writer->AddBool(out.Key("expert_weights_norm"), normalized.value_or(true));
  KVANT_ASSIGN(const auto scale, config.Number("routed_scaling_factor"));
  if (scale.value_or(1) != 1) {
    KVANT_TRY(AddPositive(config, "routed_scaling_factor", "expert_weights_scale", out));
  }
  KVANT_ASSIGN(const auto groups, config.Integer(keys.groups, kExpertsMax));
  if (groups.value_or(1) <= 1) return {};
  KVANT_ASSIGN(const int64_t used, config.Count("topk_group", *groups));
  out.writer->AddU32(out.Key("expert_group_count"), static_cast<uint32_t>(*groups));
  out.writer->AddU32(out.Key("expert_group_used_count"), static_cast<uint32_t>(used));
  return {};
}

}  // namespace kvant::arch
