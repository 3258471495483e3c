// Attention over the positions of a sequence, with grouped heads:
//   qkv = qkv matrix . x + bias; queries and keys of each head normed, then rotated
//   out = output matrix . softmax(cap(scale * q . k) over the visible positions) . v + bias
//
// Tensors: attn_q, attn_k and attn_v, or attn_qkv with their rows one below the other; attn_output;
// each with an optional bias; attn_q_norm and attn_k_norm, [k_dim] for all heads.
// It keeps keys and values of every position in one cache layer.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

struct Stack;
class SublayerBuilder;

enum class MaskKind : uint8_t {
  kCausal,  // a query sees its own position and all before it
  kWindow,  // ... but only the last `window` of these
};

struct Mask {
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;  // positions a query sees, itself included; of kWindow only
};

// RMS norms of each head's query and key.
enum class HeadNorms : uint8_t {
  kIfPresent,  // where the file has their weights
  kRequired,   // a file without them is refused
};

struct Attention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  Mask mask;
  size_t rope = 0;      // index into ModelSpec::ropes
  float scale = 0;      // of the products of queries and keys
  float score_cap = 0;  // cap(s) = c * tanh(s / c); 0: cap(s) = s
  HeadNorms head_norms = HeadNorms::kIfPresent;
  float head_norm_epsilon = 0;

  Status AddNodes(SublayerBuilder& builder) const;
};

// The attentions of all layers of a stack, by head_count, head_count_kv, key_length, value_length,
// sliding_window (in every layer) and scale of "attention."; `rope` is left 0.
Result<std::vector<Attention>> ReadAttentions(const Metadata& metadata, const Stack& stack);

// Gives the model with so many layers the scale 1 / sqrt(dim / heads), unless the metadata give
// one: the 27B models of Gemma 2 and 3 are known by nothing else.
void ScaleByWidth(const Metadata& metadata, size_t layers, int64_t dim,
                  std::vector<Attention>& attentions);

// Which layers have a window, where they alternate: by attention.sliding_window_pattern, a flag per
// layer, or a number n that gives every n-th layer no window. `otherwise` is the number in files
// without the key.
Result<std::vector<bool>> ReadWindowPattern(const Metadata& metadata, size_t layers,
                                            uint32_t otherwise);

}  // namespace kvant::arch
