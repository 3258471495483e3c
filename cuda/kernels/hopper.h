// Attention of many rows of one sequence on devices of compute capability 9.0, whose tensor cores
// read both matrices from shared memory (wgmma): what it takes is the time of the products. The
// arithmetic is that of spans.h.
//
// A thread block takes 128 query vectors of a kv head (64 of more than 128 dimensions). One
// warpgroup brings keys and values to a ring of slots in shared memory, a tile of positions each,
// and makes halves of codes; the others attend for 64 query vectors each. One multiplies while the
// other makes weights.
//
// In shared memory matrices are cut into cores of 8 x 8 halves: 128 bytes, a row of 16 bytes after
// the other (PTX ISA, "matrix-descriptor", no swizzle). Queries have cores of rows of dimensions,
// keys of rows of positions, values of rows of dimensions; strips of cores are further apart than
// they need be, so that neighbouring threads write to different banks.
#pragma once

#include "cuda/kernels/hopper_copies.h"

#ifndef __CUDACC__
#include <vector>
#endif

namespace kvant::cuda {

// kCodes: keys or values are codes, which takes registers from those who attend.
template <int kDims, bool kCodes>
class HopperRows : public HopperCopies<kDims, kCodes> {
 public:
  using Copies = HopperCopies<kDims, kCodes>;
  using typename Copies::At;

  template <class Block>
  static KVANT_GPU void Run(Block& block, const AttentionParams& p) {
    const int number = p.first_block + block.x;
    const Piece piece = p.tables.pieces[number / p.query_tiles];
    const int first_query = number % p.query_tiles * At::kQueries;
    const int queries = Least(piece.rows * p.heads_per_kv - first_query, At::kQueries);
    if (queries <= 0) return;
    block.SetThreads(kHopperThreads);
    HopperRows rows;
    rows.range_ = RangeOf(p, piece, first_query, queries);
    rows.first_span_ = rows.range_.begin / kSpanPositions;
    rows.last_span_ = (rows.range_.end - 1) / kSpanPositions;
    rows.StageQueries(block, p, piece, first_query, queries);
    const int groups = (queries + 63) / 64;
    block.template OpenRing<At::kSlots>(block.shared + At::kBarriers, groups);
    block.FenceForTensorCores();
    block.Barrier();
    rows.RunGroups(block, p, piece, first_query, queries, groups);
  }

 private:
  static constexpr bool kScoresFirst = !kCodes && kDims <= 64;

#ifdef __CUDACC__

  template <class Block>
  KVANT_GPU void RunGroups(Block& block, const AttentionParams& p, const Piece& piece,
                           int first_query, int queries, int groups) {
    if (block.Group() == 0) {
      block.template SetRegisters<At::template kProducerRegisters<kCodes>, false>();
      for (int span = first_span_; span <= last_span_; ++span) {
        Produce(block, p, piece, span);
      }
      return;
    }
    const int group = block.Group() - 1;
    if (group >= groups) return;
    block.template SetRegisters<At::template kRegisters<kCodes>, true>();
    Begin(block, p, piece, group, first_query, queries);
    Score(block, group);
    for (int span = first_span_; span < last_span_; ++span) {
      EndLast(block);
      Weigh(block, p, piece, span);
      AddValues(block);
      AddWeights(block);
      EndLast(block);
      // The next scores are computed while this span's results are joined, if registers allow it.
      if constexpr (kScoresFirst) Score(block, group);
      JoinSums(block, span);
      if constexpr (!kScoresFirst) Score(block, group);
    }
    EndLast(block);
    Weigh(block, p, piece, last_span_);
    AddValues(block);
    AddWeights(block);
    EndLast(block);
    JoinSums(block, last_span_);
    Finish(block, p, piece);
  }

#else

