// Attention of any rows over the blocks of the cache, by the formulas of cpu::AttentionTask and the
// arithmetic of spans.h, on tensor cores. It is made for few rows: decoding, beams, drafts, where
// it takes the time to read the keys and values, each of them once for all query vectors of a kv
// head.
//
// A thread block takes 16 or 64 query vectors and a span of positions, or all spans. A span's
// blocks are dealt to eight warps, which compute their scores; the warps agree on the greatest of
// each row; each makes halves of its weights; and each adds up 16 dimensions of the weighted values
// of all blocks. Rows that see different blocks, as beams do, may have more than eight in a span:
// then they are taken in rounds of eight, and scores are computed twice.
#pragma once

#include "cuda/kernels/span_slots.h"

namespace kvant::cuda {

template <int kDims, int kTiles>
class SpanRows : public SpanSlots<kDims, kTiles, kTiles == 1 ? 0 : kTiles> {
 public:
  // Kernels of one tile always leave results to be merged, which saves registers.
  static constexpr int kJoinedTiles = kTiles == 1 ? 0 : kTiles;
  using Slots = SpanSlots<kDims, kTiles, kJoinedTiles>;

  template <class Block>
  static KVANT_GPU void Run(Block& block, const AttentionParams& p) {
    SpanRows rows;
    const int number = p.first_block + block.x;
    const Piece piece = p.tables.pieces[number / p.query_tiles];
    const int first_query = number % p.query_tiles * kTiles * kWarpQueries;
    if (!rows.FindSpans(block, p, piece, first_query)) return;
    rows.at_ = SpanLayoutOf(p.blocks, kTiles, p.round);
    block.SetThreads(kSpanThreads);
    rows.Attend(block, p, piece, first_query);
  }

 private:
  using Slots::kWarps;

  // ---- Attending --------------------------------------------------------------------------------

  template <class Block>
  KVANT_GPU void Attend(Block& block, const AttentionParams& p, const Piece& piece,
                        int first_query) {
    BringFirstKeys(block, p, SpanOf(p, piece, first_span_));
    StageQueries<kTiles>(block, p, at_, 0, piece, first_query, queries_);
    BeginJoined(block);
    block.Barrier();
    for (int s = first_span_; s <= last_span_; ++s) {
      AttendSpan(block, p, piece, SpanOf(p, piece, s));
      if (kJoinedTiles == 0 || p.partials != nullptr) {
        PutPartial(block, p, piece);
        return;
      }
      if (s < last_span_) BringFirstKeys(block, p, SpanOf(p, piece, s + 1));
      JoinSums(block);
    }
    Finish(block, p, piece);
  }

  // The first round's keys are under way before anything else is done.
  template <class Block>
  KVANT_GPU void BringFirstKeys(Block& block, const AttentionParams& p, const Span& span) {
    block.EachWarp([&](int warp) {
      if (warp >= Least(p.round, span.count)) return;
      BringKeys(block, p.blocks, p.tables.entries[span.first + warp], warp);
    });
  }

  template <class Block>
  KVANT_GPU void AttendSpan(Block& block, const AttentionParams& p, const Piece& piece,
                            const Span& span) {
    BeginSpan(block);
    const Entry* entries = p.tables.entries + span.first;
    // Scores of more than one round are computed twice: first for the greatest of them.
    const int first_pass = span.rounds > 1 ? 0 : 1;
    for (int pass = first_pass; pass < 2; ++pass) {
      for (int begin = 0; begin < span.count; begin += p.round) {
        const int count = Least(p.round, span.count - begin);
        block.EachWarp([&](int warp) {
          if (warp >= count) return;
          const Entry entry = entries[begin + warp];
          if (pass > first_pass || begin > 0) BringKeys(block, p.blocks, entry, warp);
          ScoreEntry(block, p, entry, warp);
          if (pass == 1) BringValues(block, p.blocks, entry, warp);
          Mask(block, p, piece, entry);
          if (pass == first_pass) FindMost(block);
        });
        if (pass == 0) continue;
        if (span.rounds == 1) ShareMost(block);
        block.EachWarp([&](int warp) {
          if (warp < count) PutWeights(block, p, piece, entries[begin + warp], warp);
        });
        block.Wait();
        block.Barrier();  // weights and values are there
        block.EachWarp([&](int warp) { AddValues(block, p, warp, 0, count); });
        block.Barrier();  // and read
      }
      if (pass == 0) ShareMost(block);
    }
  }

