// The kernels of one instruction set, as the engine sees them: plain functions over rows.
//
// Numerics: the value of an output never depends on how many rows are computed together, on how
// rows are split over threads, or on where a row starts, so that one token alone, in a batch and in
// a prefill of few tokens gives the same bits. A matrix product with many tokens (TokenCount) may
// have another arithmetic, again one for any number of tokens.
// Kernels for different instruction sets may differ in the last bits.
//
// Shapes are row-major. Pointers named *_row are aligned to 64 bytes unless said otherwise.
// Thread-safety: pure functions over their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/activations.h"
#include "cpu/distance_bias.h"
#include "cpu/kv_format_list.h"
#include "quant/format.h"

namespace kvant::cpu {

struct PeakLoops;

// ---- Matrix products
// -----------------------------------------------------------------------------

enum class Store : uint8_t { kSet, kAdd };

// Products with few tokens and products with many may round differently. The caller decides once
// for a whole pass which of them it has, so that all its products agree, however their rows are
// shared out to threads.
enum class TokenCount : uint8_t { kFew, kMany };

// A pass of at least this many rows has many tokens.
inline constexpr int64_t kManyTokens = 64;
constexpr TokenCount TokenCountOf(int64_t rows) {
  return rows < kManyTokens ? TokenCount::kFew : TokenCount::kMany;
}

// Which activations a scratch memory holds. Kernels for kInt8 rearrange the activations into the
// scratch before they multiply, and write into this record what they have left there; later calls
// for other weight rows of the same product find it again. The caller keeps one record beside each
// scratch memory. It clears the record before a product with other activations, and whenever it has
// used the scratch for anything else.
struct ArrangedActivations {
  const void* order = nullptr;  // another address for each order of values; null: nothing
  int64_t begin = 0;            // tokens of the product
  int64_t end = 0;
  int64_t tile = 0;  // tokens whose blocks lie side by side
  bool operator==(const ArrangedActivations&) const = default;
};

// The rows of a second matrix, which are multiplied beside those of the first with the same
// numbers, and who takes the products instead of MatMulTask::out, while they are near: the gated
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
  // What `scratch` holds; kernels for kFloat32 ignore it. Null: activations are rearranged in every
  // call.
  ArrangedActivations* arranged = nullptr;
  // Of kernels that take pairs, with many tokens. Null: there is one matrix.
  const MatMulPair* pair = nullptr;
};

struct MatMulKernel {
  // For `kvant inspect --plan`: "q4_0 int8 avx512vnni", "q4_0 int8/bf16 amx" (few, many tokens).
  const char* name;
  ActivationKind activation;
  int row_tile;  // callers split rows at multiples of this
  size_t (*scratch_bytes)(int64_t cols);
  void (*run)(const MatMulTask& task);
  // For float formats: multiplies many tokens, in panels; uses the same scratch. Null where the
  // instruction set has no float panels.
  void (*run_many)(const MatMulTask& task) = nullptr;
  bool generic = false;      // takes any format's blocks value by value
  bool takes_pairs = false;  // of `run` with many tokens: MatMulTask::pair
};

// ---- Rows of blocks
// ---------------------------------------------------------------------------------

// Encodes rows of floats into rows of blocks, with the bytes of quant::FormatTraits::encode on
// every instruction set. Pointers may have any alignment; batches of at least 16 blocks are
// fastest.
struct EncodeTask {
  const quant::FormatTraits* format;
  const float* values;      // [rows][cols]
  const float* importance;  // [cols], a weight for each column of every row; null: all weigh alike
  int64_t rows;
  int64_t cols;       // multiple of format->block_values
  std::byte* blocks;  // [rows][format->row_bytes(cols)]
};

using EncodeFunction = void (*)(const EncodeTask& task);

// quant::FormatTraits::decode, with its arguments and bits.
using DecodeFunction = void (*)(const std::byte* blocks, float* values, int64_t n_values);

// ---- Attention
// -------------------------------------------------------------------------------------

// Dimensions of a q8 vector at most.
inline constexpr int kKvQ8DimMax = 1024;

