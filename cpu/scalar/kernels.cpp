// The reference kernels over rows, and the scalar kernel table. Sums keep the lanes and the fused
// operations of cpu/generic, so that the bits of all instruction sets agree.
#include <cstring>

#include "base/half.h"
#include "cpu/codec_table.h"
#include "cpu/scalar/attention.h"
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

void AddRows(const float* a, const float* b, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; ++i) out[i] = a[i] + b[i];
}

void SiluMultiply(const float* gate, const float* up, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; ++i) out[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

void GeluMultiply(const float* gate, const float* up, int64_t cols, float* out) {
  for (int64_t i = 0; i < cols; ++i) {
    const float x = gate[i];
    const float cubic = std::fma(x * x, kGeluCubic, kGeluLinear);
    out[i] = x / (1.0f + Exp(-(x * cubic))) * up[i];
  }
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

uint16_t ToF16(float value) {
  constexpr float kF16Max = 65504.0f;
  return F32ToF16(std::isnan(value) ? value : std::clamp(value, -kF16Max, kF16Max));
}

// Element i of a float vector goes to place i * stride.
void StoreElements(const float* values, int64_t count, KvElement element, int64_t stride,
                   std::byte* target) {
  for (int64_t i = 0; i < count; ++i) {
    if (element == KvElement::kF32) {
      reinterpret_cast<float*>(target)[i * stride] = values[i];
    } else {
      reinterpret_cast<uint16_t*>(target)[i * stride] = ToF16(values[i]);
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

void StoreKey(const float* key, int64_t k_dim, KvElement element, int slot, std::byte* tile,
              float* scale) {
  if (element != KvElement::kQ8) {
    StoreElements(key, k_dim, element, kKeyTileTokens,
                  tile + static_cast<size_t>(slot) * KvElementBytes(element));
    return;
  }
  const QuantizedVector codes(key, k_dim);
  *scale = codes.scale();
  uint8_t* column = reinterpret_cast<uint8_t*>(tile) + slot * 4;
  for (int64_t d = 0; d < (k_dim + 3) / 4 * 4; ++d) {
    const int code = d < k_dim ? codes[d] : 0;
    column[d / 4 * 4 * kKeyTileTokens + d % 4] = static_cast<uint8_t>(code + 128);
  }
}

void StoreValue(const float* value, int64_t v_dim, KvElement element, int slot, std::byte* group,
                float* scale) {
  if (element != KvElement::kQ8) {
    const size_t row_bytes = static_cast<size_t>(v_dim) * KvElementBytes(element);
    StoreElements(value, v_dim, element, 1, group + static_cast<size_t>(slot) * row_bytes);
    return;
  }
  const QuantizedVector codes(value, v_dim);
  *scale = codes.scale();
  for (int64_t d = 0; d < v_dim; ++d) {
    reinterpret_cast<int8_t*>(group)[d * kValueGroupTokens + slot] = static_cast<int8_t>(codes[d]);
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
      .rms_norm = RmsNorm,
      .add = AddRows,
      .silu_multiply = SiluMultiply,
      .gelu_multiply = GeluMultiply,
      .rope = Rope,
      .rotate = Rotate,
      .store_key = StoreKey,
      .store_value = StoreValue,
      .attention_scratch_bytes = AttentionScratchBytes,
      .attention = Attention,
      .attention_merge = AttentionMerge,
      .peaks = Peaks(),
  };
  return &table;
}

}  // namespace kvant::cpu::scalar
