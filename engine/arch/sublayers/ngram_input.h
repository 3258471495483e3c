// Embeddings of the n-grams that end with a token, which a layer adds to its streams before its
// blocks (engine/graph/recurrent/ngram_nodes.h has the hash and the gates):
//   e = the rows of the table for the token's n-grams, one behind the other
//   k = ple_key . e, for each stream; v = ple_value . e
//   g = v, times a gate for each stream by k and the stream
//   stream += g + silu(conv(ple_norm_conv(g)))
// where the convolution of each column takes every size-th row, `size` being that of the longest
// n-gram. Its state are the rows that it reaches back to and the last tokens.
//
// Tensors: per_layer_token_embd, which all of the model's n-grams share; of the layer ple_key and
// ple_value, ple_norm_key, ple_norm_query and ple_norm_conv, [count * dim], and ple_conv1d [taps x
// count * dim].
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/graph/recurrent/ngram_nodes.h"

namespace kvant::arch {

class SublayerBuilder;

struct NgramInput {
  graph::NgramHash hash;
  int64_t row_dim = 0;  // of the table
  int64_t taps = 0;
  float epsilon = 0;  // of the norms

  int64_t columns() const { return hash.rows() * row_dim; }

  Status AddNodes(SublayerBuilder& builder) const;
};

// The n-grams of a file, and the layer that adds them.
struct PlacedNgrams {
  size_t layer = 0;
  NgramInput input;
};

// Reads the keys of "ple." and embedding_length_per_layer_input; nothing where ple.layers is absent
// or empty. kNotSupported for several layers.
Result<std::optional<PlacedNgrams>> ReadNgrams(const Metadata& metadata, size_t layers,
                                               float epsilon);

}  // namespace kvant::arch