// The largest code of a weight that meets q8 values: sums over the kAttentionSpan positions of a
// span stay below 2^31.
inline constexpr int kKvWeightCodeMax = 32767;

// What the key of a position is.
enum class KeyForm : uint8_t {
  kStored,      // the k_dim numbers of the key tiles
  kValueFirst,  // the position's value, then the k_dim numbers of the key tiles: latent attention
};

// A run of cached positions of one kv head that lie contiguously in memory.
struct KvRun {
  const std::byte* keys;                // key tiles, the first starts at first_position
  const std::byte* values;              // value tiles, the first starts at first_position
  int64_t first_position;               // multiple of kKeyTileTokens
  int64_t count;                        // tokens; the rest of the last tile may hold anything
  const float* key_scales = nullptr;    // [count rounded up to whole tiles] for q8 keys
  const float* value_scales = nullptr;  // [count] for q8 values
  uint64_t rows = ~uint64_t{0};         // bit r: the task's row r (modulo 64) may see it
};

// Positions that the rows of a task whose bits are set do not see, although runs hold them. Their
// values have the weight 0 and may be multiplied with it: f32 and f16 values must be finite.
struct HiddenPositions {
  int64_t begin;
  int64_t end;
  uint64_t rows = ~uint64_t{0};  // as in KvRun
};

// Positions of a span, over which one softmax runs. Spans begin at multiples of it, whatever the
// runs and the threads, and their partial results (maximum, sum of exponentials, weighted values)
// merge in order of position: that fixes the bits.
inline constexpr int64_t kAttentionSpan = 512;
static_assert(kKvWeightCodeMax * 127ll * kAttentionSpan < 1ll << 31);

// Rows of a task some of whose runs or hidden positions are not for all rows.
inline constexpr int64_t kMaskedRowsMax = 64;

// The slice of a task that one call attends to: spans [begin, end); span s begins at position
// s * kAttentionSpan. A call for a slice writes no result but leaves, for attention_merge, one
// record of AttentionPartialFloats(v_dim) floats for each of its spans and query vectors: span s of
// query vector q has the record (s - first) * rows * heads_per_kv + q of `partials`: its largest
// score times log2(e), then the sum of its weights relative to that, and from number 16 on what
// these weigh of the values.
struct AttentionSlice {
  int64_t first = 0;  // the first span of the task
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  float* partials = nullptr;  // 64-byte aligned; null: all spans, and the result goes to `out`
};
constexpr int64_t AttentionPartialFloats(int v_dim) { return 16 + (v_dim + 15) / 16 * 16; }

// Where the window of a query begins.
enum class WindowKind : uint8_t {
  kSliding,   // it is the last `window` positions, the query's own included
  kSections,  // at the last multiple of `window`: the sequence is cut into sections of this length
};

// The first position that a query sees; window 0: all.
inline int64_t FirstInWindow(WindowKind kind, int64_t window, int64_t position) {
  if (window == 0) return 0;
  if (kind == WindowKind::kSections) return position - position % window;
  return position < window ? 0 : position - window + 1;
}

