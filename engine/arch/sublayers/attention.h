// Attention over the positions of a sequence, with grouped heads:
//   qkv = qkv matrix . x + bias; queries and keys of each head normed, then rotated
//   out = output matrix . softmax(cap(scale * q . k) over the visible positions) . v + bias
//
// with these, where the model has them: queries, keys and values within a bound (clamp); norms of
// queries and keys, over the values of a head or of all heads, before or after the rope; a cap;
// slope . distance off the score; queries that are multiplied by a factor that grows with their
// position; and sinks, a learned score of each head that is one more in its softmax and has no
// value.
//
// Tensors: attn_q, attn_k and attn_v, or attn_qkv with their rows one below the other; attn_output;
// each with an optional bias; attn_q_norm and attn_k_norm, by HeadNormWeights, layer norms over all
// heads with an optional bias; attn_sinks, [heads]; attn_gate, a row for each value of the result
// or for each head; with an indexer, its matrices indexer.q_proj and indexer.k_proj of the same
// input. It keeps keys and values of every position in one cache layer, or it has
// queries alone and reads what the attention of another layer keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/arch/norm.h"
#include "engine/arch/sublayers/indexer.h"
#include "engine/graph/attention/attention_nodes.h"

namespace kvant::arch {

struct Stack;
class SublayerBuilder;

enum class MaskKind : uint8_t {
  kCausal,    // a query sees its own position and all before it
  kWindow,    // ... but only the last `window` of these
  kSections,  // ... but only those from the last multiple of `window` on
  kAll,       // all positions of a source, in an encoder
};

// T5 (arXiv 1910.10683): a learned number for each head and bucket of distances is added to scores.
// The first half of a direction's buckets hold one distance each; the other buckets widen up to
// `distance_max`, beyond which all distances share the last bucket. An encoder has half of the
// buckets for keys behind the query and half for those before it.
struct DistanceBuckets {
  int64_t buckets = 0;  // 0: there are none
  int64_t distance_max = 0;
};

struct Mask {
  MaskKind kind = MaskKind::kCausal;
  int64_t window = 0;  // positions a query sees at most, itself included; not of kCausal
};

// Norms of queries and keys.
enum class HeadNorms : uint8_t {
  kIfPresent,  // where the file has their weights
  kRequired,   // a file without them is refused
  kNone,
  kWithoutWeights,  // RMS norms of a head's values
};

enum class HeadNormWeights : uint8_t {
  kShared,      // [k_dim]: every head has the same
  kPerHead,     // [k_dim x heads]
  kProjection,  // [heads * k_dim]: one norm takes the values of all heads
};

enum class Sinks : uint8_t { kNone, kRequired };

// Gates of the result, from a matrix of their own: activation(attn_gate . x).
struct ResultGate {
  cpu::Activation activation = cpu::Activation::kSigmoid;
  bool per_head = false;  // a number for each head, or else for each value of the result
};

struct Attention {
  static constexpr size_t kNoRope = ~size_t{0};

  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  Mask mask;
  size_t rope = kNoRope;  // index into ModelSpec::ropes
  float scale = 0;        // of the products of queries and keys
  float score_cap = 0;    // cap(s) = c * tanh(s / c); 0: cap(s) = s
  HeadNorms head_norms = HeadNorms::kIfPresent;
  HeadNormWeights head_norm_weights = HeadNormWeights::kShared;
  NormKind head_norm_kind = NormKind::kRms;                          // shared weights: kRms only
  graph::NormOrder head_norm_order = graph::NormOrder::kBeforeRope;  // others: before only
  float head_norm_epsilon = 0;
  float clamp = 0;  // of queries, keys and values; 0: none
  // The rows of attn_q are a query and a gate for each head in turn; the result is multiplied by
  // the sigmoid of the gates before attn_output.
  bool gated = false;
  std::optional<ResultGate> gate = {};   // multiplies the result before attn_output
  std::optional<Norm> result_norm = {};  // of the result of all heads before attn_output
  // ALiBi: what a position back takes off a head's score, [heads]; empty: nothing.
  std::vector<float> bias_slopes = {};
  graph::QueryTemperature temperature = {};
  Sinks sinks = Sinks::kNone;
  // There is no attn_v: values are the keys before their norm and rope.
  bool values_are_keys = false;
  bool norm_values = false;  // RMS norms without weights of the values
  // The layer before this one whose keys and values it reads; its kv heads and sizes are the same.
  std::optional<size_t> keys_of = {};
  // Tensor attn_rel_b [heads x buckets]; a layer without it has that of the first layer.
  DistanceBuckets buckets = {};
  std::optional<Indexer> indexer = {};  // each of its heads chooses, for as many kv heads
  std::string_view output = "attn_output";

