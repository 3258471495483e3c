// Latent attention in its absorbed form (engine/graph/attention/latent_nodes.h): all heads are
// query heads of one kv head, a query begins with v_dim numbers that meet a position's value, and
// k_dim that meet its key. A value is read once, as a key and as a value.
//
// A thread block takes 16 query vectors and a span of positions, or all spans, two blocks of the
// cache at a time: all threads copy them to shared memory, where that has room for four, while the
// two before are computed. Each warp computes the scores of eight positions of one block, and adds
// up 64 dimensions of the weighted values of both. A block is a step of the softmax: what was
// summed up before is multiplied by what its greatest score asks for. A block in which a row sees
// nothing leaves the row's sums as they are, so that a row's bits do not depend on the blocks that
// others see beside it. The spans are joined as in spans.h.
#pragma once

#include "cuda/kernels/span_slots.h"

namespace kvant::cuda {

class LatentRows : public SpanSlots<kLatentMost, 1, 1> {
 public:
  template <class Block>
  static KVANT_GPU void Run(Block& block, const AttentionParams& p) {
    LatentRows rows;
    const int number = p.first_block + block.x;
    const Piece piece = p.tables.pieces[number / p.query_tiles];
    const int first_query = number % p.query_tiles * kWarpQueries;
    if (!rows.FindSpans(block, p, piece, first_query)) return;
    rows.at_ = LatentLayoutOf(p.blocks, p.round);
    block.SetThreads(kSpanThreads);
    rows.Attend(block, p, piece, first_query);
  }

 private:
  // Entries that are taken at a time.
  struct Taken {
    int first;
    int count;
  };
  KVANT_GPU static Taken FirstOf(const Span& span) {
    return {span.first, Least(span.count, kLatentBlocks)};
  }

  template <class Block>
  KVANT_GPU void Attend(Block& block, const AttentionParams& p, const Piece& piece,
                        int first_query) {
    Span span = SpanOf(p, piece, first_span_);
    int stage = 0;
    bool brought = span.count > 0;
    if (brought) Bring(block, p, FirstOf(span), stage);
    StageQueries<1>(block, p, at_, p.blocks.v_dim, piece, first_query, queries_);
    BeginJoined(block);
    block.Barrier();  // also where the span has no entries
    for (int s = first_span_; s <= last_span_; ++s) {
      const Span next_span = s < last_span_ ? SpanOf(p, piece, s + 1) : Span{0, 0, 0};
      BeginSpan(block);
      for (int begin = 0; begin < span.count; begin += kLatentBlocks) {
        const Taken taken = {span.first + begin, Least(span.count - begin, kLatentBlocks)};
        if (!brought) {
          block.Barrier();  // what was there before is read
          Bring(block, p, taken, stage);
        }
        block.Wait();
        block.Barrier();
        const int after = begin + kLatentBlocks;
        const Taken next = after < span.count
                               ? Taken{span.first + after, Least(span.count - after, kLatentBlocks)}
                               : FirstOf(next_span);
        brought = p.round > 1 && next.count > 0;
        if (brought) Bring(block, p, next, 1 - stage);
        AttendBlocks(block, p, piece, taken, stage * kLatentBlocks);
        if (p.round > 1) stage = 1 - stage;
      }
      if (p.partials != nullptr) {
        PutPartial(block, p, piece);
        return;
      }
      JoinSums(block);
      span = next_span;
    }
    Finish(block, p, piece);
  }

  // All threads begin to copy the values and keys of blocks to the slots of a stage.
  template <class Block>
  KVANT_GPU void Bring(Block& block, const AttentionParams& p, const Taken& taken, int stage) {
    const LayerBlocks& from = p.blocks;
    for (int e = 0; e < taken.count; ++e) {
      const std::byte* bytes = BlockOf(from, p.tables.entries[taken.first + e].block);
      std::byte* to = Slot(block, stage * kLatentBlocks + e);
      const std::byte* values = bytes + from.values;
      const std::byte* keys = bytes + from.keys;
      const int value_rows = at_.value_bytes / at_.value_row_bytes;
      block.EachWarp([&](int warp) {
        for (int row = warp; row < value_rows; row += kWarps) {
          block.Each([&](int t) {
            for (int i = t % 32 * 16; i < at_.value_row_bytes; i += kCopyStep) {
              Block::CopyAhead(to + row * at_.value_row + i,
                               values + row * at_.value_row_bytes + i);
            }
          });
        }
      });
      block.Each([&](int t) {
        for (int i = t * 16; i < at_.key_bytes; i += kSpanThreads * 16) {
          Block::CopyAhead(to + at_.keys + i, keys + i);
        }
      });
    }
  }

