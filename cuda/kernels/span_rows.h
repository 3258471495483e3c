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
//
// Each warp has a slot in shared memory: the keys of its block go there, and once they are read,
// its values. The copies of all warps are under way at the same time, and other thread blocks
// compute meanwhile.
#pragma once

#include "cuda/kernels/span_parts.h"

namespace kvant::cuda {

template <int kDims, int kTiles>
class SpanRows {
 public:
  template <class Block>
  static KVANT_GPU void Run(Block& block, const AttentionParams& p) {
    const int number = p.first_block + block.x;
    const Piece piece = p.tables.pieces[number / p.query_tiles];
    const int first_query = number % p.query_tiles * kTiles * kWarpQueries;
    const int queries = Least(piece.rows * p.heads_per_kv - first_query, kTiles * kWarpQueries);
    if (queries <= 0) return;
    const int origin = piece.begin / kSpanPositions;
    SpanRows rows;
    if (p.partials != nullptr) {
      if ((origin + block.z) * kSpanPositions >= piece.end) return;
      rows.first_span_ = block.z;
      rows.last_span_ = block.z;
    } else {
      const TileRange range = RangeOf(p, piece, first_query, queries);
      rows.first_span_ = range.begin / kSpanPositions - origin;
      rows.last_span_ = (range.end - 1) / kSpanPositions - origin;
    }
    rows.queries_ = queries;
    rows.at_ = SpanLayoutOf(p.blocks, kTiles, p.round);
    block.SetThreads(kSpanThreads);
    block.OpenBarriers(block.shared + rows.at_.barriers, 2 * kRoundMost);
    block.Barrier();
    rows.Attend(block, p, piece, first_query);
  }

 private:
  static constexpr int kWarps = kSpanThreads / 32;
  // Kernels of one tile always leave results to be merged, which saves registers.
  static constexpr int kJoinedTiles = kTiles == 1 ? 0 : kTiles;
  static constexpr int kColumns =
      (kDims / 16 + kWarps - 1) / kWarps;  // of 16 dimensions, of a warp

  template <class Block>
  KVANT_GPU std::byte* Slot(Block& block, int warp) const {
    return block.shared + at_.slots + warp * at_.slot;
  }
  // The warp begins to bring its block's keys or values.
  template <class Block>
  KVANT_GPU void BringKeys(Block& block, const LayerBlocks& from, const Entry& entry, int warp) {
    block.BeginCopy(
        warp, Slot(block, warp), at_.key_bytes,
        BlockOf(from, entry.block) + from.keys + static_cast<int64_t>(block.y) * at_.key_bytes,
        at_.key_bytes, at_.key_bytes);
  }
  template <class Block>
  KVANT_GPU void BringValues(Block& block, const LayerBlocks& from, const Entry& entry, int warp) {
    block.BeginCopy(
        kRoundMost + warp, Slot(block, warp), at_.value_row,
        BlockOf(from, entry.block) + from.values + static_cast<int64_t>(block.y) * at_.value_bytes,
        at_.value_row_bytes, at_.value_bytes);
  }

  // ---- Attending --------------------------------------------------------------------------------

