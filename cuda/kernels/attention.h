// Attention over the blocks of the cache, by the formulas of cpu::AttentionTask, on tensor cores: a
// thread block takes up to 64 query vectors of one kv head, 16 a warp, and a stretch of positions,
// 32 at a time, one block of the cache. Keys and values are brought to shared memory while the
// block before is computed, once for all its queries: query heads of a kv head, rows of a prompt,
// or beams that share the blocks.
//
// Queries, keys, weights and values are halves, sums are floats; codes are halves without a scale,
// of keys (the scale multiplies the score) or times their scale, of values. The softmax is that of
// Milakov and Gimelshein (arXiv 1805.02867), rescaled block by block.
//
// One softmax runs over a span of 256 positions; the results of spans are merged in their order. In
// a pass of few rows each span has a thread block of its own, and MergeSpans merges them; in a pass
// of many rows a thread block goes through all spans. The bits are the same, and do not depend on
// the rows beside a row, because what it does not see adds nothing and changes no maximum.
#pragma once

#include "cuda/kernels/spans.h"

namespace kvant::cuda {

template <int kDims>
class AttentionTile {
 public:
  static constexpr int kValueSteps = kDims / 16;

  template <class Block>
  static KVANT_GPU void Run(Block& block, const AttentionParams& p) {
    const Piece piece = p.tables.pieces[p.first_piece + block.x / p.query_tiles];
    const int first_query = block.x % p.query_tiles * kTileQueries;
    const int queries = piece.rows * p.heads_per_kv - first_query;
    if (queries <= 0) return;
    int begin = piece.begin;
    int end = piece.end;
    if (p.partials != nullptr) {
      const int span = piece.begin / kSpanPositions + block.z;
      begin = span * kSpanPositions;
      end = end < begin + kSpanPositions ? end : begin + kSpanPositions;
      if (begin >= end) return;
    }
    AttentionTile tile;
    tile.Attend(block, p, piece, first_query, queries < kTileQueries ? queries : kTileQueries,
                begin, end);
  }

 private:
  template <class Block>
  KVANT_GPU void Attend(Block& block, const AttentionParams& p, const Piece& piece, int first_query,
                        int queries, int begin, int end) {
    const SharedLayout at = LayoutOf(p.blocks);
    const int warps = (queries + 15) / 16;
    StageQueries(block, p, at, piece, first_query, queries);
    block.Each([&](int t) {
      for (int half = 0; half < 2; ++half) {
        rows_[half][t] =
            RowOf(p, piece, block.y, first_query, queries, t / 32 * 16 + t % 32 / 4 + half * 8);
        max_[half][t] = -Infinity();
        total_[half][t] = 0.0f;
      }
      for (int d = 0; d < 2 * kValueSteps; ++d) {
        for (int i = 0; i < 4; ++i) sums_[d][i][t] = 0.0f;
      }
    });
    int joined = 0;  // spans in the joined sums
    const int entries_begin = FirstEntry(p.tables.entries, piece, begin);
    const int entries_end = FirstEntryFrom(p.tables.entries, piece, end);
    std::byte* stages = block.shared + at.queries;
    std::byte* converted = stages + p.stages * at.stage;
    const int ahead = p.stages - 1;  // stages under way while one is computed: 0 or 1
    for (int i = 0; i < ahead; ++i) {
      if (entries_begin + i < entries_end) {
        Stage(block, p, at, piece, p.tables.entries[entries_begin + i], stages + i * at.stage);
      }
      Block::EndGroup();
    }
    for (int e = entries_begin; e < entries_end; ++e) {
      const int next = e + ahead;
      if (ahead > 0) block.Barrier();  // all have read the stage that is filled now
      if (next < entries_end) {
        Stage(block, p, at, piece, p.tables.entries[next],
              stages + (next - entries_begin) % p.stages * at.stage);
      }
      Block::EndGroup();
      Block::Wait(ahead);
      block.Barrier();
      const std::byte* stage = stages + (e - entries_begin) % p.stages * at.stage;
      Tiles tiles = TilesOf(p.blocks, at, stage, converted);
      const Entry entry = p.tables.entries[e];
      if (at.converted > 0) {
        Convert(block, p, at, piece, entry, stage, converted);
        block.Barrier();
      }
      const bool new_span =
          e > entries_begin &&
          entry.position / kSpanPositions != p.tables.entries[e - 1].position / kSpanPositions;
      block.Warps(warps, [&] {
        if (new_span) EndSpan(block, joined);
        Score(block, at, tiles);
        Mask(block, p, piece, entry, tiles, begin, end);
        Weigh(block, at, tiles);
      });
      joined += new_span ? 1 : 0;
      if (ahead == 0) block.Barrier();
    }
    block.Warps(warps, [&] {
      if (joined > 0) {
        EndSpan(block, joined);
        TakeJoined(block);
      }
      Finish(block, p, piece);
    });
  }

