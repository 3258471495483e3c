// Indexers in Hugging Face classes: sizes, tensors and metadata of DeepSeek-V3.2 and its relatives.
#pragma once

#include <array>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// Reads index_n_heads and index_head_dim. For HfFamily::finish_shape.
Status FinishIndexShape(const JsonObject& config, HfShape& shape);

// Which layers have an indexer of their own, by indexer_types, or index_topk_pattern, or
// index_topk_freq and index_skip_topk_offset; others see what the last one before them has chosen.
Status ReadIndexLayers(const JsonObject& config, HfShape& shape);

constexpr HfTensor HfOfIndexer(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                               Extent columns = Extent::kNone) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = rows,
          .columns = columns,
          .layers = InLayers::kWithIndexer};
}

// The tensors of an indexer whose queries come from those of latent attention.
inline constexpr std::array<HfTensor, 5> kHfLatentIndexer = {{
    HfOfIndexer("model.layers.{}.self_attn.indexer.wq_b.weight", "blk.{}.indexer.attn_q_b.weight",
                Extent::kIndexQRows, Extent::kQRank),
    HfOfIndexer("model.layers.{}.self_attn.indexer.wk.weight", "blk.{}.indexer.attn_k.weight",
                Extent::kIndexHeadDim, Extent::kDim),
    HfOfIndexer("model.layers.{}.self_attn.indexer.k_norm.weight", "blk.{}.indexer.k_norm.weight",
                Extent::kIndexHeadDim),
    HfOfIndexer("model.layers.{}.self_attn.indexer.k_norm.bias", "blk.{}.indexer.k_norm.bias",
                Extent::kIndexHeadDim),
    HfOfIndexer("model.layers.{}.self_attn.indexer.weights_proj.weight",
                "blk.{}.indexer.proj.weight", Extent::kIndexHeads, Extent::kDim),
}};

// Writes the sizes of an indexer; `most` is how many positions or blocks it chooses.
void AddIndexSizes(const HfShape& shape, int64_t most, Parameters& out);

// Writes the sizes with index_topk.
Status AddIndexParameters(const JsonObject& config, const HfShape& shape, Parameters& out);

// The parameters of DeepSeek V3 with an indexer: a sigmoid router, groups of experts, YaRN.
Status AddIndexedLatents(const JsonObject& config, const HfShape& shape, Parameters& out);

}  // namespace kvant::arch