  template <class Block>
  KVANT_GPU void Attend(Block& block, const AttentionParams& p, const Piece& piece,
                        int first_query) {
    BringFirstKeys(block, p, SpanOf(p, piece, first_span_));
    StageQueries<kTiles>(block, p, at_, piece, first_query, queries_);
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
    block.Each([&](int t) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        max_[tile][0][t] = max_[tile][1][t] = -Infinity();
#pragma unroll
        for (int i = 0; i < 4; ++i) totals_[tile][i][t] = 0.0f;
        ClearSums(sums_[tile], t);
      }
    });
    const Entry* entries = p.tables.entries + span.first;
    for (int begin = 0; begin < span.count; begin += p.round) {
      const int count = Least(p.round, span.count - begin);
      block.EachWarp([&](int warp) {
        if (warp >= count) return;
        const Entry entry = entries[begin + warp];
        if (begin > 0) BringKeys(block, p.blocks, entry, warp);
        ScoreEntry(block, p, warp);
        if (span.rounds == 1) BringValues(block, p.blocks, entry, warp);
        Mask(block, p, piece, entry);
        FindMost(block);
      });
    }
    ShareMost(block);
    for (int begin = 0; begin < span.count; begin += p.round) {
      const int count = Least(p.round, span.count - begin);
      block.EachWarp([&](int warp) {
        if (warp >= count) return;
        const Entry entry = entries[begin + warp];
        if (span.rounds > 1) {
          BringKeys(block, p.blocks, entry, warp);
          ScoreEntry(block, p, warp);
          BringValues(block, p.blocks, entry, warp);
          Mask(block, p, piece, entry);
        }
        PutWeights(block, p, piece, entry, warp);
      });
      block.Barrier();
      block.EachWarp([&](int warp) {
        for (int i = 0; i < count; ++i) AddValues(block, p, warp, i);
      });
      block.Barrier();  // all have read the weights and the values
    }
  }

  // scores_ = what the queries give for the warp's block.
  template <class Block>
  KVANT_GPU void ScoreEntry(Block& block, const AttentionParams& p, int warp) {
    const bool codes = p.blocks.k_element == Element::kInt8;
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
    block.EndCopy(warp);
    const std::byte* keys = Slot(block, warp);
    for (int step = 0; step < at_.steps; ++step) {
      PerThread<uint32_t> b[4][2];
      if (codes) {
        LoadKeyCodes(block, p.blocks.k_dim, keys, step, b);
      } else {
        LoadKeys(block, p.blocks.k_dim, keys, step, b);
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile * kWarpQueries >= queries_) break;
        PerThread<uint32_t> a[4];
        LoadFragment(block, block.shared + (tile * at_.steps + step) * 512, a);
#pragma unroll
        for (int n = 0; n < 4; ++n) block.Mma(scores_[tile][n], a, b[n][0], b[n][1]);
      }
    }
  }

  // Scores of codes get their scales, all are capped and biased, and those of positions that a row
  // does not see become -infinity. Column 2 q + i of score n is position 8 n + 2 q + i.
  template <class Block>
  KVANT_GPU void Mask(Block& block, const AttentionParams& p, const Piece& piece,
                      const Entry& entry) {
    const bool changes = p.score_cap > 0.0f || p.slopes != nullptr || p.distances != nullptr;
    const uint32_t all_rows = piece.rows < 32 ? (1u << piece.rows) - 1 : ~0u;
    const bool all = entry.position >= piece.all_begin &&
                     entry.position + kBlockPositions <= piece.all_end &&
                     entry.count == kBlockPositions && (all_rows & ~entry.rows) == 0 &&
                     piece.hidden_begin == piece.hidden_end;
    const std::byte* scales =
        BlockOf(p.blocks, entry.block) + p.blocks.key_scales + block.y * kBlockPositions * 4;
    const QueryRow* rows = reinterpret_cast<const QueryRow*>(block.shared + at_.rows);
    block.Each([&](int t) {
      if (p.blocks.k_element == Element::kInt8) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const Words2 pair = Block::Load8(scales + (8 * n + t % 4 * 2) * 4);
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
            for (int i = 0; i < 4; ++i) scores_[tile][n][i][t] *= AsFloat(pair.w[i % 2]);
          }
        }
      }
      if (all && !changes) return;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile * kWarpQueries >= queries_) break;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const QueryRow row = rows[tile * kWarpQueries + t % 32 / 4 + 8 * half];
          const bool sees = row.row >= 0 && MaySee(entry.rows, row.row);