  // One group after the other, when what it waits for is there.
  template <class Block>
  KVANT_GPU void RunGroups(Block& block, const AttentionParams& p, const Piece& piece,
                           int first_query, int queries, int groups) {
    std::vector<HopperRows> attending(static_cast<size_t>(groups), *this);
    const auto each = [&](const auto& step) {
      for (int group = 0; group < groups; ++group) {
        block.InGroup(1 + group, [&] { step(attending[static_cast<size_t>(group)], group); });
      }
    };
    each(
        [&](HopperRows& of, int group) { of.Begin(block, p, piece, group, first_query, queries); });
    for (int span = first_span_; span <= last_span_; ++span) {
      for (int tile = 0; tile < At::kTiles; ++tile) {
        block.InGroup(0, [&] {
          if (tile == 0) PutHead(block, p, piece, span);
          ProduceKeys(block, p, span, tile);
        });
        each([&](HopperRows& of, int group) { of.ScoreTile(block, group, tile); });
      }
      each([&](HopperRows& of, int /*group*/) { of.EndLast(block); });
      each([&](HopperRows& of, int /*group*/) { of.Weigh(block, p, piece, span); });
      for (int tile = 0; tile < At::kTiles; ++tile) {
        block.InGroup(0, [&] { ProduceValues(block, p, piece, span, tile); });
        each([&](HopperRows& of, int /*group*/) { of.AddTile(block, tile); });
      }
      each([&](HopperRows& of, int /*group*/) {
        of.AddWeights(block);
        of.EndLast(block);
        of.JoinSums(block, span);
      });
    }
    each([&](HopperRows& of, int /*group*/) { of.Finish(block, p, piece); });
  }

#endif

