// The named shapes of synthetic models, as the tensors and metadata of a family's files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/arch/family.h"
#include "formats/gguf_writer.h"

namespace kvant::tools {

struct SyntheticShape {
  struct Latent {  // latent attention
    int64_t rank = 0;
    int64_t nope = 0;  // dimensions of a head that are not rotated, and those that are
    int64_t rope = 0;
    int64_t v_dim = 0;
    int64_t q_rank = 0;  // 0: queries are made in one step
  };
  // Indexers, beside latent attention with a rank of queries, or of blocks with one key.
  struct Index {
    int64_t heads = 0;
    int64_t dim = 0;
    int64_t top_k = 0;
    int64_t block = 0;  // 0: there are no blocks
  };
  struct Hyper {  // hyper-connections in place of norms, and n-grams in the second layer
    int64_t streams = 0;
    int64_t rank = 0;
    int64_t ngram_rows = 0;  // of the table that a head has
    int64_t ngram_row_dim = 0;
    int64_t ngram_heads = 0;  // for 2-grams, and for 3-grams
  };
  struct Delta {  // gated delta nets in three layers of four
    int64_t key_heads = 0;
    int64_t value_heads = 0;
    int64_t head_dim = 0;
    int64_t taps = 0;
  };
  struct Kda {  // Kimi delta attention, beside latent attention with gates in every n-th layer
    int64_t head_dim = 0;
    int64_t taps = 0;
    int64_t every = 0;
    int64_t groups = 0;  // of experts, half of which a token has
  };

  enum class Gates : uint8_t { kNone, kOfHeads, kOfValues };  // of the attention's result

  struct Encoder {  // an encoder-decoder: `layers` are those of the encoder
    int64_t decoder_layers = 0;
    int64_t source_max = 0;  // positions of a source, and of a text
    bool distances = false;  // T5: numbers for distances and gates, no biases; otherwise as Marian
  };

  std::string_view name;
  const arch::Family* family;
  int64_t dim, layers, heads, kv_heads, ffn, vocab;
  int64_t head_dim = 0;  // 0: dim / heads
  int64_t experts = 0;   // of a layer, each `ffn` wide; 0: one feed-forward
  int64_t experts_used = 0;
  int64_t shared_ffn = 0;  // of the shared expert; 0: there is none
  int64_t dense_ffn = 0;   // of the first layer, which has no experts; 0: it has
  int64_t window = 0;      // of the layers that have one; 0: none has
  bool tied = false;       // the embedding is the output matrix too
  bool predicts = false;   // a further layer, with attention, predicts a token more
  Gates gates = Gates::kNone;
  std::optional<Latent> latent = {};
  std::optional<Index> index = {};
  std::optional<Delta> delta = {};
  std::optional<Hyper> hyper = {};
  std::optional<Kda> kda = {};
  std::optional<Encoder> encoder = {};

  int64_t HeadDim() const { return head_dim == 0 ? dim / heads : head_dim; }
};

std::span<const SyntheticShape> SyntheticShapes();

struct SyntheticTensor {
  std::string name;
  int64_t cols = 0;
  int64_t rows = 1;
  int64_t experts = 1;              // matrices, one after the other
  std::optional<float> value = {};  // of all its numbers, which are random where there is none
};

// The tensors in the order of the file. Vectors of norms are 1, biases 0.
std::vector<SyntheticTensor> TensorsOf(const SyntheticShape& shape);

// Adds the metadata that the family reads.
void AddShape(const SyntheticShape& shape, formats::GgufWriter& writer);

}  // namespace kvant::tools
