// Attention over the blocks of the cache, by the formulas of cpu::AttentionTask, on tensor cores: a
// thread block takes up to 64 query vectors of one kv head, 16 a warp, and a stretch of positions,
// 32 at a time, one block of the cache. Keys and values are brought to shared memory while the block
// before is computed, once for all its queries: query heads of a kv head, rows of a prompt, or beams
// that share the blocks.
//
// Queries, keys, weights and values are halves, sums are floats; codes are halves without a scale,
// of keys (the scale multiplies the score) or times their scale, of values. The softmax is that of
// Milakov and Gimelshein (arXiv 1805.02867), rescaled block by block.
//
// A pass of few rows cuts positions into spans of 256, whose partial results MergeSpans adds in
// order: a row's numbers do not depend on the rows beside it, because what it does not see adds
// nothing and changes no maximum. A pass of many rows goes through all positions at once.
#pragma once

#include "cuda/kernels/store.h"

namespace kvant::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

KVANT_GPU int FirstVisible(Window kind, int window, int position) {
  if (window == 0) return 0;
  if (kind == Window::kSections) return position - position % window;
  return position < window ? 0 : position - window + 1;
}

// A row of a warp's tile of queries, of which a thread has two: lane / 4 and lane / 4 + 8.
struct QueryRow {
  int32_t row;   // of the piece; -1: there is no query
  int32_t head;  // of all heads
  int32_t position;
  int32_t first;  // the first position that it sees
};

