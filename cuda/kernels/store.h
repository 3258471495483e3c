// Stores keys and values in the cache, as the kernels of the CPU do (cpu::KernelTable::store_key):
// halves are rounded to nearest and clamped to the finite range; codes have one scale for a
// position and head, the greatest magnitude / 127, and a vector that is not finite has a scale that
// is not a number.
#pragma once

#include "cuda/kernels/block.h"

namespace kvant::cuda {

inline constexpr float kHalfMax = 65504.0f;
// 127 divided by less may overflow.
inline constexpr float kVanishing = 0x1p-110f;

// As near as a finite half comes; what is not a number stays so.
KVANT_GPU float ClampToHalf(float value) {
  return value != value ? value : Lesser(Greater(value, -kHalfMax), kHalfMax);
}
KVANT_GPU Half ToFiniteHalf(float value) { return ToHalf(ClampToHalf(value)); }

// What a warp makes of a vector whose numbers are quantized.
struct CodeScale {
  float scale;
  float inverse;
};
KVANT_GPU CodeScale ScaleOf(float absmax) {
  if (!IsFinite(absmax)) return {NotANumber(), 0.0f};
  if (absmax < kVanishing) return {0.0f, 0.0f};
  return {absmax / 127.0f, 127.0f / absmax};
}
KVANT_GPU int CodeOf(float value, const CodeScale& scale) {
  return scale.inverse == 0.0f ? 0 : static_cast<int>(Round(value * scale.inverse));
}

// A thread block is one row (x) and kv head (y): warp 0 stores the key, warp 1 the value.
template <class Block>
KVANT_GPU void StoreRow(Block& block, const StoreParams& p) {
  const LayerBlocks& to = p.blocks;
  const int stored = p.tables.blocks[block.x];
  if (stored < 0) return;
  const int token = p.tables.positions[block.x] % kBlockPositions;
  std::byte* bytes = to.memory + static_cast<uint64_t>(stored) * to.block_bytes;
  const float* row = p.input + block.x * p.input_stride;
  const float* key = row + p.key_column + block.y * to.k_dim;
  const float* value = row + p.value_column + block.y * to.v_dim;
  block.Warps(2, [&] {
    PerThread<float> absmax;
    block.Each([&](int t) {
      const float* vector = t < 32 ? key : value;
      const int dim = t < 32 ? to.k_dim : to.v_dim;
      float most = 0.0f;
      for (int d = t % 32; d < dim; d += 32) {
        const float magnitude = vector[d] < 0.0f ? -vector[d] : vector[d];
        // What is not a number must not vanish in the comparison.
        most = IsFinite(magnitude) ? Greater(most, magnitude) : Infinity();
      }
      absmax[t] = most;
    });
    block.WarpMax(absmax);
    block.Each([&](int t) {
      const CodeScale scale = ScaleOf(absmax[t]);
      const int lane = t % 32;
      if (t < 32) {
        const int tile = token / kKeyTilePositions;
        const int slot = token % kKeyTilePositions;
        std::byte* keys = bytes + to.keys;
        if (to.k_element == Element::kF16) {
          Half* head = reinterpret_cast<Half*>(keys) +
                       static_cast<int64_t>(block.y) * kBlockPositions * to.k_dim;
          for (int d = lane; d < to.k_dim; d += 32) {
            head[(tile * to.k_dim + d) * kKeyTilePositions + slot] = ToFiniteHalf(key[d]);
          }
        } else {
          std::byte* head = keys + static_cast<int64_t>(block.y) * kBlockPositions * to.k_dim;
          for (int d = lane; d < to.k_dim; d += 32) {
            head[tile * kKeyTilePositions * to.k_dim + (d / 4 * kKeyTilePositions + slot) * 4 +
                 d % 4] = static_cast<std::byte>(CodeOf(key[d], scale) + 128);
          }
          if (lane == 0) {
            reinterpret_cast<float*>(bytes + to.key_scales)[block.y * kBlockPositions + token] =
                scale.scale;
          }
        }
        return;
      }
      const int tile = token / kValueTilePositions;
      const int slot = token % kValueTilePositions;
      std::byte* values = bytes + to.values;
      if (to.v_element == Element::kF16) {
        Half* head = reinterpret_cast<Half*>(values) +
                     static_cast<int64_t>(block.y) * kBlockPositions * to.v_dim;
        for (int d = lane; d < to.v_dim; d += 32) {
          head[token * to.v_dim + d] = ToFiniteHalf(value[d]);
        }
      } else {
        std::byte* head = values + static_cast<int64_t>(block.y) * kBlockPositions * to.v_dim;
        for (int d = lane; d < to.v_dim; d += 32) {
          head[(tile * to.v_dim + d) * kValueTilePositions + slot] =
              static_cast<std::byte>(CodeOf(value[d], scale));
        }
        if (lane == 0) {
          reinterpret_cast<float*>(bytes + to.value_scales)[block.y * kBlockPositions + token] =
              scale.scale;
        }
      }
    });
  });
}

// Thread blocks (x) copy a range each, in gridDim.y parts.
template <class Block>
KVANT_GPU void CopyRanges(Block& block, const CopyParams& p, int parts) {
  struct alignas(16) Words {
    uint64_t words[2];
  };
  const CopyRange range = p.ranges[block.x];
  const uint64_t count = range.bytes / sizeof(Words);
  block.Each([&](int t) {
    const uint64_t step = static_cast<uint64_t>(parts) * kThreads;
    for (uint64_t i = static_cast<uint64_t>(block.y) * kThreads + static_cast<uint64_t>(t);
         i < count; i += step) {
      reinterpret_cast<Words*>(range.to)[i] = reinterpret_cast<const Words*>(range.from)[i];
    }
  });
}

}  // namespace kvant::cuda
