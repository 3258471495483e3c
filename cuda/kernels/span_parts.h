// Parts of span_rows.h and latent_rows.h: the blocks of a span, the queries in shared memory, what
// warps read from there as operands of products, and the results that threads write.
#pragma once

#include "cuda/kernels/spans.h"

namespace kvant::cuda {

// Bytes that a warp copies at a time.
inline constexpr int kCopyStep = 32 * 16;

// The blocks of a span, in rounds of as many as there are warps that take one.
struct Span {
  int first;  // entry
  int count;  // of entries
  int rounds;
};
KVANT_GPU Span SpanOf(const AttentionParams& p, const Piece& piece, int span) {
  const int first = p.tables.span_entries[piece.spans_at + span];
  const int count = p.tables.span_entries[piece.spans_at + span + 1] - first;
  return {first, count, (count + p.round - 1) / p.round};
}

// The lanes of a warp begin to copy `bytes` bytes to shared memory, where each row_bytes of them
// lie `row` bytes apart. What the warp has read from there before is read.
template <class Block>
KVANT_GPU void CopyRows(Block& block, std::byte* to, int row, const std::byte* from, int row_bytes,
                        int bytes) {
  block.WarpBarrier();
  block.Each([&](int t) {
    for (int at = t % 32 * 16; at < bytes; at += kCopyStep) {
      Block::CopyAhead(to + at / row_bytes * row + at % row_bytes, from + at);
    }
  });
}
// Copies rows whose sizes the compiler knows: no address is computed but each lane's first.
template <int kBytes, int kRowBytes, int kRow, class Block>
KVANT_GPU void CopyRows(Block& block, std::byte* to, const std::byte* from) {
  static_assert(kBytes % kCopyStep == 0 &&
                (kCopyStep % kRowBytes == 0 || kRowBytes % kCopyStep == 0));
  block.WarpBarrier();
  block.Each([&](int t) {
    const int at = t % 32 * 16;
    std::byte* to_lane = to + at / kRowBytes * kRow + at % kRowBytes;
    const std::byte* from_lane = from + at;
#pragma unroll
    for (int i = 0; i < kBytes / kCopyStep; ++i) {
      const int begin = i * kCopyStep;
      Block::CopyAhead(to_lane + begin / kRowBytes * kRow + begin % kRowBytes, from_lane + begin);
    }
  });
}

// Queries, times the scale, as fragments of halves: [tile][step][lane][4 words]; and whose they
// are. What there is no query for is zeros. Queries begin with `before` dimensions that meet
// something else than keys, and have steps of their own.
template <int kTiles, class Block>
KVANT_GPU void StageQueries(Block& block, const AttentionParams& p, const SpanLayout& at,
                            int before, const Piece& piece, int first_query, int queries) {
  constexpr int kWarps = kSpanThreads / 32;
  const int query_dim = before + p.blocks.k_dim;
  const int steps_before = (before + 15) / 16;
  QueryRow* rows = reinterpret_cast<QueryRow*>(block.shared + at.rows);
  block.Each([&](int t) {
    if (t < kTiles * kWarpQueries) {
      rows[t] = RowOf(p, piece, block.y, first_query, queries, t);
    }
    const int lane = t % 32;
#pragma unroll 1
    for (int tile = 0; tile < kTiles; ++tile) {
      const float* from[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int number = tile * kWarpQueries + lane / 4 + half * 8;
        const int row = (first_query + number) / p.heads_per_kv;
        const int head = block.y * p.heads_per_kv + (first_query + number) % p.heads_per_kv;
        from[half] = number < queries
                         ? p.input + (piece.first_row + row) * p.input_stride + head * query_dim
                         : nullptr;
      }
      for (int step = t / 32; step < at.steps; step += kWarps) {
        const bool is_before = step < steps_before;
        const int first = is_before ? 16 * step : before + 16 * (step - steps_before);
        const int end = is_before ? before : query_dim;
        Words4 words;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float* row = from[part % 2];
          const int d = first + lane % 4 * 2 + part / 2 * 8;
          const bool there = row != nullptr && d < end;
          words.w[part] =
              there ? ToHalves(ClampToHalf(p.scale * row[d]), ClampToHalf(p.scale * row[d + 1]))
                    : 0;
        }
        *reinterpret_cast<Words4*>(block.shared + ((tile * at.steps + step) * 32 + lane) * 16) =
            words;
      }
    }
  });
}

