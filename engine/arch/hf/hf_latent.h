// Latent attention in Hugging Face classes: sizes, tensors and metadata that DeepSeek-V2 and its
// relatives share.
#pragma once

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// Reads q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim. For
// HfFamily::finish_shape.
Status FinishLatentShape(const JsonObject& config, HfShape& shape);

// The tensors without Wk and Wv.
inline constexpr auto kHfLatentProjections = std::array<HfTensor, 9>{{
    HfMatrix("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight",
             Extent::kOneStepQRows, Extent::kDim),
    HfMatrix("model.layers.{}.self_attn.q_a_proj.weight", "blk.{}.attn_q_a.weight", Extent::kQRank,
             Extent::kDim),
    HfBias("model.layers.{}.self_attn.q_a_proj.bias", "blk.{}.attn_q_a.bias", Extent::kQRank),
    HfNorm("model.layers.{}.self_attn.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight",
           Extent::kQRank)[0],
    HfMatrix("model.layers.{}.self_attn.q_b_proj.weight", "blk.{}.attn_q_b.weight",
             Extent::kLatentQRows, Extent::kQRank),
    HfMatrix("model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight",
             Extent::kLatentRow, Extent::kDim),
    HfBias("model.layers.{}.self_attn.kv_a_proj_with_mqa.bias", "blk.{}.attn_kv_a_mqa.bias",
           Extent::kLatentRow),
    HfNorm("model.layers.{}.self_attn.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight",
           Extent::kLatent)[0],
    HfMatrix("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kLatentORows),
}};

// Wk and Wv as one tensor, and as two with a matrix for each head.
inline constexpr std::array<HfTensor, 1> kHfLatentKvTogether = {
    HfMatrix("model.layers.{}.self_attn.kv_b_proj.weight", "blk.{}.attn_kv_b.weight",
             Extent::kLatentKvRows, Extent::kLatent),
};
inline constexpr std::array<HfTensor, 2> kHfLatentKvOfHeads = {{
    {.hf_name = "model.layers.{}.self_attn.kv_b_proj.weight",
     .gguf_name = "blk.{}.attn_k_b.weight",
     .rows = Extent::kLatent,
     .columns = Extent::kNope,
     .order = RowOrder::kLatentKeys},
    {.hf_name = "model.layers.{}.self_attn.kv_b_proj.weight",
     .gguf_name = "blk.{}.attn_v_b.weight",
     .rows = Extent::kVDim,
     .columns = Extent::kLatent,
     .order = RowOrder::kLatentValues},
}};

// Where readers expect Wk and Wv, and so what a head of the cache is to them.
enum class HfLatentKv : uint8_t { kTogether, kOfHeads };

// Writes the sizes. The number of kv heads is 1 for kOfHeads: finish_shape must say so.
void AddLatentSizes(const HfShape& shape, HfLatentKv form, Parameters& out);

// Writes YaRN as the classes with latent attention have it: a factor on the products of queries and
// keys, by mscale_all_dim, and none on cosine and sine. kNotSupported for other ways of stretching,
// and where mscale is another number.
Status AddLatentRopeScaling(const JsonObject& config, const HfShape& shape, Parameters& out);

}  // namespace kvant::arch