  Status AddNodes(SublayerBuilder& builder) const;
};

// Gives attentions gates by the tensors attn_gate, whose rows say what they multiply. kCorrupt for
// another number of rows, and for a layer without the tensor.
Status ReadResultGates(const Metadata& metadata, const Stack& stack, cpu::Activation activation,
                       std::vector<Attention>& attentions);

// The attentions of all layers of a stack, by head_count, head_count_kv, key_length, value_length,
// sliding_window (in every layer) and scale of "attention."; there is no rope yet.
Result<std::vector<Attention>> ReadAttentions(const Metadata& metadata, const Stack& stack);

// Reads the attentions of a family with recurrent layers. A layer without kv heads is recurrent and
// gets no attention. kCorrupt where no layer has any.
Result<std::vector<std::optional<Attention>>> ReadSomeAttentions(const Metadata& metadata,
                                                                 const Stack& stack);
// Reads attentions where only the chosen layers have one, whatever heads the metadata give to
// others.
Result<std::vector<std::optional<Attention>>> ReadSomeAttentions(const Metadata& metadata,
                                                                 const Stack& stack,
                                                                 const std::vector<bool>& chosen);

// ALiBi (arXiv 2108.12409): slopes 2^(-max_bias t / n), t = 1 ... n, where n is the number of
// heads, a power of two. Another number of heads has the slopes of the power of two below, followed
// by every second slope of the power of two above.
std::vector<float> AlibiSlopes(int64_t heads, float max_bias);

// The temperature of queries by attention.temperature_scale, where 0 means none, and by the key of
// its length.
inline constexpr const char* kTemperatureScaleKey = "attention.temperature_scale";
Result<graph::QueryTemperature> ReadTemperature(const Metadata& metadata, const char* length_key);

// The key attention.max_alibi_bias, 0 for a model without ALiBi; `otherwise` where it is absent.
Result<float> ReadMaxAlibiBias(const Metadata& metadata, float otherwise);

// Gives the model with so many layers the scale 1 / sqrt(dim / heads), unless the metadata give
// one: the 27B models of Gemma 2 and 3 are known by nothing else.
void ScaleByWidth(const Metadata& metadata, size_t layers, int64_t dim,
                  std::vector<Attention>& attentions);

// Lets the last layers, as many as attention.shared_kv_layers says, read the keys and values of an
// earlier layer: a layer with a window reads the last one before them with a window, another layer
// the last one without. kCorrupt where there is no such layer.
Status ShareKeys(const Metadata& metadata, const std::vector<bool>& windows,
                 std::vector<Attention>& attentions);

// The bucket of a distance, a key's position less a query's, of `buckets` for both directions or,
// of a causal attention, for one. Computed in 32-bit floats, as the models were trained.
int64_t DistanceBucket(const DistanceBuckets& buckets, MaskKind mask, int64_t distance);

// Reads which layers have a window, where they alternate, from attention.sliding_window_pattern: a
// flag per layer, or a number n that gives every n-th layer no window. `otherwise` is the number in
// files without the key.
// `full` says which of them a number means: the last one of every n, or the first.
enum class FullLayer : uint8_t { kLast, kFirst };
Result<std::vector<bool>> ReadWindowPattern(const Metadata& metadata, size_t layers,
                                            uint32_t otherwise, FullLayer full = FullLayer::kLast);

// Leaves the window to the chosen layers. kCorrupt where one of them has none.
Status KeepWindows(const Metadata& metadata, const std::vector<bool>& windows,
                   std::vector<Attention>& attentions);

}  // namespace kvant::arch