  // The span's results join those before it; a span in which a row sees nothing changes nothing.
  template <class Block>
  KVANT_GPU void EndSpan(Block& block, int joined) {
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool first = joined == 0;
        const float max = first ? -Infinity() : joined_max_[half][t];
        const float total = first ? 0.0f : joined_total_[half][t];
        const bool seen = total_[half][t] != 0.0f;
        const SpanFactors factors = JoinSpan(max, max_[half][t]);
        joined_max_[half][t] = seen ? factors.max : max;
        joined_total_[half][t] = seen ? Join(factors, total, total_[half][t]) : total;
#pragma unroll
        for (int d = 0; d < 2 * kValueSteps; ++d) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            const float sum = first ? 0.0f : joined_[d][i][t];
            joined_[d][i][t] = seen ? Join(factors, sum, sums_[d][i][t]) : sum;
            sums_[d][i][t] = 0.0f;
          }
        }
        max_[half][t] = -Infinity();
        total_[half][t] = 0.0f;
      }
    });
  }

  template <class Block>
  KVANT_GPU void TakeJoined(Block& block) {
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        max_[half][t] = joined_max_[half][t];
        total_[half][t] = joined_total_[half][t];
      }
#pragma unroll
      for (int d = 0; d < 2 * kValueSteps; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[d][i][t] = joined_[d][i][t];
      }
    });
  }

  // scores_ = the products of the warp's queries and 32 keys.
  template <class Block>
  KVANT_GPU void Score(Block& block, const SharedLayout& at, const Tiles& tiles) {
    const Half* queries = reinterpret_cast<const Half*>(block.shared);
    block.Each([&](int t) {
      for (int n = 0; n < 4; ++n) {
        for (int i = 0; i < 4; ++i) scores_[n][i][t] = 0.0f;
      }
    });
    PerThread<uint32_t> a[4];
    PerThread<uint32_t> b[4];
    for (int k = 0; k < at.k_padded; k += 16) {
      block.LoadA(a, queries, at.query_stride, k);
      block.LoadB(b, tiles.keys, kKeyStride, k, 0);
      block.Mma(scores_[0], a, b, 0);
      block.Mma(scores_[1], a, b, 1);
      block.LoadB(b, tiles.keys, kKeyStride, k, 16);
      block.Mma(scores_[2], a, b, 0);
      block.Mma(scores_[3], a, b, 1);
    }
  }

  // Caps and biases the scores; those of positions that a row does not see become -infinity.
  template <class Block>
  KVANT_GPU void Mask(Block& block, const AttentionParams& p, const Piece& piece,
                      const Entry& entry, const Tiles& tiles, int begin, int end) {
    block.Each([&](int t) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const QueryRow& row = rows_[i / 2][t];
          const int slot = n * 8 + t % 4 * 2 + i % 2;
          const int position = entry.position + slot;
          const bool seen = row.row >= 0 && slot < entry.count && position >= begin &&
                            position < end && position <= row.position && position >= row.first &&
                            (entry.rows >> row.row & 1) != 0 && !IsHidden(p, piece, row, position);
          float& score = scores_[n][i][t];
          score =
              seen ? Changed(p, row, position,
                             tiles.key_scales == nullptr ? score : score * tiles.key_scales[slot])
                   : -Infinity();
        }
      }
    });
  }

  KVANT_GPU static bool IsHidden(const AttentionParams& p, const Piece& piece, const QueryRow& row,
                                 int position) {
    for (int h = piece.hidden_begin; h < piece.hidden_end; ++h) {
      const Hidden& hidden = p.tables.hidden[h];
      if (position >= hidden.begin && position < hidden.end && (hidden.rows >> row.row & 1) != 0) {
        return true;
      }
    }
    return false;
  }

  KVANT_GPU static float Changed(const AttentionParams& p, const QueryRow& row, int position,
                                 float score) {
    if (p.score_cap > 0.0f) score = p.score_cap * Tanh(score / p.score_cap);
    const int distance = position - row.position;
    if (p.slopes != nullptr) score += p.slopes[row.head] * static_cast<float>(distance);
    if (p.distances != nullptr) {
      int index = distance - p.distance_least;
      index = index < 0 ? 0 : index >= p.distance_count ? p.distance_count - 1 : index;
      score += p.distances[row.head * p.distance_stride + index];
    }
    return score;
  }

  // The softmax goes on with 32 scores, and sums_ with the weighted values.
  template <class Block>
  KVANT_GPU void Weigh(Block& block, const SharedLayout& at, const Tiles& tiles) {
    PerThread<float> most[2];
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float greatest = max_[half][t];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          greatest =
              Greater(greatest, Greater(scores_[n][2 * half][t], scores_[n][2 * half + 1][t]));
        }
        most[half][t] = greatest;
      }
    });
    block.QuadMax(most[0]);
    block.QuadMax(most[1]);
    PerThread<float> added[2];
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // A row that has seen nothing yet keeps what it has: nothing.
        const float base = most[half][t] == -Infinity() ? 0.0f : most[half][t];
        const float factor = Exp2((max_[half][t] - base) * kLog2E);
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores_[n][i][t] = Exp2((scores_[n][i][t] - base) * kLog2E);
            sum += scores_[n][i][t];
          }
        }
        added[half][t] = sum;
        max_[half][t] = most[half][t];
        total_[half][t] *= factor;