// For every query row r and query head h of one kv head:
// out = softmax(s over the visible positions) . v, s = cap(scale * q . k) + slope[h] * (p - o[r])
// + bias[h](p - o[r]), visible = { p : p <= position[r] and p >= FirstInWindow(window_kind, window,
// position[r]) }, less the hidden ones; o is `origins`. A sink is one more score without a value.
// Products with q8 codes are exact integers: queries meet q8 keys as q8 vectors, and the weights of
// a softmax span, relative to the largest and each times the scale of its value, meet q8 values as
// codes. The code kKvWeightCodeMax stands for the weight 1 and the largest scale that the row sees
// in the span, so a value whose scale is 2^n times that of others takes n of their weights' 15
// bits. A position whose weight underflows to 0 may count as hidden where values are q8, even if
// the scale of its value is NaN.
//
// Of KeyForm::kValueFirst q . k is a sum of two products, of the query's first v_dim numbers with
// the value and of the others with what the key tiles hold; either is one of q8 codes where what it
// meets is q8.
struct AttentionTask {
  const float* queries;      // [rows][heads_per_kv] vectors of query_dim() floats
  int64_t query_row_stride;  // floats between rows; heads of one row are query_dim() apart
  float* out;                // [rows][heads_per_kv] vectors of v_dim floats
  int64_t out_row_stride;
  int64_t rows;
  const int64_t* positions;  // [rows]
  int heads_per_kv;
  int k_dim;
  int v_dim;
  KvElement k_element;
  KvElement v_element;
  float scale;
  int64_t window;
  // By first position; the runs of a row do not overlap. They may start after the first visible
  // position only where the cache has dropped positions.
  std::span<const KvRun> runs;
  std::span<const HiddenPositions> hidden = {};
  // Gemma 2 (arXiv 2408.00118): cap(s) = score_cap * tanh(s / score_cap), within score_cap * 2^-21;
  // 0: cap(s) = s.
  float score_cap = 0;
  // ALiBi (arXiv 2108.12409): what a position back takes off the score of each head; null: nothing.
  const float* bias_slopes = nullptr;  // [heads_per_kv]
  const float* sinks = nullptr;        // [heads_per_kv]; null: none
  DistanceBias distance_bias = {};
  // [rows], the positions from which distances count, where they are not `positions`, because a row
  // sees later ones, too; null: they are.
  const int64_t* origins = nullptr;
  WindowKind window_kind = WindowKind::kSliding;
  AttentionSlice slice = {};
  std::span<std::byte> scratch;  // attention_scratch_bytes, private to the thread, 64-byte aligned
  KeyForm key_form = KeyForm::kStored;
  // Of the pass that the rows belong to. Products of a pass with many tokens may have an arithmetic
  // of their own (KernelTable::many_form), with errors of at most 2^-15 of a product with f16
  // numbers and 2^-22 of one with f32.
  TokenCount count = TokenCount::kFew;

  int query_dim() const { return key_form == KeyForm::kValueFirst ? v_dim + k_dim : k_dim; }
  int64_t OriginOf(int64_t row) const { return origins != nullptr ? origins[row] : positions[row]; }
};

// ---- Activations of feed-forward blocks --------------------------------------------------------

// Formulas are in cpu/generic/activations.inl. exp is within 2 ulp of the exact value.
enum class Activation : uint8_t {
  kSilu,  // x / (1 + exp(-x))
  // The tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415): 0.5 x (1 + tanh(u)) =
  // x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
  kGeluTanh,
  kGeluErf,      // GELU itself, 0.5 x (1 + erf(x / sqrt(2))), with an error below 2e-7 |x|
  kRelu,         // max(x, 0)
  kReluSquared,  // max(x, 0)^2
  // gpt-oss: g / (1 + exp(-1.702 g)), g = min(x, 7), which multiplies max(-7, min(up, 7)) + 1.
  kSwigluClamped,
  kTanh,     // within 2^-21
  kSigmoid,  // 1 / (1 + exp(-x))
  // Decays of RWKV 6 and 7: exp(-exp(x)), and exp(-exp(-1/2) / (1 + exp(-x))).
  kDecay,
  kBoundedDecay,
};

struct ActivationKernel {
  Activation activation;
  const char* name;  // "silu"
  // out = f(x); out may be x.
  void (*apply)(const float* x, int64_t cols, float* out);
  // out = f(gate) * up, or what the activation makes of up; out may be gate or up.
  void (*multiply)(const float* gate, const float* up, int64_t cols, float* out);
};

// Whether each activation has the place of its number.
constexpr bool InOrder(std::span<const ActivationKernel> kernels) {
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (static_cast<size_t>(kernels[i].activation) != i) return false;
  }
  return kernels.size() == static_cast<size_t>(Activation::kBoundedDecay) + 1;
}

// ---- Rotary embedding
// --------------------------------------------------------------------------------

enum class RopeStyle : uint8_t {
  kInterleaved,  // pairs (2i, 2i + 1): llama in GGUF
  kHalves,       // pairs (i, i + n_rot / 2): NeoX, phi3
};