#pragma unroll
          for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int slot = 8 * n + t % 4 * 2 + i;
              const int position = entry.position + slot;
              float& score = scores_[tile][n][2 * half + i][t];
              const bool seen = sees && slot < entry.count && position <= row.position &&
                                position >= row.first && !IsHidden(p, piece, row, position);
              score = seen ? Changed(p, row, position, score) : -Infinity();
            }
          }
        }
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
  // and what the values of its positions need: factors of codes, and which were written.
  template <class Block>
  KVANT_GPU void PutWeights(Block& block, const AttentionParams& p, const Piece& piece,
                            const Entry& entry, int place) {
    const std::byte* scales =
        BlockOf(p.blocks, entry.block) + p.blocks.value_scales + block.y * kBlockPositions * 4;
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
      const int slot = t % 32;
      const bool written = IsWritten(p, piece, entry, slot);
      Half* factors = reinterpret_cast<Half*>(block.shared + at_.factors + place * kFactorBytes);
      if (p.blocks.v_element == Element::kInt8) {
        const ScaleFactors of =
            written ? FactorsOf(reinterpret_cast<const float*>(scales)[slot]) : ScaleFactors{0, 0};
        factors[slot] = of.part;
        factors[kBlockPositions + slot] = of.power;
      } else {
        factors[slot] = written ? 0xffff : 0;
      }
    });
    const bool whole = entry.count == kBlockPositions && piece.hidden_begin == piece.hidden_end;
    block.Each([&](int t) {
      if (t % 32 == 0) WholeAt(block)[place] = whole ? 1 : 0;
    });
  }
  template <class Block>
  KVANT_GPU std::byte* WeightsAt(Block& block, int place, int step, int tile) const {
    return block.shared + at_.weights + ((place * 2 + step) * kTiles + tile) * 512;
  }
  template <class Block>
  KVANT_GPU int32_t* WholeAt(Block& block) const {
    return reinterpret_cast<int32_t*>(block.shared + at_.whole);
  }

  // Adds the warp's dimensions of the weighted values of the block of warp `place`.
  template <class Block>
  KVANT_GPU void AddValues(Block& block, const AttentionParams& p, int warp, int place) {
    const bool codes = p.blocks.v_element == Element::kInt8;
    const int v_dim = p.blocks.v_dim;
    block.EndCopy(kRoundMost + place);
    const std::byte* values = Slot(block, place);
    const bool whole = WholeAt(block)[place] != 0;
    const HalfPair* factors =
        reinterpret_cast<const HalfPair*>(block.shared + at_.factors + place * kFactorBytes);
    PerThread<uint32_t> ones;
    block.Each([&](int t) { ones[t] = 0x3c003c00; });
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      PerThread<uint32_t> b[kColumns][4];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int column = 16 * (warp + c * kWarps);
        if (column >= v_dim) break;
        if (codes) {
          LoadValueCodes(block, v_dim, values, s, column, factors, b[c]);
        } else {
          block.LoadB(b[c], reinterpret_cast<const Half*>(values), at_.value_row / 2, 16 * s,
                      column, 16);
          if (!whole) {
            block.Each([&](int t) {
#pragma unroll
              for (int i = 0; i < 4; ++i) b[c][i][t] &= factors[8 * s + 4 * (i % 2) + t % 4];
            });
          }
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile * kWarpQueries >= queries_) break;
        PerThread<uint32_t> a[4];
        LoadFragment(block, WeightsAt(block, place, s, tile), a);
        block.Mma(totals_[tile], a, ones, ones);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (16 * (warp + c * kWarps) >= v_dim) break;
          block.Mma(sums_[tile][c][0], a, b[c][0], b[c][1]);
          block.Mma(sums_[tile][c][1], a, b[c][2], b[c][3]);
        }
      }
    }
  }

  // ---- Results ----------------------------------------------------------------------------------

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

  SpanLayout at_;
  int first_span_, last_span_;  // of the piece's
  int queries_;
  PerThread<float> scores_[kTiles][4][4];  // a warp's accumulators: 32 positions
  PerThread<float> max_[kTiles][2];        // of rows lane / 4 and lane / 4 + 8
  PerThread<float> totals_[kTiles][4];     // accumulators, all columns of which are the same
  PerThread<float> sums_[kTiles][kColumns][2][4];
  // Of the spans before:
  PerThread<float> joined_max_[kTiles][2];
  PerThread<float> joined_total_[kTiles][2];
  PerThread<float> joined_[kTiles][kColumns][2][4];
};

}  // namespace kvant::cuda
