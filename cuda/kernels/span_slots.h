// The blocks that the warps of span_rows.h bring to their slots in shared memory, and multiply
// there; latent_rows.h fills slots in its own way.
//
// Each warp has a slot in shared memory: its lanes copy the keys of its block there, and once they
// are read, its values. The copies of all warps are under way at the same time, and other thread
// blocks compute meanwhile. Where keys and values have as many dimensions as a kernel is made for,
// all places in a slot are known when it is compiled.
#pragma once

#include "cuda/kernels/span_results.h"

namespace kvant::cuda {

template <int kDims, int kTiles, int kJoinedTiles>
class SpanSlots : public SpanResults<kDims, kTiles, kJoinedTiles> {
 public:
  using Results = SpanResults<kDims, kTiles, kJoinedTiles>;
  using Results::kColumns;
  using Results::kWarps;

  // The warp begins to bring its block's keys or values.
  template <class Block>
  KVANT_GPU void BringKeys(Block& block, const LayerBlocks& from, const Entry& entry, int warp) {
    std::byte* to = Slot(block, warp);
    const std::byte* keys =
        BlockOf(from, entry.block) + from.keys + static_cast<int64_t>(block.y) * at_.key_bytes;
    if (from.k_dim != kDims) {
      CopyRows(block, to, at_.key_bytes, keys, at_.key_bytes, at_.key_bytes);
    } else if (from.k_type == Element::kInt8) {
      CopyRows<kBlockPositions * kDims, kCopyStep, kCopyStep>(block, to, keys);
    } else {
      CopyRows<kBlockPositions * kDims * 2, kCopyStep, kCopyStep>(block, to, keys);
    }
  }
  template <class Block>
  KVANT_GPU void BringValues(Block& block, const LayerBlocks& from, const Entry& entry, int warp) {
    std::byte* to = Slot(block, warp);
    const std::byte* values =
        BlockOf(from, entry.block) + from.values + static_cast<int64_t>(block.y) * at_.value_bytes;
    if (from.v_type == Element::kInt8) {
      const std::byte* scales =
          BlockOf(from, entry.block) + from.value_scales + block.y * kBlockPositions * 4;
      block.Each([&](int t) { value_scale_[t] = reinterpret_cast<const float*>(scales)[t % 32]; });
    }
    if (from.v_dim != kDims) {
      CopyRows(block, to, at_.value_row, values, at_.value_row_bytes, at_.value_bytes);
    } else if (from.v_type == Element::kInt8) {
      CopyRows<kBlockPositions * kDims, kDims * 4, kDims * 4 + kCodePad>(block, to, values);
    } else {
      CopyRows<kBlockPositions * kDims * 2, kDims * 2, kDims * 2 + kValuePad>(block, to, values);
    }
  }
  // scores_ = what the queries give for the warp's block, once its keys are there.
  template <class Block>
  KVANT_GPU void ScoreEntry(Block& block, const AttentionParams& p, const Entry& entry, int warp) {
    const bool codes = p.blocks.k_type == Element::kInt8;
    PerThread<Words2> scales[4];  // under way while the keys are
    if (codes) LoadKeyScales(block, p.blocks, entry, scales);
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) scores_[tile][n][i][t] = 0.0f;
        }
      }
    });
    EndBringing(block);
    const std::byte* keys = Slot(block, warp);
    constexpr int kSteps = kDims / 16;
    const bool whole = p.blocks.k_dim == kDims;
    if (codes) {
      whole ? AddSteps<true, kSteps>(block, p, keys) : AddSteps<true, 0>(block, p, keys);
      ScaleScores(block, scales);
    } else {
      whole ? AddSteps<false, kSteps>(block, p, keys) : AddSteps<false, 0>(block, p, keys);
    }
  }

  template <class Block>
  KVANT_GPU std::byte* WeightsAt(Block& block, int place, int step, int tile) const {
    return block.shared + at_.weights + ((place * 2 + step) * kTiles + tile) * 512;
  }
  template <class Block>
  KVANT_GPU int32_t* WholeAt(Block& block) const {
    return reinterpret_cast<int32_t*>(block.shared + at_.whole);
  }

  // Writes the factors that the values of a block's positions need: scales of codes, or which
  // positions were written. `scales` are those of position `lane`.
  template <class Block>
  KVANT_GPU void PutFactors(Block& block, const AttentionParams& p, const Piece& piece,
                            const Entry& entry, int place, const PerThread<float>& scales) {
    Half* factors = reinterpret_cast<Half*>(block.shared + at_.factors + place * kFactorBytes);
    const bool whole = entry.count == kBlockPositions && !HidesPositions(piece);
    block.Each([&](int t) {
      const int slot = t % 32;
      const bool written = IsWritten(p, piece, entry, slot);
      if (p.blocks.v_type == Element::kInt8) {
        const ScaleFactors of = written ? FactorsOf(scales[t]) : ScaleFactors{0, 0};
        factors[slot] = of.part;
        factors[kBlockPositions + slot] = of.power;
      } else {
        factors[slot] = written ? 0xffff : 0;
      }
      if (slot == 0) WholeAt(block)[place] = whole ? 1 : 0;
    });
  }

  // Adds the warp's dimensions of the weighted values of the blocks of places [begin, end).
  template <class Block>
  KVANT_GPU void AddValues(Block& block, const AttentionParams& p, int warp, int begin, int end) {
    const bool whole = p.blocks.v_dim == kDims;
    if (p.blocks.v_type == Element::kInt8) {
      whole ? AddBlocks<true, kDims>(block, p, warp, begin, end)
            : AddBlocks<true, 0>(block, p, warp, begin, end);
    } else {
      whole ? AddBlocks<false, kDims>(block, p, warp, begin, end)
            : AddBlocks<false, 0>(block, p, warp, begin, end);
    }
  }

  template <class Block>
  KVANT_GPU std::byte* Slot(Block& block, int number) const {
    return block.shared + at_.slots + number * at_.slot;
  }

 protected:
  using Results::at_;
  using Results::queries_;
  using Results::sums_;
  using Results::totals_;

  PerThread<float> value_scale_;           // of position `lane` of the warp's block of codes
  PerThread<float> scores_[kTiles][4][4];  // a warp's accumulators: 32 positions

 private:
  // All that this warp has begun to bring is there for all its lanes.
  template <class Block>
  KVANT_GPU static void EndBringing(Block& block) {
    block.Wait();
    block.WarpBarrier();
  }

  // A thread's scores are those of positions 8 n + 2 q and 8 n + 2 q + 1, q = lane % 4.
  template <class Block>
  KVANT_GPU static void LoadKeyScales(Block& block, const LayerBlocks& from, const Entry& entry,
                                      PerThread<Words2> (&scales)[4]) {
    const std::byte* at =
        BlockOf(from, entry.block) + from.key_scales + block.y * kBlockPositions * 4;
    block.Each([&](int t) {
#pragma unroll
      for (int n = 0; n < 4; ++n) scales[n][t] = Block::Load8(at + (8 * n + t % 4 * 2) * 4);
    });
  }
  template <class Block>
  KVANT_GPU void ScaleScores(Block& block, const PerThread<Words2> (&scales)[4]) {
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) scores_[tile][n][i][t] *= AsFloat(scales[n][t].w[i % 2]);
        }
      }
    });
  }

  // Adds the products of queries and keys, 16 dimensions in a step: kSteps steps, or, where kSteps
  // is 0, a number of steps that the compiler does not know.
  template <bool kCodes, int kSteps, class Block>
  KVANT_GPU void AddSteps(Block& block, const AttentionParams& p, const std::byte* keys) {
    const int steps = kSteps > 0 ? kSteps : at_.steps;
    const int k_dim = kSteps > 0 ? kSteps * 16 : p.blocks.k_dim;
#pragma unroll(kTiles == 1 && kSteps > 0 ? kSteps : 1)
    for (int step = 0; step < steps; ++step) {
      PerThread<uint32_t> b[4][2];
      if constexpr (kCodes) {
        LoadKeyCodes(block, k_dim, keys, step, b);
      } else {
        LoadKeys(block, k_dim, keys, step, b);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile * kWarpQueries >= queries_) break;
        PerThread<uint32_t> a[4];
        LoadFragment(block, block.shared + (tile * steps + step) * 512, a);
#pragma unroll
        for (int n = 0; n < 4; ++n) block.Mma(scores_[tile][n], a, b[n][0], b[n][1]);
      }
    }
  }

  template <bool kCodes, int kKnownDims, class Block>
  KVANT_GPU void AddBlocks(Block& block, const AttentionParams& p, int warp, int begin, int end) {
    const int v_dim = kKnownDims > 0 ? kKnownDims : p.blocks.v_dim;
    const int row = kCodes ? v_dim * 4 + kCodePad : v_dim * 2 + kValuePad;
    if (16 * warp >= v_dim) return;
#pragma unroll 1
    for (int place = begin; place < end; ++place) {
      const std::byte* values = Slot(block, place);
      const std::byte* factors = block.shared + at_.factors + place * kFactorBytes;
      const bool whole = kCodes || WholeAt(block)[place] != 0;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        PerThread<uint32_t> b[kColumns][4];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const int column = 16 * (warp + c * kWarps);
          if (kKnownDims == 0 && column >= v_dim) break;
          if constexpr (kCodes) {
            LoadValueCodes(block, v_dim, row, values, s, column,
                           reinterpret_cast<const HalfPair*>(factors), b[c]);
          } else {
            block.LoadB(b[c], reinterpret_cast<const Half*>(values), row / 2, 16 * s, column, 16);
            if (!whole) MaskValues(block, reinterpret_cast<const HalfPair*>(factors) + 8 * s, b[c]);
          }
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          if (tile * kWarpQueries >= queries_) break;
          PerThread<uint32_t> a[4];
          LoadFragment(block, WeightsAt(block, place, s, tile), a);
          const int columns =
              kKnownDims > 0 ? kColumns : (v_dim - 16 * warp + 16 * kWarps - 1) / (16 * kWarps);
          MultiplyValues(block, tile, a, b, columns);
        }
      }
    }
  }
  // Sets the values of those of 16 positions that were not written to zeros.
  template <class Block>
  KVANT_GPU static void MaskValues(Block& block, const HalfPair* written,
                                   PerThread<uint32_t> (&b)[4]) {
    block.Each([&](int t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i][t] &= written[4 * (i % 2) + t % 4];
    });
  }
  template <class Block>
  KVANT_GPU void MultiplyValues(Block& block, int tile, const PerThread<uint32_t> (&a)[4],
                                const PerThread<uint32_t> (&b)[kColumns][4], int columns) {
    PerThread<uint32_t> ones;
    block.Each([&](int t) { ones[t] = 0x3c003c00; });
    block.Mma(totals_[tile], a, ones, ones);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c >= columns) break;
      block.Mma(sums_[tile][c][0], a, b[c][0], b[c][1]);
      block.Mma(sums_[tile][c][1], a, b[c][2], b[c][3]);
    }
  }
};

}  // namespace kvant::cuda
