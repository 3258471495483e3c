// The copies that a thread block of hopper.h brings to shared memory: its queries, and by one
// warpgroup the keys and values of span after span, a tile at a time. Codes become halves on the
// way.
#pragma once

#include "cuda/kernels/hopper_block.h"
#include "cuda/kernels/spans.h"

namespace kvant::cuda {

// kCodes: keys or values are codes.
template <int kDims, bool kCodes>
class HopperCopies {
 public:
  using At = HopperLayout<kDims>;

  template <class Block>
  KVANT_GPU void StageQueries(Block& block, const AttentionParams& p, const Piece& piece,
                              int first_query, int queries) const {
    constexpr int kChunks = kDims / 8;
    const int k_dim = p.blocks.k_dim;
    block.Each([&](int t) {
      for (int i = t; i < At::kQueries * kChunks; i += kHopperThreads) {
        const int number = i / kChunks;
        const int chunk = i % kChunks;
        Words4 words = {{0, 0, 0, 0}};
        if (number < queries && chunk * 8 < k_dim) {
          const int query = first_query + number;
          const int row = piece.first_row + query / p.heads_per_kv;
          const int head = block.y * p.heads_per_kv + query % p.heads_per_kv;
          const float* from = p.input + row * p.input_stride + head * k_dim + chunk * 8;
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            words.w[n] = ToHalves(ClampToHalf(p.scale * from[2 * n]),
                                  ClampToHalf(p.scale * from[2 * n + 1]));
          }
        }
        *reinterpret_cast<Words4*>(block.shared + number / 8 * At::kQueryStrip + chunk * 128 +
                                   number % 8 * 16) = words;
      }
    });
  }

  template <class Block>
  KVANT_GPU void Produce(Block& block, const AttentionParams& p, const Piece& piece, int span) {
    PutHead(block, p, piece, span);
    for (int tile = 0; tile < At::kTiles; ++tile) ProduceKeys(block, p, span, tile);
    for (int tile = 0; tile < At::kTiles; ++tile) ProduceValues(block, p, piece, span, tile);
  }

  KVANT_GPU static SpanHead* HeadOf(std::byte* shared, int span) {
    return reinterpret_cast<SpanHead*>(shared + At::kHeads +
                                       span % kHopperHeads * ((sizeof(SpanHead) + 15) / 16 * 16));
  }
  KVANT_GPU static float* KeyScalesOf(std::byte* shared, int span) {
    return reinterpret_cast<float*>(shared + At::kScales + span % kHopperHeads * At::kScaleBytes);
  }

  // Finds the blocks of a span, and says what the attending threads must know of the span.
  template <class Block>
  KVANT_GPU void PutHead(Block& block, const AttentionParams& p, const Piece& piece, int span) {
    const int number = piece.spans_at + span - piece.begin / kSpanPositions;
    const int first = p.tables.span_entries[number];
    const int end = p.tables.span_entries[number + 1];
    SpanHead* head = HeadOf(block.shared, span);
    block.Each([&](int t) {
      if (t >= kSpanBlocks) return;
      // Each thread finds the block of its place; places without one have no positions.
      Entry found = {0, 0, 0, 0};
      int whole = 0;  // blocks
      for (int e = first; e < end; ++e) {
        const Entry entry = p.tables.entries[e];
        if (entry.position % kSpanPositions / kBlockPositions == t) found = entry;
        whole += entry.count == kBlockPositions ? 1 : 0;
      }
      head->blocks[t] = found.block;
      head->counts[t] = found.count;
      if (t > 0) return;
      const int begin = span * kSpanPositions;
      head->seen = whole == kSpanBlocks && begin >= range_.all_begin &&
                           begin + kSpanPositions <= range_.all_end
                       ? 1
                       : 0;
      head->hides = HidesPositions(piece) ? 1 : 0;
      head->changes = ChangesScores(p) ? 1 : 0;
    });
    block.GroupBarrier();
    if (!kCodes) return;
    block.Each([&](int t) {
      for (int at = t; at < kSpanPositions; at += kThreads) {
        const std::byte* bytes = BlockOf(p.blocks, head->blocks[at / kBlockPositions]);
        const int of_head = block.y * kBlockPositions + at % kBlockPositions;
        if (p.blocks.k_type == Element::kInt8) {
          KeyScalesOf(block.shared, span)[at] =
              reinterpret_cast<const float*>(bytes + p.blocks.key_scales)[of_head];
        }
        if (p.blocks.v_type == Element::kInt8) {
          FactorsAt(block.shared, span)[at] =
              FactorsOf(reinterpret_cast<const float*>(bytes + p.blocks.value_scales)[of_head]);
        }
      }
    });
    block.GroupBarrier();
  }

