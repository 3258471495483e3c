#include "engine/arch/hf/hf_latent.h"

#include "base/result.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/limits.h"

namespace kvant::arch {

Status FinishLatentShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto q_rank, config.Integer("q_lora_rank", kDimMax));
  shape.q_rank = q_rank.value_or(0);
  KVANT_ASSIGN(shape.latent, config.Count("kv_lora_rank", kHeadDimMax));
  KVANT_ASSIGN(shape.nope, config.Count("qk_nope_head_dim", kHeadDimMax / 2));
  KVANT_ASSIGN(shape.rope, config.Count("qk_rope_head_dim", kHeadDimMax / 2));
  KVANT_ASSIGN(shape.v_dim, config.Count("v_head_dim", kHeadDimMax));
  return {};
}

void AddLatentSizes(const HfShape& shape, HfLatentKv form, Parameters& out) {
  const auto add = [&out](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  const bool of_heads = form == HfLatentKv::kOfHeads;
  if (shape.q_rank > 0) add("attention.q_lora_rank", shape.q_rank);
  add("attention.kv_lora_rank", shape.latent);
  add("attention.key_length", of_heads ? shape.latent + shape.rope : shape.head_dim);
  add("attention.value_length", of_heads ? shape.latent : shape.v_dim);
  if (of_heads) {
    add("attention.key_length_mla", shape.head_dim);
    add("attention.value_length_mla", shape.v_dim);
  }
  add("rope.dimension_count", shape.rope);
}

Status AddLatentRopeScaling(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (!scaling) return {};
  if (scaling->type != "yarn") return scaling->settings.UnsupportedType("default, yarn");
  KVANT_TRY(AddYarnKeys(*scaling, shape, out));
  KVANT_ASSIGN(const auto all, scaling->settings.Number("mscale_all_dim"));
  if (!all || !(*all > 0)) return scaling->settings.Wrong("mscale_all_dim", "a positive number");
  KVANT_ASSIGN(const auto one, scaling->settings.Number("mscale"));
  if (one != all) {
    return MakeError(ErrorCode::kNotSupported, "{}: expected {}, as in mscale_all_dim",
                     scaling->settings.Where("mscale"), *all);
  }
  KVANT_ASSIGN(const double amplitude, scaling->settings.PositiveOr("attention_factor", 1));
  if (amplitude != 1) return scaling->settings.Wrong("attention_factor", "1");
  // 0.1 is the factor that YarnAmplitude has for mscale_all_dim * ln(factor).
  out.writer->AddF32(out.Key("rope.scaling.yarn_log_multiplier"), static_cast<float>(0.1 * *all));
  return {};
}

}  // namespace kvant::arch
