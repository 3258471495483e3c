// Latent attention: attention whose keys and values are made from one small row for each position,
// which is what the cache keeps (DeepSeek-V2, arXiv 2405.04434;
// engine/graph/attention/latent_nodes.h).
//   q = q matrix . x, or q_b . norm(q_a . x)        [heads][nope + rope]
//   [c, k_pe] = kv_a . x; c = norm(c)               [latent + rope]
//   k = [Wk c, k_pe], v = Wv c for each head; the last `rope` values of q and k are rotated
//   out = output matrix . softmax(scale * q . k) over the visible positions . v
// Some models rotate nothing, some multiply the result of each head by sigmoid(gate . x), and some
// see only positions that an indexer chooses: its queries are indexer.attn_q_b . norm(q_a . x), its
// key is made of indexer.attn_k . x, and its weights are indexer.proj . x.
//
// Tensors: attn_q, or attn_q_a, attn_q_a_norm and attn_q_b; attn_kv_a_mqa, attn_kv_a_norm;
// attn_output; attn_gate, a row for each head. Wk and Wv: attn_k_b [nope x latent x heads], which
// is Wk transposed, and attn_v_b [latent x v_dim x heads]; or attn_kv_b [latent x heads * (nope +
// v_dim)] with the rows of Wk and Wv of each head; or all three. A transpose that the file lacks is
// made when it is opened. It keeps a row of every position in one cache layer: c as its value, k_pe
// as its key.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/metadata.h"
#include "engine/arch/sublayers/indexer.h"
#include "engine/graph/attention/attention_nodes.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/rowwise/rope.h"

namespace kvant::arch {

struct Stack;
class SublayerBuilder;

struct LatentAttention {
  graph::LatentShape shape;
  int64_t q_rank = 0;               // rows of attn_q_a; 0: queries come from attn_q
  std::optional<size_t> rope = {};  // index into ModelSpec::ropes; nothing: no rotation
  float scale = 0;                  // of the products of queries and keys
  float epsilon = 0;                // of the inner norms
  graph::QueryTemperature temperature = {};
  bool gated = false;  // by attn_gate
  std::optional<Indexer> indexer = {};

  Status AddNodes(SublayerBuilder& builder) const;
};

// The attentions of all layers of a stack, and their rope, which is none without a style, by the
// keys head_count, q_lora_rank,
// kv_lora_rank, key_length_mla and value_length_mla (in older files key_length and value_length) of
// "attention.", and rope.*. The scale is 1 / sqrt(nope + rope), with YaRN times the square of
// 1 + rope.scaling.yarn_log_multiplier * ln(factor); cosine and sine have no factor then.
Result<std::vector<LatentAttention>> ReadLatentAttentions(const Metadata& metadata,
                                                          const Stack& stack,
                                                          std::optional<cpu::RopeStyle> style,
                                                          std::vector<graph::RopeSpec>& ropes);

}  // namespace kvant::arch
