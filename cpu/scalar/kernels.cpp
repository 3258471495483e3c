// The reference kernels over rows, and the scalar kernel table. Sums keep the lanes and the fused
// operations of cpu/generic, so that the bits of all instruction sets agree.
#include <bit>
#include <cstring>

#include "cpu/codec_table.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "cpu/portable_series.h"
#include "cpu/scalar/attention.h"
#include "cpu/scalar/index_scores.h"
#include "cpu/scalar/isa.h"
#include "cpu/scalar/math.h"
#include "cpu/scalar/matmul.h"
#include "cpu/scalar/peaks.h"
#include "cpu/scalar/quantized_vector.h"

namespace kvant::cpu::scalar {
namespace {

void RmsNorm(const float* x, const float* weight, int64_t cols, float epsilon, float* out) {
  float lanes[kSumLanes] = {};
  for (int64_t i = 0; i < cols; ++i) {
    float& lane = lanes[i % kSumLanes];
    lane = std::fma(x[i], x[i], lane);
  }
  const float mean = SumLanes(lanes) / static_cast<float>(cols);
  const float factor = 1.0f / std::sqrt(mean + epsilon);
  for (int64_t i = 0; i < cols; ++i) out[i] = x[i] * factor * weight[i];
}

void LayerNorm(const float* x, const float* weight, const float* bias, int64_t cols, float epsilon,
               float* out) {
  float lanes[kSumLanes] = {};
  for (int64_t i = 0; i < cols; ++i) lanes[i % kSumLanes] += x[i];
  const float mean = SumLanes(lanes) / static_cast<float>(cols);
  for (int64_t i = 0; i < cols; ++i) out[i] = x[i] - mean;
  RmsNorm(out, weight, cols, epsilon, out);
  for (int64_t i = 0; bias != nullptr && i < cols; ++i) out[i] += bias[i];
}

void AddRows(const float* a, const float* b, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; ++i) out[i] = a[i] + b[i];
}

// The words in which activations.inl and recurrence.inl of cpu/generic are written, for vectors of
// one float.
using F32 = float;
constexpr int kLanes = 1;
F32 Zero() { return 0.0f; }
F32 Broadcast(float value) { return value; }
F32 Load(const float* source) { return *source; }
F32 LoadPartial(const float* source, int64_t /*count*/) { return *source; }
void Store(float* target, F32 value) { *target = value; }
void StorePartial(float* target, F32 value, int64_t /*count*/) { *target = value; }
F32 Add(F32 a, F32 b) { return a + b; }
F32 Sub(F32 a, F32 b) { return a - b; }
F32 Mul(F32 a, F32 b) { return a * b; }
F32 Div(F32 a, F32 b) { return a / b; }
F32 MulAdd(F32 a, F32 b, F32 c) { return std::fma(a, b, c); }
F32 NegMulAdd(F32 a, F32 b, F32 c) { return std::fma(-a, b, c); }
F32 Max(F32 a, F32 b) { return a > b ? a : b; }
F32 Min(F32 a, F32 b) { return a < b ? a : b; }
F32 LoadF16(const uint16_t* source) { return F16ToF32(*source); }
void StoreF16(uint16_t* target, F32 value) { *target = F32ToF16(value); }
F32 ClampToF16(F32 value) { return Min(65504.0f, Max(-65504.0f, value)); }
#include "cpu/generic/activations.inl"
#include "cpu/generic/portable_rows.inl"
#include "cpu/generic/recurrence.inl"
#include "cpu/generic/selective_scan.inl"

void Cap(float* values, int64_t count, float cap) {
  for (int64_t i = 0; i < count; ++i) values[i] = cap * Tanh(values[i] / cap);
}

void Rope(float* vectors, int64_t n_heads, int64_t head_dim, int64_t n_rot, RopeStyle style,
          const float* cos_sin) {
  const int64_t half = n_rot / 2;
  for (int64_t head = 0; head < n_heads; ++head) {
    for (int64_t i = 0; i < half; ++i) {
      const bool interleaved = style == RopeStyle::kInterleaved;
      float& first = vectors[head * head_dim + (interleaved ? 2 * i : i)];
      float& second = vectors[head * head_dim + (interleaved ? 2 * i + 1 : i + half)];
      const float cosine = cos_sin[i];
      const float sine = cos_sin[half + i];
      const float a = first;
      const float b = second;
      first = std::fma(a, cosine, -(b * sine));
      second = std::fma(b, cosine, a * sine);
    }
  }
}

void Rotate(float* vectors, int64_t n_vectors, int64_t dim) {
  const int64_t order = dim & -dim;
  const float factor = 1.0f / std::sqrt(static_cast<float>(order));
  for (float* block = vectors; block != vectors + n_vectors * dim; block += order) {
    for (int64_t half = 1; half < order; half *= 2) {
      for (int64_t i = 0; i < order; ++i) {
        if ((i & half) != 0) continue;
        const float a = block[i];
        const float b = block[i + half];
        block[i] = a + b;
        block[i + half] = a - b;
      }
    }
    for (int64_t i = 0; i < order; ++i) block[i] *= factor;
  }
}

// Calls store(d, number) with the numbers of a vector as a format has them, and writes their
// scales.
template <class Format, class Store>
void ForEachNumber(const float* values, int64_t count, void* scales, const Store& store) {
  if constexpr (Format::kHasScales) {
    auto* scale = static_cast<std::byte*>(scales);
    for (int64_t begin = 0; begin < count; begin += Format::kNumbersPerScale) {
      const int64_t some = std::min<int64_t>(Format::kNumbersPerScale, count - begin);
      const QuantizedVector codes(values + begin, some, Format::kCodeMax);
      Format::StoreScale(scale, codes.scale());
      scale += Format::kScaleBytes;
      for (int64_t i = 0; i < some; ++i) {
        store(static_cast<size_t>(begin + i), static_cast<typename Format::Number>(codes[i]));
      }
    }
  } else {
    for (int64_t d = 0; d < count; ++d) store(static_cast<size_t>(d), Format::FromFloat(values[d]));
  }
}

void StoreKey(const float* key, int64_t k_dim, KvType element, int slot, std::byte* tile,
              void* scales) {
  const auto column = static_cast<size_t>(slot);
  const auto dims = static_cast<size_t>(k_dim);
  VisitKvFormat(element, [&]<class Format>(Format) {
    using Number = typename Format::Number;
    ForEachNumber<Format>(key, k_dim, scales, [&](size_t d, Number number) {
      Format::PutKey(tile, column, d, number);
    });
    for (size_t d = dims; d < Format::KeyDims(dims); ++d) Format::PutKey(tile, column, d, Number());
  });
}

void StoreValue(const float* value, int64_t v_dim, KvType element, int slot, std::byte* group,
                void* scales) {
  VisitKvFormat(element, [&]<class Format>(Format) {
    ForEachNumber<Format>(value, v_dim, scales, [&](size_t d, typename Format::Number number) {
      Format::PutValue(group, static_cast<size_t>(slot), d, static_cast<size_t>(v_dim), number);
    });
  });
}

void LayOutKeys(const float* keys, int64_t stride, int64_t count, int64_t k_dim, float* tile) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t d = 0; d < k_dim; ++d) tile[d * kKeyTileTokens + i] = keys[i * stride + d];
  }
}

}  // namespace

const KernelTable* Kernels() {
  static const KernelTable table = {
      .isa = "scalar",
      .matmul = MatMulKernels(),
      .encode = BuildEncodeTable({}),
      .decode = BuildDecodeTable({}),
      .quantize = QuantizeActivations,
      .quantize_many = QuantizeActivations,
      .rms_norm = RmsNorm,
      .layer_norm = LayerNorm,
      .add = AddRows,
      .activations = kActivations,
      .cap = Cap,
      .rope = Rope,
      .rotate = Rotate,
      .store_key = StoreKey,
      .store_value = StoreValue,
      .lay_out_keys = LayOutKeys,
      .attention_scratch_bytes = AttentionScratchBytes,
      .attention = Attention,
      .attention_merge = AttentionMerge,
      .index_scores = IndexScores,
      .sigmoid_gate = SigmoidGate,
      .causal_conv = CausalConv,
      .key_decays = KeyDecays,
      .scan = Scan,
      .selective_scan = SelectiveScan,
      .portable_exps = PortableExps,
      .portable_logs = PortableLogs,
      .peaks = Peaks(),
  };
  return &table;
}

}  // namespace kvant::cpu::scalar
