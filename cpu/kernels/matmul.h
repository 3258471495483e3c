// Products of a matrix of weight rows with the activations of one or several tokens: the task that
// a kernel is given, and the properties that a kernel has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/activations.h"
#include "cpu/kernels/token_count.h"
#include "quant/format.h"

namespace kvant::cpu {

enum class Store : uint8_t { kSet, kAdd };

// The activations that a scratch memory holds. Kernels for kInt8 rearrange the activations into the
// scratch before they multiply, and note in this record what the scratch holds afterwards; later
// calls for other weight rows of the same product find the activations there. The caller keeps one
// record beside each scratch memory. It clears the record before a product with other activations,
// and whenever it has used the scratch for anything else.
struct ArrangedActivations {
  const void* order = nullptr;  // another address for each order of values; null: nothing
  int64_t begin = 0;            // tokens of the product
  int64_t end = 0;
  int64_t tile = 0;  // tokens whose blocks lie side by side
  bool operator==(const ArrangedActivations&) const = default;
};

// The rows of a second matrix, which are multiplied beside those of the first with the same
// activations. The products go to `take` instead of MatMulTask::out, while they are near: the gated
// unit.
struct MatMulPair {
  const std::byte* weights;  // as MatMulTask::weights, of the same format and size
  // Takes the products of token `token` with rows [row, row + count) of both matrices; it may write
  // over them. Called once for each token and for each of some stretches of rows that begin at
  // row_begin and at multiples of kMatMulPairRows after it.
  void (*take)(const void* context, int64_t token, int64_t row, int64_t count, float* first,
               float* second);
  const void* context;
};
inline constexpr int64_t kMatMulPairRows = 64;

// A function that goes on with the outputs of a token while they are near.
struct MatMulFinish {
  // Gets the outputs of token `token` in rows [row, row + count), which are complete; it may change
  // them. Called once for each token and each of some stretches of rows that begin at row_begin and
  // at multiples of kMatMulPairRows after it.
  void (*finish)(const void* context, int64_t token, int64_t row, int64_t count, float* out);
  const void* context;
  // Nobody reads MatMulTask::out afterwards, so that the outputs may lie elsewhere. Only with
  // Store::kSet.
  bool discards = false;
};

// out[t * out_stride + r] = (or +=) dot(weights row r, activations row t) for row_begin <= r <
// row_end.
struct MatMulTask {
  const quant::FormatTraits* format;
  const std::byte* weights;  // row 0; rows are row_bytes apart; 2-byte aligned at least
  int64_t row_bytes;
  int64_t cols;
  int64_t row_begin;
  int64_t row_end;
  const std::byte* activations;  // token 0, of the kernel's ActivationKind
  int64_t activation_stride;     // bytes between tokens
  int64_t tokens;
  float* out;
  int64_t out_stride;  // floats between tokens
  Store store;
  std::span<std::byte> scratch;  // private to the calling thread, 64-byte aligned
  TokenCount count = TokenCount::kFew;
  // The activations that `scratch` holds; kernels for kFloat32 ignore this field. Null: activations
  // are rearranged in every call.
  ArrangedActivations* arranged = nullptr;
  // The second matrix, for kernels that take pairs, with many tokens. Null: there is one matrix.
  const MatMulPair* pair = nullptr;
  // For kernels that finish, with many tokens and without a pair. Null: nothing follows.
  const MatMulFinish* finish = nullptr;
};

struct MatMulKernel {
  // The name in `kvant inspect --plan`: "q4_0 int8 avx512vnni", "q4_0 int8/bf16 amx" (few, many
  // tokens).
  const char* name;
  ActivationKind activation;
  int row_tile;  // callers split rows at multiples of this
  size_t (*scratch_bytes)(int64_t cols);
  void (*run)(const MatMulTask& task);
  // Multiplies many tokens of float formats, in panels; uses the same scratch. Null where the
  // instruction set has no float panels.
  void (*run_many)(const MatMulTask& task) = nullptr;
  bool generic = false;      // takes any format's blocks value by value
  bool takes_pairs = false;  // of `run` with many tokens: MatMulTask::pair
  bool finishes = false;     // the same, or of run_many: MatMulTask::finish
};

}  // namespace kvant::cpu