  template <class Block>
  KVANT_GPU void Begin(Block& block, const AttentionParams& p, const Piece& piece, int group,
                       int first_query, int queries) {
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows_[half][t] = RowOf(p, piece, block.y, first_query, queries,
                               group * 64 + t % 128 / 32 * 16 + t % 32 / 4 + half * 8);
        joined_max_[half][t] = -Infinity();
        joined_total_[half][t] = 0.0f;
      }
    });
    if constexpr (At::kJoinedInRegisters) ClearBefore(block, joined_);
  }

  template <class Block>
  KVANT_GPU void Score(Block& block, int group) {
#pragma unroll
    for (int tile = 0; tile < At::kTiles; ++tile) ScoreTile(block, group, tile);
  }
  // Begins with the scores of a tile.
  template <class Block>
  KVANT_GPU void ScoreTile(Block& block, int group, int tile) {
    block.WaitFull(number_ + tile);
    const std::byte* keys =
        block.shared + At::kRing + (number_ + tile) % At::kSlots * At::kSlotBytes;
    const std::byte* queries = block.shared + group * 8 * At::kQueryStrip;
    ClearBefore(block, scores_[tile]);
    block.BeginProducts();
#pragma unroll
    for (int k = 0; k < kDims; k += 16) {
      block.template MultiplyShared<At::kTile>(scores_[tile], queries + k * 16, At::kQueryStrip,
                                               keys + k * 16, At::kKeyStrip,
                                               k > 0 ? Sums::kGoOn : Sums::kNew);
    }
    block.EndProducts();
    EndTile(block, tile);
  }

  // The sums that follow do not go on with what is there: so it need not be kept in registers.
  template <class Block, size_t kCount>
  KVANT_GPU static void ClearBefore(Block& block, PerThread<float> (&sums)[kCount][4]) {
    block.Each([&](int t) {
#pragma unroll
      for (size_t n = 0; n < kCount; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i][t] = 0.0f;
      }
    });
  }

  // The slot of the tile before is given back once its products are done.
  template <class Block>
  KVANT_GPU void EndTile(Block& block, int tile) {
    if (tile == 0) return;
    block.template WaitProducts<1>();
    block.GiveBack(number_ + tile - 1);
  }
  // All scores, or all sums of values, of a span are there.
  template <class Block>
  KVANT_GPU void EndLast(Block& block) {
    block.template WaitProducts<0>();
    block.GiveBack(number_ + At::kTiles - 1);
    number_ += At::kTiles;
  }

  template <class Block>
  KVANT_GPU void ScaleScores(Block& block, int span) {
    const float* scales = KeyScalesOf(block.shared, span);
    block.Each([&](int t) {
#pragma unroll
      for (int n = 0; n < kSpanPositions / 8; ++n) {
        const Words2 pair = *reinterpret_cast<const Words2*>(scales + n * 8 + t % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) ScoreAt(n)[i][t] *= AsFloat(pair.w[i % 2]);
      }
    });
  }
  // Scores of positions 8 n .. 8 n + 7.
  KVANT_GPU PerThread<float> (&ScoreAt(int n))[4] {
    return scores_[n * 8 / At::kTile][n % (At::kTile / 8)];
  }

  // Scores of positions that a row does not see become -infinity.
  template <class Block>
  KVANT_GPU void Mask(Block& block, const SpanHead& head, int span) {
    block.Each([&](int t) {
#pragma unroll
      for (int place = 0; place < kSpanBlocks; ++place) {
        const int first = span * kSpanPositions + place * kBlockPositions;
        const int count = head.counts[place];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const QueryRow& row = rows_[half][t];
          const int begin = row.first - first;
          const int end = row.row >= 0 ? Least(row.position + 1 - first, count) : 0;
#pragma unroll
          for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int slot = n * 8 + t % 4 * 2 + i;
              float& score = ScoreAt(4 * place + n)[2 * half + i][t];
              score = slot >= begin && slot < end ? score : -Infinity();
            }
          }
        }
      }
    });
  }

  template <class Block>
  KVANT_GPU void Change(Block& block, const AttentionParams& p, const Piece& piece, int span) {
    block.Each([&](int t) {
      float scores[kSpanPositions / 2];
#pragma unroll
      for (int n = 0; n < kSpanPositions / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[4 * n + i] = ScoreAt(n)[i][t];
      }
      const QueryRow rows[2] = {rows_[0][t], rows_[1][t]};
      ChangeScores(p, piece, rows, span * kSpanPositions + t % 4 * 2, scores);
#pragma unroll
      for (int n = 0; n < kSpanPositions / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) ScoreAt(n)[i][t] = scores[4 * n + i];
      }
    });
  }

  // scores_ become weights_: halves, as the left matrix of products with values.
  template <class Block>
  KVANT_GPU void Weigh(Block& block, const AttentionParams& p, const Piece& piece, int span) {
    const SpanHead* head = HeadOf(block.shared, span);
    if (kCodes && p.blocks.k_type == Element::kInt8) ScaleScores(block, span);
    if (head->seen == 0) Mask(block, *head, span);
    if (head->changes != 0 || head->hides != 0) Change(block, p, piece, span);
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float greatest = -Infinity();
#pragma unroll
        for (int n = 0; n < kSpanPositions / 8; ++n) {
          greatest =
              Greater(greatest, Greater(ScoreAt(n)[2 * half][t], ScoreAt(n)[2 * half + 1][t]));
        }
        max_[half][t] = greatest;
      }
    });
    block.QuadMax(max_[0]);
    block.QuadMax(max_[1]);
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float base = BaseOf(max_[half][t]);
#pragma unroll
        for (int n = 0; n < kSpanPositions / 8; ++n) {
          weights_[n / 2][n % 2 * 2 + half][t] = ToHalves(
              WeightOf(ScoreAt(n)[2 * half][t], base), WeightOf(ScoreAt(n)[2 * half + 1][t], base));
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) totals_[i][t] = 0.0f;
    });
  }

  // The sums of weights, while values are multiplied.
  template <class Block>
  KVANT_GPU void AddWeights(Block& block) {
    PerThread<uint32_t> ones;
    block.Each([&](int t) { ones[t] = 0x3c003c00; });
#pragma unroll
    for (int k = 0; k < kSpanPositions / 16; ++k) block.Mma(totals_, weights_[k], ones, ones);
  }

  template <class Block>
  KVANT_GPU void AddValues(Block& block) {
#pragma unroll
    for (int tile = 0; tile < At::kTiles; ++tile) AddTile(block, tile);
  }
  template <class Block>
  KVANT_GPU void AddTile(Block& block, int tile) {
    block.WaitFull(number_ + tile);
    const std::byte* values =
        block.shared + At::kRing + (number_ + tile) % At::kSlots * At::kSlotBytes;
    if (tile == 0) ClearBefore(block, sums_);
    block.BeginProducts();
#pragma unroll
    for (int k = 0; k < At::kTile / 16; ++k) {
      block.template MultiplyRegisters<kDims>(sums_, weights_[tile * (At::kTile / 16) + k],
                                              values + k * 256, At::kValueStrip,
                                              tile + k > 0 ? Sums::kGoOn : Sums::kNew);
    }
    block.EndProducts();
    EndTile(block, tile);
  }

  // Four of a thread's joined sums; in shared memory those of the other threads follow, then the
  // next four.
  KVANT_GPU static Words4* JoinedAt(std::byte* shared, int t, int n) {
    return reinterpret_cast<Words4*>(shared + At::kJoined) + n * At::kQueries * 2 + (t - 128);
  }
  KVANT_GPU Words4 Joined(std::byte* shared, int t, int n) const {
    if constexpr (At::kJoinedInRegisters) {
      return {{AsBits(joined_[n][0][t]), AsBits(joined_[n][1][t]), AsBits(joined_[n][2][t]),
               AsBits(joined_[n][3][t])}};
    } else {
      return *JoinedAt(shared, t, n);
    }
  }

  template <class Block>
  KVANT_GPU void JoinSums(Block& block, int span) {
    const bool first = span == first_span_;
    block.Each([&](int t) {
      SpanFactors factors[2];
      bool seen[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = totals_[2 * half][t];
        seen[half] = total != 0.0f;
        const SpanFactors joined = JoinSpan(joined_max_[half][t], max_[half][t]);
        // A span in which the row sees nothing changes nothing.
        factors[half] = {joined.max, seen[half] ? joined.before : 1.0f,
                         seen[half] ? joined.now : 0.0f};
        if (!seen[half]) continue;
        joined_max_[half][t] = joined.max;
        joined_total_[half][t] = Join(factors[half], joined_total_[half][t], total);
      }
#pragma unroll
      for (int n = 0; n < kDims / 8; ++n) {
        const bool none = !At::kJoinedInRegisters && first;
        Words4 words = none ? Words4{{0, 0, 0, 0}} : Joined(block.shared, t, n);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float joined =
              Join(factors[i / 2], AsFloat(words.w[i]), seen[i / 2] ? sums_[n][i][t] : 0.0f);
          words.w[i] = AsBits(joined);
          if constexpr (At::kJoinedInRegisters) joined_[n][i][t] = joined;
        }
        if constexpr (!At::kJoinedInRegisters) *JoinedAt(block.shared, t, n) = words;
      }
    });
  }

  template <class Block>
  KVANT_GPU void Finish(Block& block, const AttentionParams& p, const Piece& piece) const {
    const int v_dim = p.blocks.v_dim;
    block.Each([&](int t) {
      float shares[2];
      float* to[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const QueryRow& row = rows_[half][t];
        shares[half] = Share(joined_max_[half][t], joined_total_[half][t],
                             p.sinks == nullptr ? -Infinity() : p.sinks[row.head]);
        to[half] = p.output + static_cast<int64_t>(piece.first_row + row.row) * p.output_stride +
                   row.head * v_dim;
      }
#pragma unroll
      for (int n = 0; n < kDims / 8; ++n) {
        const int column = 8 * n + t % 4 * 2;
        if (column >= v_dim) break;
        const Words4 words = Joined(block.shared, t, n);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (rows_[half][t].row < 0) continue;
          Block::Store8(to[half] + column, AsFloat(words.w[2 * half]) * shares[half],
                        AsFloat(words.w[2 * half + 1]) * shares[half]);
        }
      }
    });
  }

  using Copies::first_span_;
  using Copies::HeadOf;
  using Copies::KeyScalesOf;
  using Copies::last_span_;
  using Copies::number_;
  using Copies::Produce;
  using Copies::ProduceKeys;
  using Copies::ProduceValues;
  using Copies::PutHead;
  using Copies::range_;

  PerThread<QueryRow> rows_[2];
  PerThread<float> max_[2];
  PerThread<float> joined_max_[2];
  PerThread<float> joined_total_[2];
  PerThread<float> totals_[4];  // accumulators, all columns of which are the same
  PerThread<float> scores_[At::kTiles][At::kTile / 8][4];
  PerThread<HalfPair> weights_[kSpanPositions / 16][4];
  PerThread<float> sums_[kDims / 8][4];
  PerThread<float> joined_[At::kJoinedInRegisters ? kDims / 8 : 1][4];  // of the spans before
};

}  // namespace kvant::cuda