  template <class Block>
  KVANT_GPU void ProduceKeys(Block& block, const AttentionParams& p, int span, int tile) {
    std::byte* to = block.shared + At::kRing + number_ % At::kSlots * At::kSlotBytes;
    block.WaitEmpty(number_);
    if (kCodes && p.blocks.k_type == Element::kInt8) {
      BringKeyCodes(block, p.blocks, span, tile, to);
    } else if (p.blocks.k_dim == kDims) {
      BringKeys<true>(block, p.blocks, span, tile, to);
    } else {
      BringKeys<false>(block, p.blocks, span, tile, to);
    }
    block.ArriveFull(number_, kCodes && p.blocks.k_type == Element::kInt8 ? Brought::kWritten
                                                                          : Brought::kCopied);
    ++number_;
  }

  template <class Block>
  KVANT_GPU void ProduceValues(Block& block, const AttentionParams& p, const Piece& piece, int span,
                               int tile) {
    std::byte* to = block.shared + At::kRing + number_ % At::kSlots * At::kSlotBytes;
    block.WaitEmpty(number_);
    if (kCodes && p.blocks.v_type == Element::kInt8) {
      BringValueCodes(block, p, piece, span, tile, to);
    } else if (p.blocks.v_dim == kDims) {
      BringValues<true>(block, p, piece, span, tile, to);
    } else {
      BringValues<false>(block, p, piece, span, tile, to);
    }
    block.ArriveFull(number_, kCodes && p.blocks.v_type == Element::kInt8 ? Brought::kWritten
                                                                          : Brought::kCopied);
    ++number_;
  }

 protected:
  TileRange range_;
  int first_span_, last_span_;
  int number_ = 0;  // of the next copy

 private:
  static constexpr int kTileBlocks = At::kTile / kBlockPositions;

  KVANT_GPU static ScaleFactors* FactorsAt(std::byte* shared, int span) {
    return reinterpret_cast<ScaleFactors*>(KeyScalesOf(shared, span) + kSpanPositions);
  }
  template <bool kAllDims, class Block>
  KVANT_GPU void BringKeys(Block& block, const LayerBlocks& from, int span, int tile,
                           std::byte* to) const {
    constexpr int kStrips = kBlockPositions / 8;  // of a block
    const int k_dim = kAllDims ? kDims : from.k_dim;
    const SpanHead* head = HeadOf(block.shared, span);
    const uint64_t offset =
        from.keys + static_cast<uint64_t>(block.y * kBlockPositions * k_dim * 2);
#pragma unroll 1
    for (int e = 0; e < kTileBlocks; ++e) {
      const std::byte* keys = BlockOf(from, head->blocks[tile * kTileBlocks + e]) + offset;
      std::byte* strips = to + e * kStrips * At::kKeyStrip;
      block.Each([&](int t) {
        const int strip = t % kStrips;
        std::byte* place = strips + strip * At::kKeyStrip;
        const std::byte* at = keys + (strip / 2 * k_dim * 2 + strip % 2) * 16;
#pragma unroll
        for (int i = 0; i < kDims * kStrips / kThreads; ++i) {
          const int d = t / kStrips + i * (kThreads / kStrips);
          // Dimensions that the model does not have meet queries of zeros, and must be numbers:
          // zeros.
          if (kAllDims) {
            Block::CopyAhead(place + d * 16, at + d * 32);
          } else {
            Block::CopyAhead(place + d * 16, at + (d < k_dim ? d * 32 : 0), d < k_dim ? 16 : 0);
          }
        }
      });
    }
  }