  // Goes on with the sums: first with one block, then with the other.
  template <class Block>
  KVANT_GPU void AttendBlocks(Block& block, const AttentionParams& p, const Piece& piece,
                              const Taken& taken, int place) {
    float* most = reinterpret_cast<float*>(block.shared + at_.most);  // [warp][query]
    PerThread<float> scale;  // of value `lane` of the warp's block of codes
    block.EachWarp([&](int warp) {
      const int e = warp / kBlockWarps;
      block.Each([&](int t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores_[0][0][i][t] = -Infinity();
        scale[t] = 0.0f;
      });
      if (e < taken.count) {
        const Entry entry = p.tables.entries[taken.first + e];
        ScorePositions(block, p, entry, place + e, warp % kBlockWarps, scale);
        Mask(block, p, piece, entry, warp % kBlockWarps);
      }
      PutMost(block, most + warp * kWarpQueries);
    });
    block.Barrier();
    PerThread<float> factors[kLatentBlocks][2];  // of what was summed up before
    PerThread<float> maxima[kLatentBlocks][2];
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float before = max_[0][half][t];
#pragma unroll
        for (int e = 0; e < kLatentBlocks; ++e) {
          float greatest = before;
#pragma unroll
          for (int n = 0; n < kBlockWarps; ++n) {
            greatest = Greater(greatest,
                               most[(e * kBlockWarps + n) * kWarpQueries + t % 32 / 4 + 8 * half]);
          }
          maxima[e][half][t] = greatest;
          factors[e][half][t] =
              before == greatest ? 1.0f : Exp2(MultiplyExact(AddExact(before, -greatest), kLog2E));
          before = greatest;
        }
        max_[0][half][t] = before;
      }
    });
    block.EachWarp([&](int warp) {
      const int e = warp / kBlockWarps;
      if (e >= taken.count) return;
      PutWeights(block, place + e, warp % kBlockWarps, e == 0 ? maxima[0] : maxima[1]);
      if (warp % kBlockWarps == 0) {
        PutFactors(block, p, piece, p.tables.entries[taken.first + e], place + e, scale);
      }
    });
    block.Barrier();
    block.EachWarp([&](int warp) {
#pragma unroll
      for (int e = 0; e < kLatentBlocks; ++e) {
        if (e >= taken.count) break;
        Multiply(block, factors[e]);
        AddValues(block, p, warp, place + e, place + e + 1);
      }
    });
  }

  // The scores of positions 8 n .. 8 n + 7 of a block. The sums over values are two, of every other
  // 16 dimensions, so that a product does not wait for the one before.
  template <class Block>
  KVANT_GPU void ScorePositions(Block& block, const AttentionParams& p, const Entry& entry,
                                int place, int n, PerThread<float>& value_scale) {
    const LayerBlocks& from = p.blocks;
    const std::byte* bytes = BlockOf(from, entry.block);
    PerThread<Words2> value_scales, key_scales;
    block.Each([&](int t) {
      const int slot = 8 * n + t % 4 * 2;
      const Words2 ones = {{0x3f800000, 0x3f800000}};
      const bool v_codes = from.v_type == Element::kInt8;
      value_scales[t] = v_codes ? Block::Load8(bytes + from.value_scales + slot * 4) : ones;
      key_scales[t] =
          from.k_type == Element::kInt8 ? Block::Load8(bytes + from.key_scales + slot * 4) : ones;
      if (v_codes) {
        value_scale[t] = reinterpret_cast<const float*>(bytes + from.value_scales)[t % 32];
      }
    });
    PerThread<float> values[2][4], keys[4];
    block.Each([&](int t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[0][i][t] = values[1][i][t] = keys[i][t] = 0.0f;
    });
    const std::byte* slot = Slot(block, place);
    if (from.v_dim == kLatentMost) {
      MeetValues<true>(block, p, slot, n, values);
    } else {
      MeetValues<false>(block, p, slot, n, values);
    }
    MeetKeys(block, p, slot + at_.keys, n, keys);
    block.Each([&](int t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = AddExact(values[0][i][t], values[1][i][t]);
        scores_[0][0][i][t] = MultiplyAdd(keys[i][t], AsFloat(key_scales[t].w[i % 2]),
                                          MultiplyExact(sum, AsFloat(value_scales[t].w[i % 2])));
      }
    });
  }

  template <bool kAllDims, class Block>
  KVANT_GPU void MeetValues(Block& block, const AttentionParams& p, const std::byte* values, int n,
                            PerThread<float> (&sums)[2][4]) {
    const int v_dim = kAllDims ? kLatentMost : p.blocks.v_dim;
    const bool codes = p.blocks.v_type == Element::kInt8;
#pragma unroll 2
    for (int first = 0; first < v_dim; first += 32) {
      PerThread<uint32_t> b[4];
      if (codes) {
        LoadValueCodesAsKeys(block, v_dim, at_.value_row, values, n, first, b);
      } else {
        block.LoadTransposedB(b, reinterpret_cast<const Half*>(values), at_.value_row / 2, 8 * n,
                              first);
        if (!kAllDims) {
          block.Each([&](int t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) b[i][t] = first + 8 * i < v_dim ? b[i][t] : 0;
          });
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!kAllDims && first + 16 * i >= v_dim) break;
        PerThread<uint32_t> a[4];
        LoadFragment(block, block.shared + (first / 16 + i) * 512, a);
        block.Mma(sums[i], a, b[2 * i], b[2 * i + 1]);
      }
    }
  }
  template <class Block>
  KVANT_GPU void MeetKeys(Block& block, const AttentionParams& p, const std::byte* keys, int n,
                          PerThread<float> (&sums)[4]) {
    const int k_dim = p.blocks.k_dim;
    const int steps_before = at_.steps - (k_dim + 15) / 16;
    for (int step = 0; step * 16 < k_dim; ++step) {
      PerThread<uint32_t> b[2];
      if (p.blocks.k_type == Element::kInt8) {
        block.Each([&](int t) {
#pragma unroll
          for (int part = 0; part < 2; ++part) b[part][t] = KeyCodes(keys, k_dim, step, n, part, t);
        });
      } else {
        const bool whole = 16 * step + 8 < k_dim;
        PerThread<uint32_t> loaded[4];  // of a tile of 16 positions
        block.LoadB(loaded, reinterpret_cast<const Half*>(keys) + n / 2 * k_dim * kKeyTilePositions,
                    kKeyTilePositions, 16 * step, 0, whole ? 16 : 8);
        block.Each([&](int t) {
          b[0][t] = n % 2 == 0 ? loaded[0][t] : loaded[2][t];
          b[1][t] = !whole ? 0 : n % 2 == 0 ? loaded[1][t] : loaded[3][t];
        });
      }
      PerThread<uint32_t> a[4];
      LoadFragment(block, block.shared + (steps_before + step) * 512, a);
      block.Mma(sums, a, b[0], b[1]);
    }
  }

  template <class Block>
  KVANT_GPU void Mask(Block& block, const AttentionParams& p, const Piece& piece,
                      const Entry& entry, int n) {
    if (NothingToMask(p, piece, entry)) return;
    const QueryRow* rows = reinterpret_cast<const QueryRow*>(block.shared + at_.rows);
    block.Each([&](int t) {
      const QueryRow of[2] = {rows[t % 32 / 4], rows[t % 32 / 4 + 8]};
      float scores[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[i] = scores_[0][0][i][t];
      MaskScores(p, piece, entry, of, 8 * n + t % 4 * 2, scores);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores_[0][0][i][t] = scores[i];
    });
  }

  // The warp's greatest score of each query.
  template <class Block>
  KVANT_GPU void PutMost(Block& block, float* most) {
    PerThread<float> greatest[2];
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        greatest[half][t] = Greater(scores_[0][0][2 * half][t], scores_[0][0][2 * half + 1][t]);
      }
    });
    block.QuadMax(greatest[0]);
    block.QuadMax(greatest[1]);
    block.Each([&](int t) {
      if (t % 4 != 0) return;
      most[t % 32 / 4] = greatest[0][t];
      most[t % 32 / 4 + 8] = greatest[1][t];
    });
  }

  // A half of a fragment: positions 8 n .. 8 n + 7.
  template <class Block>
  KVANT_GPU void PutWeights(Block& block, int place, int n, const PerThread<float> (&maxima)[2]) {
    block.Each([&](int t) {
      Words2 words;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float base = BaseOf(maxima[half][t]);
        words.w[half] = ToHalves(WeightOf(scores_[0][0][2 * half][t], base),
                                 WeightOf(scores_[0][0][2 * half + 1][t], base));
      }
      *reinterpret_cast<Words2*>(WeightsAt(block, place, n / 2, 0) + t % 32 * 16 + n % 2 * 8) =
          words;
    });
  }

  // Multiplies the sums so far by the factors of the two rows of a thread.
  template <class Block>
  KVANT_GPU void Multiply(Block& block, const PerThread<float> (&factors)[2]) {
    block.Each([&](int t) {
      if (factors[0][t] == 1.0f && factors[1][t] == 1.0f) return;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        totals_[0][i][t] *= factors[i / 2][t];
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int half = 0; half < 2; ++half) sums_[0][c][half][i][t] *= factors[i / 2][t];
        }
      }
    });
  }

  static constexpr int kBlockWarps = kWarps / kLatentBlocks;  // that compute a block's scores
  static_assert(kBlockWarps * 8 == kBlockPositions);
};

}  // namespace kvant::cuda