  // Caps and biases scores; the scores of positions that a row does not see become -infinity.
  template <class Block>
  KVANT_GPU void Mask(Block& block, const AttentionParams& p, const Piece& piece,
                      const Entry& entry) {
    if (NothingToMask(p, piece, entry)) return;
    const QueryRow* rows = reinterpret_cast<const QueryRow*>(block.shared + at_.rows);
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile * kWarpQueries >= queries_) break;
        const QueryRow of[2] = {rows[tile * kWarpQueries + t % 32 / 4],
                                rows[tile * kWarpQueries + t % 32 / 4 + 8]};
        float scores[16];
#pragma unroll
        for (int n = 0; n < 16; ++n) scores[n] = scores_[tile][n / 4][n % 4][t];
        MaskScores(p, piece, entry, of, t % 4 * 2, scores);
#pragma unroll
        for (int n = 0; n < 16; ++n) scores_[tile][n / 4][n % 4][t] = scores[n];
      }
    });
  }

  // max_ goes on with scores_.
  template <class Block>
  KVANT_GPU void FindMost(Block& block) {
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& most = max_[tile][half][t];
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            most = Greater(
                most, Greater(scores_[tile][n][2 * half][t], scores_[tile][n][2 * half + 1][t]));
          }
        }
      }
    });
  }

  // max_ = the greatest scores of all warps.
  template <class Block>
  KVANT_GPU void ShareMost(Block& block) {
    float* most = reinterpret_cast<float*>(block.shared + at_.most);  // [warp][query]
    block.EachWarp([&](int warp) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        block.QuadMax(max_[tile][0]);
        block.QuadMax(max_[tile][1]);
        block.Each([&](int t) {
          if (t % 4 != 0) return;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            most[(warp * kTiles + tile) * kWarpQueries + t % 32 / 4 + 8 * half] =
                max_[tile][half][t];
          }
        });
      }
    });
    block.Barrier();
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float all = -Infinity();
#pragma unroll
          for (int warp = 0; warp < kWarps; ++warp) {
            all = Greater(all, most[(warp * kTiles + tile) * kWarpQueries + t % 32 / 4 + 8 * half]);
          }
          max_[tile][half][t] = all;
        }
      }
    });
  }

  // The weights of the warp's block, as fragments of halves: [place][step][tile][lane][4 words];
  // and what its values need.
  template <class Block>
  KVANT_GPU void PutWeights(Block& block, const AttentionParams& p, const Piece& piece,
                            const Entry& entry, int place) {
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          Words4 words;
#pragma unroll
          for (int part = 0; part < 4; ++part) {
            const PerThread<float>* pair = &scores_[tile][2 * s + part / 2][part % 2 * 2];
            const float base = BaseOf(max_[tile][part % 2][t]);
            words.w[part] = ToHalves(WeightOf(pair[0][t], base), WeightOf(pair[1][t], base));
          }
          *reinterpret_cast<Words4*>(WeightsAt(block, place, s, tile) + t % 32 * 16) = words;
        }
      }
    });
    PutFactors(block, p, piece, entry, place, value_scale_);
  }

  using Slots::AddValues;
  using Slots::at_;
  using Slots::BeginJoined;
  using Slots::BeginSpan;
  using Slots::BringKeys;
  using Slots::BringValues;
  using Slots::FindSpans;
  using Slots::Finish;
  using Slots::first_span_;
  using Slots::JoinSums;
  using Slots::last_span_;
  using Slots::max_;
  using Slots::PutFactors;
  using Slots::PutPartial;
  using Slots::queries_;
  using Slots::ScoreEntry;
  using Slots::scores_;
  using Slots::value_scale_;
  using Slots::WeightsAt;
};

}  // namespace kvant::cuda
