// Who sees what: the position of a query, the positions that it sees, and what a score becomes.
#pragma once

#include "cuda/kernels/store.h"

namespace kvant::cuda {

KVANT_GPU int FirstVisible(Window kind, int window, int position) {
  if (window == 0) return 0;
  if (kind == Window::kSections) return position - position % window;
  return position < window ? 0 : position - window + 1;
}

KVANT_GPU const std::byte* BlockOf(const LayerBlocks& from, int block) {
  return from.memory + static_cast<uint64_t>(block) * from.block_bytes;
}

// A row of a warp's tile of queries, of which a thread has two: lane / 4 and lane / 4 + 8.
struct QueryRow {
  int32_t row;   // of the piece; -1: there is no query
  int32_t head;  // of all heads
  int32_t position;
  int32_t first;  // the first position that it sees
};

KVANT_GPU QueryRow RowOf(const AttentionParams& p, const Piece& piece, int kv_head, int first_query,
                         int queries, int number) {
  if (number >= queries) return {-1, 0, 0, 0};
  const int query = first_query + number;
  const int row = query / p.heads_per_kv;
  const int position = p.tables.positions[piece.first_row + row];
  return {row, kv_head * p.heads_per_kv + query % p.heads_per_kv, position,
          FirstVisible(p.window_kind, p.window, position)};
}

// Whether a row of a piece may see an entry. In a piece of more rows than an entry has bits all
// rows may see all entries.
KVANT_GPU bool MaySee(uint32_t rows, int row) { return (rows >> (row & 31) & 1) != 0; }

KVANT_GPU bool IsHidden(const AttentionParams& p, const Piece& piece, const QueryRow& row,
                        int position) {
  for (int h = piece.hidden_begin; h < piece.hidden_end; ++h) {
    const Hidden& hidden = p.tables.hidden[h];
    if (position >= hidden.begin && position < hidden.end && MaySee(hidden.rows, row.row)) {
      return true;
    }
  }
  return false;
}

KVANT_GPU float Changed(const AttentionParams& p, const QueryRow& row, int position, float score) {
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

// Whether scores change before they are compared, or single positions are hidden.
KVANT_GPU bool ChangesScores(const AttentionParams& p) {
  return p.score_cap > 0.0f || p.slopes != nullptr || p.distances != nullptr;
}
KVANT_GPU bool HidesPositions(const Piece& piece) { return piece.hidden_begin < piece.hidden_end; }

// Caps, biases and hides the scores of a thread's two rows: scores[4 n + i] is that of row i / 2 at
// position first + 8 n + i % 2. Few models need it: in a loop, and from an array, so that it takes
// neither the registers nor the instruction cache of what all need.
template <int kScores>
KVANT_GPU void ChangeScores(const AttentionParams& p, const Piece& piece, const QueryRow (&rows)[2],
                            int first, float (&scores)[kScores]) {
#pragma unroll 1
  for (int n = 0; n < kScores; ++n) {
    if (scores[n] == -Infinity()) continue;
    const QueryRow& row = rows[n / 2 % 2];
    const int position = first + n / 4 * 8 + n % 2;
    scores[n] =
        IsHidden(p, piece, row, position) ? -Infinity() : Changed(p, row, position, scores[n]);
  }
}

// All rows see all positions of an entry, and scores stay as they are.
KVANT_GPU bool NothingToMask(const AttentionParams& p, const Piece& piece, const Entry& entry) {
  const uint32_t all_rows = piece.rows < 32 ? (1u << piece.rows) - 1 : ~0u;
  return entry.position >= piece.all_begin && entry.position + kBlockPositions <= piece.all_end &&
         entry.count == kBlockPositions && (all_rows & ~entry.rows) == 0 && !ChangesScores(p) &&
         !HidesPositions(piece);
}

// Caps, biases and hides the scores of positions of an entry, from slot `slot` on; the scores of
// positions that a row does not see become -infinity.
template <int kScores>
KVANT_GPU void MaskScores(const AttentionParams& p, const Piece& piece, const Entry& entry,
                          const QueryRow (&rows)[2], int slot, float (&scores)[kScores]) {
#pragma unroll
  for (int n = 0; n < kScores; ++n) {
    const QueryRow& row = rows[n / 2 % 2];
    const int place = slot + n / 4 * 8 + n % 2;
    const int position = entry.position + place;
    const bool seen = row.row >= 0 && MaySee(entry.rows, row.row) && place < entry.count &&
                      position <= row.position && position >= row.first;
    if (!seen) scores[n] = -Infinity();
  }
  if (ChangesScores(p) || HidesPositions(piece)) {
    ChangeScores(p, piece, rows, entry.position + slot, scores);
  }
}

// Whether a position of a block has a key and a value. Where all its rows must not see it there
// may be anything.
KVANT_GPU bool IsWritten(const AttentionParams& p, const Piece& piece, const Entry& entry,
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

// The positions that some query of a tile sees, and the positions that all its queries see.
struct TileRange {
  int32_t begin, end;
  int32_t all_begin, all_end;
};
KVANT_GPU TileRange RangeOf(const AttentionParams& p, const Piece& piece, int first_query,
                            int queries) {
  const int first_row = first_query / p.heads_per_kv;
  const int last_row = (first_query + queries - 1) / p.heads_per_kv;
  TileRange range = {INT32_MAX, 0, 0, INT32_MAX};
  for (int row = first_row; row <= last_row; ++row) {
    const int position = p.tables.positions[piece.first_row + row];
    const int first = FirstVisible(p.window_kind, p.window, position);
    range.begin = Least(range.begin, first);
    range.end = Most(range.end, position + 1);
    range.all_begin = Most(range.all_begin, first);
    range.all_end = Least(range.all_end, position + 1);
  }
  return range;
}

}  // namespace kvant::cuda