template <class Block>
KVANT_GPU void LoadFragment(Block& block, const std::byte* from, PerThread<uint32_t> (&a)[4]) {
  block.Each([&](int t) {
    const Words4 words = *reinterpret_cast<const Words4*>(from + t % 32 * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i][t] = words.w[i];
  });
}

// b[n] = 16 dimensions of positions 8 n .. 8 n + 7.
template <class Block>
KVANT_GPU void LoadKeys(Block& block, int k_dim, const std::byte* keys, int step,
                        PerThread<uint32_t> (&b)[4][2]) {
  const Half* halves = reinterpret_cast<const Half*>(keys);
  const bool whole = 16 * step + 8 < k_dim;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    PerThread<uint32_t> loaded[4];
    block.LoadB(loaded, halves + tile * k_dim * kKeyTilePositions, kKeyTilePositions, 16 * step, 0,
                whole ? 16 : 8);
    block.Each([&](int t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        b[2 * tile + i / 2][i % 2][t] = whole || i % 2 == 0 ? loaded[i][t] : 0;
      }
    });
  }
}

// Two dimensions of position 8 n + lane / 4 of a step's first eight (part 0) or last. The codes of
// four dimensions of a position are a word.
KVANT_GPU HalfPair KeyCodes(const std::byte* keys, int k_dim, int step, int n, int part, int t) {
  const int q = t % 4;
  const int d = 16 * step + 8 * part;
  if (d >= k_dim) return 0;
  const int word = (d + q / 2 * 4) / 4 * kKeyTilePositions + n % 2 * 8 + t % 32 / 4;
  return Codes(
      *reinterpret_cast<const uint32_t*>(keys + n / 2 * kKeyTilePositions * k_dim + word * 4),
      q % 2);
}

template <class Block>
KVANT_GPU void LoadKeyCodes(Block& block, int k_dim, const std::byte* keys, int step,
                            PerThread<uint32_t> (&b)[4][2]) {
  block.Each([&](int t) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int part = 0; part < 2; ++part) b[n][part][t] = KeyCodes(keys, k_dim, step, n, part, t);
    }
  });
}

// b = 16 positions of dimensions column .. column + 15. The codes of four positions of a
// dimension are a word; a row of v_dim of them is `row` bytes from the next.
template <class Block>
KVANT_GPU void LoadValueCodes(Block& block, int v_dim, int row, const std::byte* values, int step,
                              int column, const HalfPair* factors, PerThread<uint32_t> (&b)[4]) {
  block.Each([&](int t) {
    const int q = t % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int d = Least(column + i / 2 * 8 + t % 32 / 4, v_dim - 1);
      const int group = 4 * step + i % 2 * 2 + q / 2;  // of positions
      const uint32_t four =
          *reinterpret_cast<const uint32_t*>(values + group * row + d * 4) ^ 0x80808080;
      const int pair = 8 * step + 4 * (i % 2) + q;
      b[i][t] = Scaled(Codes(four, q % 2), factors[pair], factors[kBlockPositions / 2 + pair]);
    }
  });
}

// b = four times eight dimensions of positions 8 n .. 8 n + 7, from dimension `first` on, of codes
// of values that are laid out as for LoadValueCodes.
template <class Block>
KVANT_GPU void LoadValueCodesAsKeys(Block& block, int v_dim, int row, const std::byte* values,
                                    int n, int first, PerThread<uint32_t> (&b)[4]) {
  block.Each([&](int t) {
    const int position = 8 * n + t % 32 / 4;
    const uint32_t of_position = position % 4;
    const std::byte* from = values + position / 4 * row + (first + t % 4 * 2) * 4;
    const uint32_t order = of_position | (4 + of_position) << 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      b[i][t] = 0;
      if (first + 8 * i >= v_dim) continue;
      const Words2 words = *reinterpret_cast<const Words2*>(from + 32 * i);
      b[i][t] = Codes(Permute(words.w[0], words.w[1], order) ^ 0x80808080, 0);
    }
  });
}

// Writes a row's dimensions that a thread has.
template <class Block, int kColumns>
KVANT_GPU void PutSums(float* to, int v_dim, int t, int half,
                       const PerThread<float> (&sums)[kColumns][2][4], float factor) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int d = 16 * (t / 32 + c * (kSpanThreads / 32)) + 8 * n + t % 4 * 2;
      if (d >= v_dim) continue;
      Block::Store8(to + d, sums[c][n][2 * half][t] * factor, sums[c][n][2 * half + 1][t] * factor);
    }
  }
}

}  // namespace kvant::cuda