#pragma unroll
        for (int d = 0; d < 2 * kValueSteps; ++d) {
          sums_[d][2 * half][t] *= factor;
          sums_[d][2 * half + 1][t] *= factor;
        }
      }
    });
    block.QuadSum(added[0]);
    block.QuadSum(added[1]);
    PerThread<uint32_t> weights[2][4];
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) total_[half][t] += added[half][t];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const PerThread<float>* pair = &scores_[2 * k + part / 2][part % 2 * 2];
          weights[k][part][t] = static_cast<uint32_t>(ToHalf(pair[0][t])) |
                                static_cast<uint32_t>(ToHalf(pair[1][t])) << 16;
        }
      }
    });
    PerThread<uint32_t> b[4];
#pragma unroll
    for (int d = 0; d < kValueSteps; ++d) {
      if (16 * d >= at.v_padded) break;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        block.LoadB(b, tiles.values, at.value_stride, 16 * k, 16 * d);
        block.Mma(sums_[2 * d], weights[k], b, 0);
        block.Mma(sums_[2 * d + 1], weights[k], b, 1);
      }
    }
  }

  // Writes the results, or partial ones.
  template <class Block>
  KVANT_GPU void Finish(Block& block, const AttentionParams& p, const Piece& piece) {
    const int v_dim = p.blocks.v_dim;
    const int heads = p.blocks.kv_heads * p.heads_per_kv;
    block.Each([&](int t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const QueryRow& row = rows_[half][t];
        if (row.row < 0) continue;
        const int64_t number = piece.first_row + row.row;
        float factor = 1.0f;
        float* to = nullptr;
        if (p.partials != nullptr) {
          float* partial = p.partials + ((number * heads + row.head) * p.spans + block.z) *
                                            (kPartialHead + v_dim);
          if (t % 4 == 0) {
            partial[0] = max_[half][t];
            partial[1] = total_[half][t];
          }
          to = partial + kPartialHead;
        } else {
          factor = Share(max_[half][t], total_[half][t],
                         p.sinks == nullptr ? -Infinity() : p.sinks[row.head]);
          to = p.output + number * p.output_stride + row.head * v_dim;
        }
#pragma unroll
        for (int d = 0; d < 2 * kValueSteps; ++d) {
          const int column = 8 * d + t % 4 * 2;
          if (column >= v_dim) break;
          to[column] = sums_[d][2 * half][t] * factor;
          to[column + 1] = sums_[d][2 * half + 1][t] * factor;
        }
      }
    });
  }

  PerThread<QueryRow> rows_[2];
  PerThread<float> max_[2];
  PerThread<float> total_[2];
  PerThread<float> scores_[4][4];              // of 4 x 8 positions: a warp's accumulators
  PerThread<float> sums_[2 * kValueSteps][4];  // of dimensions, likewise
  // Of the spans before:
  PerThread<float> joined_max_[2];
  PerThread<float> joined_total_[2];
  PerThread<float> joined_[2 * kValueSteps][4];
};

}  // namespace kvant::cuda
