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

// The scale of a vector that a warp quantizes, and the scale's inverse.
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

// The greatest magnitude of every 32nd number of a vector, from `first` on.
KVANT_GPU float MostOf(const float* vector, int dim, int first) {
  float most = 0.0f;
  for (int d = first; d < dim; d += 32) {
    const float magnitude = vector[d] < 0.0f ? -vector[d] : vector[d];
    // A number that is not finite must not vanish in the comparison.
    most = IsFinite(magnitude) ? Greater(most, magnitude) : Infinity();
  }
  return most;
}

// Stores every 32nd number of the key of a token and kv head, from number `lane` on.
KVANT_GPU void StoreKey(const LayerBlocks& to, std::byte* bytes, int head, int token,
                        const float* key, const CodeScale& scale, int lane) {
  const int tile = token / kKeyTilePositions;
  const int slot = token % kKeyTilePositions;
  std::byte* keys = bytes + to.keys;
  if (to.k_type == Element::kF16) {
    Half* numbers =
        reinterpret_cast<Half*>(keys) + static_cast<int64_t>(head) * kBlockPositions * to.k_dim;
    for (int d = lane; d < to.k_dim; d += 32) {
      numbers[(tile * to.k_dim + d) * kKeyTilePositions + slot] = ToFiniteHalf(key[d]);
    }
    return;
  }
  std::byte* codes = keys + static_cast<int64_t>(head) * kBlockPositions * to.k_dim;
  for (int d = lane; d < to.k_dim; d += 32) {
    codes[tile * kKeyTilePositions * to.k_dim + (d / 4 * kKeyTilePositions + slot) * 4 + d % 4] =
        static_cast<std::byte>(CodeOf(key[d], scale) + 128);
  }
  if (lane == 0) {
    reinterpret_cast<float*>(bytes + to.key_scales)[head * kBlockPositions + token] = scale.scale;
  }
}

// Stores every 32nd number of the value of a token and kv head, from number `lane` on.
KVANT_GPU void StoreValue(const LayerBlocks& to, std::byte* bytes, int head, int token,
                          const float* value, const CodeScale& scale, int lane) {
  const int tile = token / kValueTilePositions;
  const int slot = token % kValueTilePositions;
  std::byte* values = bytes + to.values;
  if (to.v_type == Element::kF16) {
    Half* numbers =
        reinterpret_cast<Half*>(values) + static_cast<int64_t>(head) * kBlockPositions * to.v_dim;
    for (int d = lane; d < to.v_dim; d += 32) {
      numbers[token * to.v_dim + d] = ToFiniteHalf(value[d]);
    }
    return;
  }
  std::byte* codes = values + static_cast<int64_t>(head) * kBlockPositions * to.v_dim;
  for (int d = lane; d < to.v_dim; d += 32) {
    codes[(tile * to.v_dim + d) * kValueTilePositions + slot] =
        static_cast<std::byte>(CodeOf(value[d], scale));
  }
  if (lane == 0) {
    reinterpret_cast<float*>(bytes + to.value_scales)[head * kBlockPositions + token] = scale.scale;
  }
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
      absmax[t] = MostOf(t < 32 ? key : value, t < 32 ? to.k_dim : to.v_dim, t % 32);
    });
    block.WarpMax(absmax);
    block.Each([&](int t) {
      const CodeScale scale = ScaleOf(absmax[t]);
      if (t < 32) {
        StoreKey(to, bytes, block.y, token, key, scale, t);
      } else {
        StoreValue(to, bytes, block.y, token, value, scale, t - 32);
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