  // A thread converts two items at a time, both of which are under way before.
  static constexpr int kAtOnce = 2;
  template <class Block>
  KVANT_GPU void BringKeyCodes(Block& block, const LayerBlocks& from, int span, int tile,
                               std::byte* to) const {
    constexpr int kStrips = At::kTile / 8;
    constexpr int kItems = kStrips * (kDims / 4);  // of 8 positions, 4 dimensions
    const SpanHead* head = HeadOf(block.shared, span);
    const int k_dim = from.k_dim;
    const uint64_t offset = from.keys + static_cast<uint64_t>(block.y * kBlockPositions * k_dim);
#pragma unroll 1
    for (int first = 0; first < kItems; first += kAtOnce * kThreads) {
      block.Each([&](int t) {
        Words4 words[kAtOnce][2];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int item = first + i * kThreads + t;
          const int strip = item % kStrips;
          const int d = item / kStrips * 4;
          const std::byte* at = BlockOf(from, head->blocks[tile * kTileBlocks + strip / 4]) +
                                offset + strip / 2 % 2 * kKeyTilePositions * k_dim +
                                strip % 2 * 32 + d * 16;
          const Words4 zeros = {{0x80808080, 0x80808080, 0x80808080, 0x80808080}};
          words[i][0] = d < k_dim ? Block::Load16(at) : zeros;
          words[i][1] = d < k_dim ? Block::Load16(at + 16) : zeros;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int item = first + i * kThreads + t;
          Words4 rows[4];
          Transpose(words[i], 0, rows);
          std::byte* place = to + item % kStrips * At::kKeyStrip + item / kStrips * 64;
#pragma unroll
          for (int n = 0; n < 4; ++n) *reinterpret_cast<Words4*>(place + n * 16) = rows[n];
        }
      });
    }
  }

  // Transposes eight words of four codes: rows[n] is code n of each word, as halves.
  KVANT_GPU static void Transpose(const Words4 (&words)[2], uint32_t bias, Words4 (&rows)[4]) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint32_t low = words[n / 2].w[n % 2 * 2] ^ bias;
      const uint32_t high = words[n / 2].w[n % 2 * 2 + 1] ^ bias;
      const uint32_t first_pairs = Permute(low, high, 0x5140);
      const uint32_t later_pairs = Permute(low, high, 0x7362);
      rows[0].w[n] = Codes(first_pairs, 0);
      rows[1].w[n] = Codes(first_pairs, 1);
      rows[2].w[n] = Codes(later_pairs, 0);
      rows[3].w[n] = Codes(later_pairs, 1);
    }
  }

  // Positions that were never written meet weights of zero, and must be numbers: zeros.
  template <bool kAllDims, class Block>
  KVANT_GPU void BringValues(Block& block, const AttentionParams& p, const Piece& piece, int span,
                             int tile, std::byte* to) const {
    const LayerBlocks& from = p.blocks;
    const int v_dim = kAllDims ? kDims : from.v_dim;
    const int chunks = v_dim / 8;
    const SpanHead* head = HeadOf(block.shared, span);
    const uint64_t offset =
        from.values + static_cast<uint64_t>(block.y * kBlockPositions * v_dim * 2);
#pragma unroll 1
    for (int e = 0; e < kTileBlocks; ++e) {
      const int place = tile * kTileBlocks + e;
      std::byte* rows = to + e * kBlockPositions * 16;
      const std::byte* values = BlockOf(from, head->blocks[place]) + offset;
      const Entry entry = {0, span * kSpanPositions + place * kBlockPositions, head->counts[place],
                           ~0u};
      const bool whole = entry.count == kBlockPositions && head->hides == 0;
      block.Each([&](int t) {
        if (kAllDims && whole) {
#pragma unroll
          for (int i = 0; i < kBlockPositions * kDims / 8 / kThreads; ++i) {
            const int item = t + i * kThreads;
            Block::CopyAhead(rows + item % (kDims / 8) * At::kValueStrip + item / (kDims / 8) * 16,
                             values + item * 16);
          }
          return;
        }
#pragma unroll 1
        for (int item = t; item < kBlockPositions * chunks; item += kThreads) {
          const int slot = item / chunks;
          Block::CopyAhead(rows + item % chunks * At::kValueStrip + slot * 16, values + item * 16,
                           whole || IsWritten(p, piece, entry, slot) ? 16 : 0);
        }
      });
    }
  }

  template <class Block>
  KVANT_GPU void BringValueCodes(Block& block, const AttentionParams& p, const Piece& piece,
                                 int span, int tile, std::byte* to) const {
    constexpr int kChunks = kDims / 8;
    constexpr int kItems = At::kTile / 4 * kChunks;  // of 4 positions, 8 dimensions
    const LayerBlocks& from = p.blocks;
    const int v_dim = from.v_dim;
    const SpanHead* head = HeadOf(block.shared, span);
    const ScaleFactors* factors = FactorsAt(block.shared, span) + tile * At::kTile;
    const uint64_t offset = from.values + static_cast<uint64_t>(block.y * kBlockPositions * v_dim);
#pragma unroll 1
    for (int first = 0; first < kItems; first += kAtOnce * kThreads) {
      block.Each([&](int t) {
        Words4 words[kAtOnce][2];  // by dimension
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int item = first + i * kThreads + t;
          const int chunk = item % kChunks;
          const int slot = item / kChunks * 4;
          const std::byte* at =
              BlockOf(from, head->blocks[(tile * At::kTile + slot) / kBlockPositions]) + offset +
              slot % kBlockPositions * v_dim + chunk * 32;
          const Words4 zeros = {{0, 0, 0, 0}};
          words[i][0] = chunk * 8 < v_dim ? Block::Load16(at) : zeros;
          words[i][1] = chunk * 8 < v_dim ? Block::Load16(at + 16) : zeros;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int item = first + i * kThreads + t;
          const int slot = item / kChunks * 4;
          const int place = (tile * At::kTile + slot) / kBlockPositions;
          const Entry entry = {0, span * kSpanPositions + place * kBlockPositions,
                               head->counts[place], ~0u};
          const bool whole = entry.count == kBlockPositions && head->hides == 0;
          Words4 halves[4];
          Transpose(words[i], 0x80808080, halves);
          std::byte* to_chunk = to + item % kChunks * At::kValueStrip + slot * 16;
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const ScaleFactors of = factors[slot + n];
            const HalfPair part = of.part | static_cast<HalfPair>(of.part) << 16;
            const HalfPair power = of.power | static_cast<HalfPair>(of.power) << 16;
            const bool written = whole || IsWritten(p, piece, entry, slot % kBlockPositions + n);
#pragma unroll
            for (int w = 0; w < 4; ++w) {
              halves[n].w[w] = written ? Scaled(halves[n].w[w], part, power) : 0;
            }
            *reinterpret_cast<Words4*>(to_chunk + n * 16) = halves[n];
          }
        }
      });
    }
  }
};

}  // namespace kvant::cuda
