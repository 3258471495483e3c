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
#include <span>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/blocks.h"
#include "cpu/kernels/index_scores.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/recurrence.h"
#include "cpu/kernels/rope.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"

namespace kvant::cpu {

struct PeakLoops;

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

  // The form that kernels for ActivationKind::kInt8 read where there are many tokens, and the
  // function that writes this form: `quantize`, or for kBf16 one that rounds.
  ActivationForm many_form = ActivationForm::kInt8;
  void (*quantize_many)(const float* values, int64_t cols, const ActivationRow& out);

  // The form of the records of a pass with `count` tokens.
  ActivationForm FormFor(TokenCount count) const {
    return count == TokenCount::kMany ? many_form : ActivationForm::kInt8;
  }
  void Quantize(TokenCount count, const float* values, int64_t cols,
                const ActivationRow& out) const {
    (count == TokenCount::kMany ? quantize_many : quantize)(values, cols, out);
  }

  // out = x / sqrt(mean(x^2) + epsilon) * weight; out may be x. The sum runs in a fixed order.
  void (*rms_norm)(const float* x, const float* weight, int64_t cols, float epsilon, float* out);

  // out = y / sqrt(mean(y^2) + epsilon) * weight + bias with y = x - mean(x); out may be x, bias
  // null for none. Both sums run in the order of rms_norm's.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t cols,
                     float epsilon, float* out);

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

  // store_key, store_value and attention take types for which KernelsFor (cpu/kv_kernels.h) gives
  // this table.
  //
  // Writes one token's key (k_dim floats) as column `slot` (0..15) of a key tile, and its scales
  // where the format has some. F16 is rounded to nearest even and clamped to the finite range.
  void (*store_key)(const float* key, int64_t k_dim, KvType type, int slot, std::byte* tile,
                    void* scales);

  // Writes one token's value (v_dim floats) as token `slot` (0..3) of a value tile, and its scales.
  void (*store_value)(const float* value, int64_t v_dim, KvType type, int slot, std::byte* group,
                      void* scales);

  // tile[d * kKeyTileTokens + i] = keys[i * stride + d], d < k_dim: the keys of `count` tokens, at
  // most kKeyTileTokens, as a key tile of floats. Columns of other tokens are undefined.
  void (*lay_out_keys)(const float* keys, int64_t stride, int64_t count, int64_t k_dim,
                       float* tile);

  // The bytes suffice for the scalar table's attention, too.
  size_t (*attention_scratch_bytes)(int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                                    KeyForm key_form);
  void (*attention)(const AttentionTask& task);

  // The results of a task from its spans' partial results in [slice.begin, slice.end), with the
  // bits that one call for all spans gives.
  void (*attention_merge)(const AttentionTask& task);

  // Takes types for which KernelsFor gives this table.
  void (*index_scores)(const IndexTask& task);

  // out = x / (1 + exp(-gates)); out may be x. exp is within 2 ulp.
  void (*sigmoid_gate)(const float* gates, const float* x, int64_t cols, float* out);
  void (*causal_conv)(const ConvTask& task);
  void (*key_decays)(const KeyDecayTask& task);
  void (*scan)(const ScanTask& task);
  void (*selective_scan)(const SelectiveScanTask& task);

  // Each value becomes the exponential of value / divisor, or its natural logarithm, with the same
  // bits on every instruction set: PortableExps and PortableLogs of
  // engine/generate/portable_math.h. Quotients are from -700 to 0; logarithms want positive,
  // finite, normal values. No alignment.
  void (*portable_exps)(double* values, int64_t count, double divisor);
  void (*portable_logs)(double* values, int64_t count);

  // Loops that reach the limits of the instruction set, for benchmarks; see cpu/peaks.h.
  const PeakLoops* peaks;
};

}  // namespace kvant::cpu
