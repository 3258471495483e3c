// The results of a thread block of span_rows.h or latent_rows.h: the sums over a span, the spans
// joined so far, and where they are written. A warp has 16 dimensions of every 16 times the number
// of warps.
#pragma once

#include "cuda/kernels/span_parts.h"

namespace kvant::cuda {

// kJoinedTiles: of kTiles, or 0 in kernels that always leave results to be merged.
template <int kDims, int kTiles, int kJoinedTiles>
class SpanResults {
 public:
  static constexpr int kWarps = kSpanThreads / 32;
  static constexpr int kColumns =
      (kDims / 16 + kWarps - 1) / kWarps;  // of 16 dimensions, of a warp

  // The query vectors of a thread block, from number first_query of the piece on, and the spans
  // that it attends to; false: none.
  template <class Block>
  KVANT_GPU bool FindSpans(const Block& block, const AttentionParams& p, const Piece& piece,
                           int first_query) {
    queries_ = Least(piece.rows * p.heads_per_kv - first_query, kTiles * kWarpQueries);
    if (queries_ <= 0) return false;
    const int origin = piece.begin / kSpanPositions;
    if (kJoinedTiles == 0 || p.partials != nullptr) {
      first_span_ = last_span_ = block.z;
      return (origin + block.z) * kSpanPositions < piece.end;
    }
    const TileRange range = RangeOf(p, piece, first_query, queries_);
    first_span_ = range.begin / kSpanPositions - origin;
    last_span_ = (range.end - 1) / kSpanPositions - origin;
    return true;
  }

  // Nothing is joined yet.
  template <class Block>
  KVANT_GPU void BeginJoined(Block& block) {
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kJoinedTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          joined_max_[tile][half][t] = -Infinity();
          joined_total_[tile][half][t] = 0.0f;
        }
        ClearSums(joined_[tile], t);
      }
    });
  }
  template <class Block>
  KVANT_GPU void BeginSpan(Block& block) {
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        max_[tile][0][t] = max_[tile][1][t] = -Infinity();
#pragma unroll
        for (int i = 0; i < 4; ++i) totals_[tile][i][t] = 0.0f;
        ClearSums(sums_[tile], t);
      }
    });
  }

  template <class Block>
  KVANT_GPU void JoinSums(Block& block) {
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kJoinedTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float total = totals_[tile][2 * half][t];
          if (total == 0.0f) continue;  // the row sees nothing in the span
          const SpanFactors factors = JoinSpan(joined_max_[tile][half][t], max_[tile][half][t]);
          joined_max_[tile][half][t] = factors.max;
          joined_total_[tile][half][t] = Join(factors, joined_total_[tile][half][t], total);
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
              for (int i = 2 * half; i < 2 * half + 2; ++i) {
                joined_[tile][c][n][i][t] =
                    Join(factors, joined_[tile][c][n][i][t], sums_[tile][c][n][i][t]);
              }
            }
          }
        }
      }
    });
  }

  template <class Block>
  KVANT_GPU void PutPartial(Block& block, const AttentionParams& p, const Piece& piece) const {
    const int v_dim = p.blocks.v_dim;
    const int heads = p.blocks.kv_heads * p.heads_per_kv;
    const QueryRow* rows = reinterpret_cast<const QueryRow*>(block.shared + at_.rows);
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const QueryRow row = rows[tile * kWarpQueries + t % 32 / 4 + 8 * half];
          if (row.row < 0) continue;
          const int64_t number = piece.first_row + row.row;
          float* partial = p.partials + ((number * heads + row.head) * p.spans + block.z) *
                                            (kPartialHead + v_dim);
          if (t < 32 && t % 4 == 0) {
            Block::Store8(partial, max_[tile][half][t], totals_[tile][2 * half][t]);
          }
          PutSums<Block>(partial + kPartialHead, v_dim, t, half, sums_[tile], 1.0f);
        }
      }
    });
  }

  template <class Block>
  KVANT_GPU void Finish(Block& block, const AttentionParams& p, const Piece& piece) const {
    const int v_dim = p.blocks.v_dim;
    const QueryRow* rows = reinterpret_cast<const QueryRow*>(block.shared + at_.rows);
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kJoinedTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const QueryRow row = rows[tile * kWarpQueries + t % 32 / 4 + 8 * half];
          if (row.row < 0) continue;
          const float share = Share(joined_max_[tile][half][t], joined_total_[tile][half][t],
                                    p.sinks == nullptr ? -Infinity() : p.sinks[row.head]);
          float* to = p.output + static_cast<int64_t>(piece.first_row + row.row) * p.output_stride +
                      row.head * v_dim;
          PutSums<Block>(to, v_dim, t, half, joined_[tile], share);
        }
      }
    });
  }

 protected:
  SpanLayout at_;
  int queries_;
  int first_span_, last_span_;          // of the piece's
  PerThread<float> max_[kTiles][2];     // of rows lane / 4 and lane / 4 + 8
  PerThread<float> totals_[kTiles][4];  // accumulators, all columns of which are the same
  PerThread<float> sums_[kTiles][kColumns][2][4];

 private:
  template <class Sums>
  KVANT_GPU static void ClearSums(Sums& sums, int t) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[c][n][i][t] = 0.0f;
      }
    }
  }

  // The joined results of the spans before:
  PerThread<float> joined_max_[kTiles][2];
  PerThread<float> joined_total_[kTiles][2];
  PerThread<float> joined_[kTiles][kColumns][2][4];
};

}  // namespace kvant::cuda