// ---- Recurrent layers ---------------------------------------------------------------------------

// out[c] = bias[c] + the sum over taps of weights[tap][c] * rows[tap][c]: the last of `taps` rows
// is the present one.
struct ConvTask {
  const float* const* rows;  // [taps], of `cols` values each, the oldest first
  const float* weights;      // [taps][weight_stride]
  int64_t weight_stride;
  const float* bias;  // null: zeros
  int64_t taps;
  int64_t cols;
  float* out;  // none of the rows
};

enum class ScanRule : uint8_t {
  kAdd,    // state = decay * state + key (x) gain * value
  kDelta,  // state = decay * state + key (x) gain * (value - key . decay * state)
  // RWKV 6 and 7, which have a decay for each number of a key. The first reads the state before it
  // changes: out = query . (state + bonus * key (x) value).
  kWkv6,  // state = decays * state + key (x) value
  kWkv7,  // state = decays * state + key (x) value + writer (x) (eraser . state)
};

// Columns of a state that one call takes, which depend on no others.
inline constexpr int64_t kScanColumns = 16;

// For each row in turn: the state, [depth][kScanColumns], by its rule, then out = query . state.
// A state of F16 is rounded after each row (to nearest even, clamped to the finite range), so that
// its bits do not depend on how rows are cut into tasks either; out is that of the state before it
// is rounded.
struct ScanTask {
  ScanRule rule;
  int64_t rows;
  int64_t depth;         // of keys and queries
  int64_t cols;          // of values and results, at most kScanColumns
  const float* keys;     // row t at keys + t * key_stride
  const float* queries;  // likewise, with the same stride
  int64_t key_stride;
  const float* values;
  int64_t value_stride;
  const float* decays;  // one for each row, or [depth] for each
  const float* gains;   // one for each row, with the same stride; of kAdd and kDelta
  int64_t gate_stride;
  void* state;  // of state_element; columns beyond `cols` are zeros and stay so
  float* out;
  int64_t out_stride;
  const float* bonus = nullptr;    // [depth], of kWkv6
  const float* erasers = nullptr;  // [depth] for each row, of kWkv7
  const float* writers = nullptr;  // likewise, with the same stride
  int64_t eraser_stride = 0;
  KvElement state_element = KvElement::kF32;  // or kF16
};

// The scan of Mamba 1, whose steps differ from column to column: for each row in turn and each
// column, the state, [depth][kScanColumns], becomes exp(step * rate) * state + b * step * x; then
// out = c . state + skip * x. b and c are those of all columns, rates those of each number of the
// state.
struct SelectiveScanTask {
  int64_t rows;
  int64_t depth;  // of b and c
  int64_t cols;   // at most kScanColumns
  const float* x;
  int64_t x_stride;
  const float* steps;
  int64_t step_stride;
  const float* b;
  const float* c;
  int64_t bc_stride;
  const float* rates;  // [depth][kScanColumns]; zeros in columns beyond `cols`
  const float* skips;  // [cols]
  void* state;         // of state_element, as in ScanTask
  float* out;
  int64_t out_stride;
  KvElement state_element = KvElement::kF32;  // or kF16
};

// ---- The table
// -----------------------------------------------------------------------------------------

struct KernelTable {
  const char* isa;  // "scalar", "avx2", "avx512vnni"

  // One kernel per format, at the place that quant::FormatIndex gives.
  std::vector<MatMulKernel> matmul;

  // One function per format, at the place that quant::FormatIndex gives; never null.
  std::vector<EncodeFunction> encode;
  std::vector<DecodeFunction> decode;

  // Quantizes cols values into the arrays of `out`, which point into a row at a multiple of 32
  // values. cols may be any number; the last group of 32 is padded with zero codes.
  void (*quantize)(const float* values, int64_t cols, const ActivationRow& out);

  // What kernels for ActivationKind::kInt8 read where there are many tokens, and the function that
  // writes it: `quantize`, or for kBf16 one that rounds.
  ActivationForm many_form = ActivationForm::kInt8;
  void (*quantize_many)(const float* values, int64_t cols, const ActivationRow& out);

