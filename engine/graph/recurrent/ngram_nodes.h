// Embeddings of hashed n-grams (Qwen 3.8 Flash-Next, the class Qwen4ExpTextPLELayer of
// transformers): for n from 2 to `size`, `heads` rows of one large table each,
//   h = t[0] * m[0] xor ... xor t[n - 1] * m[n - 1]
//   row = offset + h modulo count, with an offset and a count for each n and head
// where t[s] is the token s positions back. It is `eos` where there is none, and where one of the
// tokens from t[1] to t[s] is `eos`: n-grams do not reach over the end of a text.
//
// The state is the last size - 1 tokens, as floats.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "engine/graph/recurrent/recurrent_nodes.h"
#include "engine/graph/rowwise/norm.h"
#include "engine/graph/rowwise/stream_nodes.h"
#include "formats/gguf.h"

namespace kvant::graph {

struct NgramHash {
  int64_t size = 0;                        // of the longest n-gram
  int64_t heads = 0;                       // for each n
  std::vector<uint64_t> multipliers = {};  // [size]
  std::vector<uint64_t> offsets = {};      // [rows()]
  std::vector<uint64_t> counts = {};       // [rows()]
  int32_t eos = 0;
  // Tokens from `vocab` on are rows of an image or of sound: `other` stands for each of them.
  int64_t vocab = 0;
  int32_t other = 0;

  int64_t rows() const { return (size - 1) * heads; }
  int64_t state_floats() const { return size - 1; }
  // Writes the rows of the table for the newest of the tokens t[0] to t[size - 1].
  void Find(const int32_t* tokens, int64_t* rows) const;
};
// A float holds tokens below this one.
inline constexpr int64_t kNgramTokensMax = 1 << 24;

// out = the rows of the table that belong to each token, one behind the other, as floats and
// quantized as far as `out` asks. The table is read where it lies, row by row.
std::unique_ptr<Node> MakeNgramRows(const cpu::KernelTable& kernels, std::string name,
                                    NgramHash hash, const formats::GgufTensor& table,
                                    StateSlice state, const Activations& out);

// For each stream, by columns of `in`, [count][dim] keys and [dim] values:
//   gate = signed square root of key_norm(key) . query_norm(stream) / sqrt(dim)
//   gated = sigmoid(gate) * value;  normed = out_norm(gated)
// where a square root is that of at least 1e-6. Norms have a part of their weights for each stream.
struct NgramGate {
  StreamShape shape;
  Norm key_norm = {};
  Norm query_norm = {};
  Norm out_norm = {};
  ValueId in = kNoValue;
  ValueId streams = kNoValue;
  ValueId gated = kNoValue;
  ValueId normed = kNoValue;
};
std::unique_ptr<Node> MakeNgramGate(const cpu::KernelTable& kernels, std::string name,
                                    NgramGate gate);

}  // namespace kvant::graph
