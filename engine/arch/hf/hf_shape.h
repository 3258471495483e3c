// The sizes of a Hugging Face model class, as config.json gives them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvant::arch {

// The heads of gated delta nets.
struct HfDelta {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;    // of a head
  int64_t value_dim = 0;  // of a head
  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t per_key() const { return value_heads / key_heads; }
};

// The heads of Mamba 2. Mamba 1 has heads of one column.
struct HfMamba {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t state_dim = 0;
  int64_t groups = 0;
  int64_t rank = 0;  // of Mamba 1: columns that steps are made of
  int64_t inner() const { return heads * head_dim; }
  int64_t conv_columns() const { return inner() + 2 * groups * state_dim; }
  int64_t in_columns() const { return inner() + conv_columns() + heads; }
};

inline constexpr int64_t kHfVocabMax = 1 << 22;

// Sizes that differ from layer to layer in some families.
struct HfLayerSizes {
  int64_t head_dim = 0;
  int64_t kv_heads = 0;
  int64_t ffn = 0;
  // Layers without keys and values of their own read another layer's, and folders may hold tensors
  // for them that nothing reads.
  bool own_keys = true;
  bool own_values = true;  // false with own keys: these are the values, too
  int64_t heads = 0;       // 0: as many as the shape says
};

// The heads of RWKV, and the columns of its products in two steps.
struct HfRwkv {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t mixes = 0;  // of a row with the one before it
  int64_t mix_rank = 0;
  int64_t decay_rank = 0;
  int64_t rate_rank = 0;
  int64_t value_rank = 0;
  int64_t gate_rank = 0;
  int64_t rescale_every = 0;  // layers after which the stream is halved; 0: it is not
};

// The decoder behind an encoder, where it differs from that.
struct HfDecoder {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t ffn = 0;
};

// Hashed n-grams that one layer adds to its streams.
struct HfNgrams {
  int64_t layer = -1;  // -1: there are none
  int64_t size = 0;    // of the longest
  int64_t heads = 0;   // for each size from 2 on
  int64_t dim = 0;     // of the rows of a token together
  int64_t rows = 0;    // of the table
  int64_t shards = 0;  // tensors in which the folder has the table
  int64_t taps = 0;    // of the convolution
  int64_t token_rows() const { return (size - 1) * heads; }
};

// The sizes that config.json gives every family.
struct HfShape {
  int64_t layers = 0;
  int64_t dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t context = 0;
  // Families with experts:
  int64_t experts = 0;       // of a layer
  int64_t experts_used = 0;  // by a token
  int64_t expert_ffn = 0;
  int64_t shared_ffn = 0;     // of the shared expert; 0: there is none
  int64_t expert_latent = 0;  // columns that experts read and write; 0: dim
  // Families with latent attention:
  int64_t q_rank = 0;  // 0: queries are made in one step
  int64_t latent = 0;
  int64_t nope = 0;  // dimensions of a head that are not rotated, and those that are
  int64_t rope = 0;
  int64_t v_dim = 0;  // values of a head
  // Families with indexers:
  int64_t index_heads = 0;
  int64_t index_dim = 0;
  std::vector<bool> index_layers = {};  // which layers have one of their own; empty: all
  // Families with recurrent layers:
  std::vector<bool> attention_layers = {};  // which layers have attention; empty: all
  int64_t conv_taps = 0;                    // rows that a convolution sees
  HfDelta delta = {};
  HfMamba mamba = {};
  // The width of each layer that is a feed-forward alone, 0 for others; empty: there are none.
  std::vector<int64_t> ffn_widths = {};
  // The sizes of each layer, where layers differ; empty: the sizes above hold for all.
  std::vector<HfLayerSizes> layer_sizes = {};
  HfRwkv rwkv = {};
  int64_t layer_inputs = 0;       // values that a layer is given by the token
  int64_t layer_input_vocab = 0;  // tokens that have them; 0: all
  bool gate_per_head = false;     // whether the gates of attention's result are one for each head
  // Families with several streams:
  int64_t streams = 0;
  int64_t laurel = 0;          // rank of the residuals
  bool correct_scale = false;  // whether what a layer gives has factors
  int64_t hyper_rank = 0;      // of hyper-connections
  HfNgrams ngrams = {};
  // Layers behind the others that predict further tokens, and how many of them are kept: those of a
  // family that can use them (HfFamily::keeps_predictors) whose tensors the folder has.
  int64_t prediction_layers = 0;
  int64_t kept_predictors = 0;
  // Families with two stacks: the sizes above are the encoder's. Tensors whose name in the GGUF
  // architecture begins with kHfDecoderPrefix belong to layers of the decoder.
  HfDecoder decoder = {};
  int64_t buckets = 0;  // of distances
  int64_t source = 0;   // positions of a source, where they have another number than `context`
  int64_t bins = 0;     // values of a frame of features
  // Tokens of sources where sources have an embedding of their own; 0: they have none.
  int64_t source_vocab = 0;
  // Encoders of texts:
  int64_t segments = 0;          // that tokens may belong to; 0: there are no rows for segments
  int64_t labels = 0;            // of a classifier; 0: there is none
  int64_t unread_positions = 0;  // rows of learned positions in front of the first one
  int64_t q_rows() const { return heads * head_dim; }
};
inline constexpr std::string_view kHfDecoderPrefix = "dec.";

}  // namespace kvant::arch
