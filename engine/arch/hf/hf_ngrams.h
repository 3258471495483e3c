// Embeddings of hashed n-grams in Hugging Face classes (Qwen4ExpTextNGramEmbedding of
// transformers): sizes, tensors and metadata. What the hash multiplies with and how many rows each
// head has follow from config.json; folders hold them as tensors of integers, too.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// Reads the sizes by ple_layer_ids, ple_embed_dim, ple_conv_kernel_size, ngram_size,
// heads_per_ngram, ngram_vocab_size_base, make_ngram_vocab_size_divisible_by and
// split_ngram_parts. kNotSupported for n-grams in several layers.
Status ReadNgramShape(const JsonObject& config, HfShape& shape);

// Writes the keys of "ple.", and what the folder's integers have to be.
Status AddNgramParameters(const JsonObject& config, const HfShape& shape, Parameters& out);

// The first `count` primes from `base` on.
std::vector<int64_t> PrimesFrom(int64_t base, int64_t count);

// The odd numbers that an n-gram's tokens are multiplied with: for the i-th, 2 (h mod b) + 1, where
// h is the i-th number of splitmix64 from `seed` on and b half of the largest number whose product
// with a token stays below 2^63.
std::vector<uint64_t> NgramMultipliers(int64_t vocab, int64_t count, uint64_t seed);

constexpr HfTensor HfOfNgrams(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                              Extent columns = Extent::kNone, Values values = Values::kSame) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = rows,
          .columns = columns,
          .values = values,
          .layers = InLayers::kWithNgrams};
}

constexpr HfTensor HfNgramTable() {
  HfTensor table =
      HfOfNgrams("model.layers.{}.ple.ple_embedding.ngram_embedding.shard_{}.weight",
                 "per_layer_token_embd.weight", Extent::kNgramRows, Extent::kNgramRowDim);
  table.experts = ExpertForm::kShards;
  return table;
}

inline constexpr std::array<HfTensor, 7> kHfNgrams = {{
    HfNgramTable(),
    HfOfNgrams("model.layers.{}.ple.key_proj.weight", "blk.{}.ple_key.weight", Extent::kAllStreams,
               Extent::kNgramColumns),
    HfOfNgrams("model.layers.{}.ple.value_proj.weight", "blk.{}.ple_value.weight", Extent::kDim,
               Extent::kNgramColumns),
    HfOfNgrams("model.layers.{}.ple.norm_key.weight", "blk.{}.ple_norm_key.weight",
               Extent::kAllStreams, Extent::kNone, Values::kPlusOne),
    HfOfNgrams("model.layers.{}.ple.norm_query.weight", "blk.{}.ple_norm_query.weight",
               Extent::kAllStreams, Extent::kNone, Values::kPlusOne),
    HfOfNgrams("model.layers.{}.ple.norm_conv.weight", "blk.{}.ple_norm_conv.weight",
               Extent::kAllStreams, Extent::kNone, Values::kPlusOne),
    HfOfNgrams("model.layers.{}.ple.conv1d.weight", "blk.{}.ple_conv1d.weight", Extent::kAllStreams,
               Extent::kNgramTaps),
}};

}  // namespace kvant::arch