  // For the records of a pass with so many tokens.
  ActivationForm FormFor(TokenCount count) const {
    return count == TokenCount::kMany ? many_form : ActivationForm::kInt8;
  }
  void Quantize(TokenCount count, const float* values, int64_t cols,
                const ActivationRow& out) const {
    (count == TokenCount::kMany ? quantize_many : quantize)(values, cols, out);
  }

  // out = x / sqrt(mean(x^2) + epsilon) * weight; out may be x. The sum runs in a fixed order.
  void (*rms_norm)(const float* x, const float* weight, int64_t cols, float epsilon, float* out);

  // out = a + b; out may be a.
  void (*add)(const float* a, const float* b, int64_t cols, float* out);

  // One row per Activation, at the place of its number.
  std::span<const ActivationKernel> activations;

  const ActivationKernel& ForActivation(Activation activation) const {
    return activations[static_cast<size_t>(activation)];
  }

  // values = cap * tanh(values / cap), within cap * 2^-21 (Gemma 2, arXiv 2408.00118); cap > 0.
  void (*cap)(float* values, int64_t count, float cap);

  // Rotates the first n_rot values of each of n_heads vectors of head_dim floats in place.
  // cos_sin: [n_rot / 2] cosines, then [n_rot / 2] sines, of this row's position.
  void (*rope)(float* vectors, int64_t n_heads, int64_t head_dim, int64_t n_rot, RopeStyle style,
               const float* cos_sin);

  // Multiplies each of n_vectors vectors of dim floats, in place, by the symmetric orthogonal
  // matrix diag(H, H, ...) / sqrt(n): H is the Hadamard matrix of order n, the largest power of two
  // that divides dim. Twice is the identity up to rounding. It spreads outliers before quantizing.
  void (*rotate)(float* vectors, int64_t n_vectors, int64_t dim);

  // Writes one token's key (k_dim floats) as column `slot` (0..15) of a key tile, and the scale of
  // a q8 key. F16 is rounded to nearest even and clamped to the finite range.
  void (*store_key)(const float* key, int64_t k_dim, KvElement element, int slot, std::byte* tile,
                    float* scale);

  // Writes one token's value (v_dim floats) as token `slot` (0..3) of a value tile, and the scale
  // of a q8 value.
  void (*store_value)(const float* value, int64_t v_dim, KvElement element, int slot,
                      std::byte* group, float* scale);

  size_t (*attention_scratch_bytes)(int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                                    KeyForm key_form);
  void (*attention)(const AttentionTask& task);

  // The results of a task from its spans' partial results in [slice.begin, slice.end), with the
  // bits that one call for all spans gives.
  void (*attention_merge)(const AttentionTask& task);

  // out = x / (1 + exp(-gates)); out may be x. exp is within 2 ulp.
  void (*sigmoid_gate)(const float* gates, const float* x, int64_t cols, float* out);
  void (*causal_conv)(const ConvTask& task);
  void (*scan)(const ScanTask& task);
  void (*selective_scan)(const SelectiveScanTask& task);

  // Loops that reach the limits of the instruction set, for benchmarks; see cpu/peaks.h.
  const PeakLoops* peaks;
};

// ---- Run-time dispatch
// -----------------------------------------------------------------------------------

// One row of cpu/isa_list.h as seen on this machine.
struct IsaReport {
  const char* name;
  bool compiled;
  bool supported;
  std::string reason;  // why it was refused: "CPU lacks avx512_vnni"
};

// All instruction sets, best first.
std::vector<IsaReport> ReportIsas();

// The best supported instruction set, or the named one ("scalar", "avx2", "avx512vnni"; "" = best).
// kInvalid for an unknown name, kNotSupported for one that this CPU or build lacks.
Result<const KernelTable*> ChooseKernels(std::string_view name);

// The same, with the name from the environment variable KVANT_ISA.
Result<const KernelTable*> ChooseKernelsFromEnvironment();

}  // namespace kvant::cpu