// One kind of keys or values of a stage, as they lie in memory and in shared memory.
template <class Block>
KVANT_GPU void CopyBytes(Block& block, std::byte* to, const std::byte* from, int bytes) {
  block.Each([&](int t) {
    for (int i = t * 16; i < bytes; i += kThreads * 16) Block::CopyAhead(to + i, from + i);
  });
}

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
        rows_[half][t] = RowOf(p, piece, block.y, first_query, queries,
                               t / 32 * 16 + t % 32 / 4 + half * 8);
        max_[half][t] = -Infinity();
        total_[half][t] = 0.0f;
      }
      for (int d = 0; d < 2 * kValueSteps; ++d) {
        for (int i = 0; i < 4; ++i) sums_[d][i][t] = 0.0f;
      }
    });
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
      Block::Wait(ahead == 0);
      block.Barrier();
      const std::byte* stage = stages + (e - entries_begin) % p.stages * at.stage;
      Tiles tiles = TilesOf(p.blocks, at, stage, converted);
      const Entry entry = p.tables.entries[e];
      if (at.converted > 0) {
        Convert(block, p, at, piece, entry, stage, converted);
        block.Barrier();
      }
      block.Warps(warps, [&] {
        Score(block, at, tiles);
        Mask(block, p, piece, entry, tiles, begin, end);
        Weigh(block, at, tiles);
      });
      if (ahead == 0) block.Barrier();
    }
    block.Warps(warps, [&] { Finish(block, p, piece); });
  }

  // Where a stage's keys, values and scales are, as the products read them.
  struct Tiles {
    const Half* keys;
    const Half* values;
    const float* key_scales;  // null: there are none
  };

  KVANT_GPU static Tiles TilesOf(const LayerBlocks& blocks, const SharedLayout& at,
                                 const std::byte* stage, const std::byte* converted) {
    const bool k_codes = blocks.k_element == Element::kInt8;
    const bool v_codes = blocks.v_element == Element::kInt8;
    Tiles tiles;
    tiles.keys = reinterpret_cast<const Half*>(k_codes ? converted : stage);
    tiles.values = reinterpret_cast<const Half*>(
        v_codes ? converted + (k_codes ? at.keys : 0) : stage + (k_codes ? at.raw_keys : at.keys));
    tiles.key_scales =
        k_codes ? reinterpret_cast<const float*>(stage + at.stage - at.scales) : nullptr;
    return tiles;
  }

  // The number of the first entry of the piece that reaches beyond `position`.
  KVANT_GPU static int FirstEntry(const Entry* entries, const Piece& piece, int position) {
    return FirstEntryFrom(entries, piece, position / kBlockPositions * kBlockPositions);
  }
  // The number of the first entry that begins at `position` or later.
  KVANT_GPU static int FirstEntryFrom(const Entry* entries, const Piece& piece, int position) {
    int low = piece.entries_begin;
    int high = piece.entries_end;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (entries[middle].position < position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  KVANT_GPU static QueryRow RowOf(const AttentionParams& p, const Piece& piece, int kv_head,
                                  int first_query, int queries, int number) {
    if (number >= queries) return {-1, 0, 0, 0};
    const int query = first_query + number;
    const int row = query / p.heads_per_kv;
    const int position = p.tables.positions[piece.first_row + row];
    return {row, kv_head * p.heads_per_kv + query % p.heads_per_kv, position,
            FirstVisible(p.window_kind, p.window, position)};
  }

  // Queries become halves, times the scale; what there is no query for is zeros.
  template <class Block>
  KVANT_GPU static void StageQueries(Block& block, const AttentionParams& p, const SharedLayout& at,
                                     const Piece& piece, int first_query, int queries) {
    Half* to = reinterpret_cast<Half*>(block.shared);
    const int k_dim = p.blocks.k_dim;
    block.Each([&](int t) {
      for (int i = t; i < kTileQueries * at.k_padded; i += kThreads) {
        const int number = i / at.k_padded;
        const int d = i % at.k_padded;
        float value = 0.0f;
        if (number < queries && d < k_dim) {
          const int query = first_query + number;
          const int row = piece.first_row + query / p.heads_per_kv;
          const int head = block.y * p.heads_per_kv + query % p.heads_per_kv;
          value = p.scale * p.input[row * p.input_stride + head * k_dim + d];
        }
        to[number * at.query_stride + d] = ToFiniteHalf(value);
      }
    });
  }

  // Begins to copy a block's keys, values and scales of the kv head.
  template <class Block>
  KVANT_GPU static void Stage(Block& block, const AttentionParams& p, const SharedLayout& at,
                              const Piece& piece, const Entry& entry, std::byte* stage) {
    const LayerBlocks& from = p.blocks;
    const std::byte* bytes = from.memory + static_cast<uint64_t>(entry.block) * from.block_bytes;
    const int head = block.y;
    std::byte* to = stage;
    const std::byte* keys = bytes + from.keys;
    if (from.k_element == Element::kInt8) {
      CopyBytes(block, to, keys + head * static_cast<int>(at.raw_keys), static_cast<int>(at.raw_keys));
      to += at.raw_keys;
    } else {
      const std::byte* tile = keys + static_cast<int64_t>(head) * kBlockPositions * from.k_dim * 2;
      // Chunks of 8 positions of a dimension: four of them beside each other.
      block.Each([&](int t) {
        for (int i = t; i < from.k_dim * 4; i += kThreads) {
          const int part = i % 4;
          const int d = i / 4;
          Block::CopyAhead(to + (d * kKeyStride + part * 8) * 2,
                           tile + ((part / 2 * from.k_dim + d) * kKeyTilePositions + part % 2 * 8) * 2);
        }
        // What pads the dimensions meets queries of zeros, and must be a number.
        for (int i = from.k_dim * kKeyStride + t; i < at.k_padded * kKeyStride; i += kThreads) {
          reinterpret_cast<Half*>(to)[i] = 0;
        }
      });
      to += at.keys;
    }
    const std::byte* values = bytes + from.values;
    if (from.v_element == Element::kInt8) {
      CopyBytes(block, to, values + head * static_cast<int>(at.raw_values),
                static_cast<int>(at.raw_values));
      to += at.raw_values;
    } else {
      const std::byte* rows = values + static_cast<int64_t>(head) * kBlockPositions * from.v_dim * 2;
      const int chunks = from.v_dim / 8;
      block.Each([&](int t) {
        for (int i = t; i < kBlockPositions * chunks; i += kThreads) {
          const int position = i / chunks;
          const int d = i % chunks * 8;
          std::byte* place = to + (position * at.value_stride + d) * 2;
          if (IsWritten(p, piece, entry, position)) {
            Block::CopyAhead(place, rows + (position * from.v_dim + d) * 2);
          } else {  // meets weights of zero, and must be a number
            for (int n = 0; n < 8; ++n) reinterpret_cast<Half*>(place)[n] = 0;
          }
        }
      });
      to += at.values;
    }
    if (from.k_element == Element::kInt8) {
      CopyBytes(block, to, bytes + from.key_scales + head * kBlockPositions * 4, kBlockPositions * 4);
      to += kBlockPositions * 4;
    }
    if (from.v_element == Element::kInt8) {
      CopyBytes(block, to, bytes + from.value_scales + head * kBlockPositions * 4,
                kBlockPositions * 4);
    }
  }

  // Whether a position of a block has a key and a value. Where all its rows must not see it there
  // may be anything.
  KVANT_GPU static bool IsWritten(const AttentionParams& p, const Piece& piece, const Entry& entry,
                                  int slot) {
    if (slot >= entry.count) return false;
    for (int h = piece.hidden_begin; h < piece.hidden_end; ++h) {
      const Hidden& hidden = p.tables.hidden[h];
      const int position = entry.position + slot;
      if (position >= hidden.begin && position < hidden.end && (entry.rows & ~hidden.rows) == 0) {
        return false;
      }
    }
    return true;
  }

  // Codes become halves: those of keys as they are, those of values times their scale.
  template <class Block>
  KVANT_GPU static void Convert(Block& block, const AttentionParams& p, const SharedLayout& at,
                                const Piece& piece, const Entry& entry, const std::byte* stage,
                                std::byte* converted) {
    const LayerBlocks& from = p.blocks;
    const bool k_codes = from.k_element == Element::kInt8;
    const bool v_codes = from.v_element == Element::kInt8;
    Half* keys = reinterpret_cast<Half*>(converted);
    Half* values = reinterpret_cast<Half*>(converted + (k_codes ? at.keys : 0));
    const std::byte* raw_values = stage + (k_codes ? at.raw_keys : at.keys);
    const float* value_scales = reinterpret_cast<const float*>(
        stage + at.stage - kBlockPositions * static_cast<int>(sizeof(float)));
    block.Each([&](int t) {
      if (k_codes) {
        const int tile_words = from.k_dim / 4 * kKeyTilePositions;
        for (int i = t; i < 2 * tile_words; i += kThreads) {
          const int position = i / tile_words * kKeyTilePositions + i % kKeyTilePositions;
          const int d = i % tile_words / kKeyTilePositions * 4;
          for (int n = 0; n < 4; ++n) {
            const int code = static_cast<int>(stage[4 * i + n]) - 128;
            keys[(d + n) * kKeyStride + position] = ToHalf(static_cast<float>(code));
          }
        }
        for (int i = from.k_dim * kKeyStride + t; i < at.k_padded * kKeyStride; i += kThreads) {
          keys[i] = 0;
        }
      }
      if (v_codes) {
        for (int i = t; i < kBlockPositions / kValueTilePositions * from.v_dim; i += kThreads) {
          const int position = i / from.v_dim * kValueTilePositions;
          const int d = i % from.v_dim;
          for (int n = 0; n < kValueTilePositions; ++n) {
            const int code = static_cast<signed char>(raw_values[4 * i + n]);
            const float value = IsWritten(p, piece, entry, position + n)
                                    ? static_cast<float>(code) * value_scales[position + n]
                                    : 0.0f;
            values[(position + n) * at.value_stride + d] = ToFiniteHalf(value);
          }
        }
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
  KVANT_GPU void Mask(Block& block, const AttentionParams& p, const Piece& piece, const Entry& entry,
                      const Tiles& tiles, int begin, int end) {
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
          score = seen ? Changed(p, row, position,
                                 tiles.key_scales == nullptr ? score
                                                             : score * tiles.key_scales[slot])
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
          greatest = Greater(greatest, Greater(scores_[n][2 * half][t], scores_[n][2 * half + 1][t]));
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

 public:
  // What sums of weighted values are multiplied by, given the greatest score, the sum of weights
  // and a sink's score. A row that sees nothing has zeros.
  KVANT_GPU static float Share(float max, float total, float sink) {
    if (total == 0.0f) return 0.0f;
    if (sink == -Infinity()) return 1.0f / total;
    const float greatest = Greater(max, sink);
    const float kept = Exp2((max - greatest) * kLog2E);
    return kept / (total * kept + Exp2((sink - greatest) * kLog2E));
  }

 private:
  PerThread<QueryRow> rows_[2];
  PerThread<float> max_[2];
  PerThread<float> total_[2];
  PerThread<float> scores_[4][4];               // of 4 x 8 positions: a warp's accumulators
  PerThread<float> sums_[2 * kValueSteps][4];  // of dimensions, likewise
};

// The piece of a row.
KVANT_GPU const Piece& PieceOf(const PassTables& tables, int pieces, int row) {
  int low = 0;
  for (int i = 1; i < pieces; ++i) {
    if (tables.pieces[i].rows > 0 && tables.pieces[i].first_row <= row) low = i;
  }
  return tables.pieces[low];
}

// Merges the spans of a row (x) and head (y), in order.
template <class Block>
KVANT_GPU void MergeSpans(Block& block, const MergeParams& p, int heads) {
  const Piece& piece = PieceOf(p.tables, p.pieces, block.x);
  if (block.x < piece.first_row || block.x >= piece.first_row + piece.rows) return;
  const int position = p.tables.positions[block.x];
  const int origin = piece.begin / kSpanPositions;
  const int first = FirstVisible(p.window_kind, p.window, position) / kSpanPositions - origin;
  const int last = position / kSpanPositions - origin;
  const int64_t size = kPartialHead + p.v_dim;
  const float* partials =
      p.partials + (static_cast<int64_t>(block.x) * heads + block.y) * p.spans * size;
  float* out = p.output + block.x * p.output_stride + static_cast<int64_t>(block.y) * p.v_dim;
  block.Each([&](int t) {
    for (int d = t; d < p.v_dim; d += kThreads) {
      float max = -Infinity();
      float total = 0.0f;
      float sum = 0.0f;
      for (int span = first > 0 ? first : 0; span <= last && span < p.spans; ++span) {
        const float* partial = partials + span * size;
        if (partial[1] == 0.0f) continue;
        const float greatest = Greater(max, partial[0]);
        const float before = Exp2((max - greatest) * kLog2E);
        const float now = Exp2((partial[0] - greatest) * kLog2E);
        total = total * before + partial[1] * now;
        sum = sum * before + partial[kPartialHead + d] * now;
        max = greatest;
      }
      out[d] = sum * AttentionTile<64>::Share(
                         max, total, p.sinks == nullptr ? -Infinity() : p.sinks[block.y]);
    }
  });
}

}  // namespace kvant::cuda
