// The arithmetic that all kernels of attention have in common, so that a row has the same bits
// whichever computes it, and in any company:
//
//   - Positions are taken in spans of 256, from position 0 on. Over a span the scores of a row are
//     sums over 16 dimensions at a time, in order; the greatest score is subtracted from all; the
//     weights are halves; their sum and the sums of weighted values go over 16 positions at a time,
//     in order, from zero.
//   - The spans in which a row sees something are joined one after the other.
//
// Within a span of latents the sums are those of latent_rows.h.
//
// A position that a row does not see has a weight of zero, adds nothing and changes no maximum.
// Sums of 16 products are those of the tensor cores: mma.sync and wgmma give the same bits.
#pragma once

#include "cuda/kernels/layouts.h"
#include "cuda/kernels/mask.h"

namespace kvant::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// The weights of the scores of a span, given the greatest score.
KVANT_GPU float BaseOf(float max) { return max == -Infinity() ? 0.0f : MultiplyExact(max, kLog2E); }
KVANT_GPU float WeightOf(float score, float base) {
  return Exp2(MultiplyAdd(score, kLog2E, -base));
}

// How the result of a span joins those before it.
struct SpanFactors {
  float max;     // the greatest score so far
  float before;  // what multiplies the sums so far
  float now;     // and those of the span
};
KVANT_GPU SpanFactors JoinSpan(float max, float span_max) {
  const float greatest = Greater(max, span_max);
  return {greatest, Exp2(MultiplyExact(AddExact(max, -greatest), kLog2E)),
          Exp2(MultiplyExact(AddExact(span_max, -greatest), kLog2E))};
}
KVANT_GPU float Join(const SpanFactors& factors, float sum, float span_sum) {
  return MultiplyAdd(sum, factors.before, MultiplyExact(span_sum, factors.now));
}

// The factor of sums of weighted values, given the greatest score, the sum of weights and a sink's
// score. A row that sees nothing has zeros.
KVANT_GPU float Share(float max, float total, float sink) {
  if (total == 0.0f) return 0.0f;
  if (sink == -Infinity()) return 1.0f / total;
  const float greatest = Greater(max, sink);
  const float kept = Exp2(MultiplyExact(AddExact(max, -greatest), kLog2E));
  return kept / AddExact(MultiplyExact(total, kept),
                         Exp2(MultiplyExact(AddExact(sink, -greatest), kLog2E)));
}

// ---- Codes --------------------------------------------------------------------------------------

inline constexpr uint32_t kBiased = 0x64806480;    // 1024 + 128, twice
inline constexpr uint32_t kExponent = 0x64646464;  // of the halves from 1024 to 2047

// The two lower bytes of a word (half 0) or the two upper ones, from 0 to 255, as halves from -128
// to 127.
KVANT_GPU HalfPair Codes(uint32_t word, int half) {
  return Subtract(Permute(word, kExponent, half == 0 ? 0x4140 : 0x4342), kBiased);
}

// A scale of values as the product of two halves: the first is so small that its product with a
// code is rounded to 11 bits, the second is a power of two. What is too large for halves becomes
// the greatest such factor.
struct ScaleFactors {
  Half part;
  Half power;
};
KVANT_GPU ScaleFactors FactorsOf(float scale) {
  if (scale != scale) return {0x7e00, 0x3c00};
  const int exponent = static_cast<int>(AsBits(scale) >> 23 & 0xff) - 127 + 7;
  if (exponent < -24) return {0, 0};
  return {ToHalf(AsFloat((AsBits(scale) & 0x7fffff) | (127 - 7) << 23)),
          ToHalf(AsFloat(static_cast<uint32_t>(Least(exponent, 15) + 127) << 23))};
}
KVANT_GPU HalfPair Scaled(HalfPair codes, HalfPair parts, HalfPair powers) {
  return Multiply(Multiply(codes, parts), powers);
}

// ---- Merging ------------------------------------------------------------------------------------

// The piece of a row.
KVANT_GPU const Piece& PieceOf(const PassTables& tables, int pieces, int row) {
  int low = 0;
  for (int i = 1; i < pieces; ++i) {
    if (tables.pieces[i].rows > 0 && tables.pieces[i].first_row <= row) low = i;
  }
  return tables.pieces[low];
}

// The memory that the threads of MergeSpans share.
struct MergeMemory {
  float* sums;      // [kMergedSpans][kMergedDims]
  float* most;      // [kMergedSpans], greatest scores of spans
  float* to_here;   // [kMergedSpans], and up to them
  Words4* factors;  // [kMergedSpans]: before, now, the total

  template <class Block>
  KVANT_GPU static MergeMemory In(Block& block) {
    float* sums = reinterpret_cast<float*>(block.shared);
    float* most = sums + kMergedSpans * kMergedDims;
    float* to_here = most + kMergedSpans;
    return {sums, most, to_here, reinterpret_cast<Words4*>(to_here + kMergedSpans)};
  }
};

// Brings the heads and sums of `count` spans, which begin at `partials`, to shared memory.
template <class Block>
KVANT_GPU void LoadSpans(Block& block, const MergeParams& p, const float* partials, int count,
                         const MergeMemory& memory) {
  const int size = kPartialHead + p.v_dim;
  block.Each([&](int t) {
    // A span in which the row sees nothing does not change the sums.
    if (t < count) {
      const Words2 head = Block::Load8(reinterpret_cast<const std::byte*>(partials + t * size));
      const float seen = AsFloat(head.w[1]);
      memory.most[t] = seen == 0.0f ? -Infinity() : AsFloat(head.w[0]);
      memory.factors[t].w[2] = AsBits(seen);
    }
    // As many loads as there are registers for are under way at once.
    const int d = Least(block.z * kMergedDims + t % 32, p.v_dim - 1);
    const float* from = partials + t / 32 * size + kPartialHead + d;
    float* to = memory.sums + t;
#pragma unroll
    for (int i = 0; i < kMergedSpans; i += kMergeThreads / 32) {
      if (i + t / 32 < count) to[i * kMergedDims] = from[i * size];
    }
  });
  block.Barrier();
}

// Finds what multiplies the sums of each span; `carried` is the greatest score before them, and
// becomes the greatest with them.
template <class Block>
KVANT_GPU void FindFactors(Block& block, int count, const MergeMemory& memory, float& carried) {
  // The greatest score up to each span, within a warp and beyond.
  PerThread<float> up_to;
  block.Each([&](int t) { up_to[t] = t < count ? memory.most[t] : -Infinity(); });
  block.WarpPrefixMax(up_to);
  block.Each([&](int t) { memory.to_here[t] = up_to[t]; });
  block.Barrier();
  block.Each([&](int t) {
    if (t >= count) return;
    float before = t % 32 == 0 ? carried : Greater(carried, memory.to_here[t - 1]);
    for (int end = 31; end < t - t % 32; end += 32) before = Greater(before, memory.to_here[end]);
    const SpanFactors found = JoinSpan(before, memory.most[t]);
    const bool seen = AsFloat(memory.factors[t].w[2]) != 0.0f;
    memory.factors[t].w[0] = AsBits(seen ? found.before : 1.0f);
    memory.factors[t].w[1] = AsBits(seen ? found.now : 0.0f);
  });
  for (int end = 31; end < kMergeThreads; end += 32) {
    carried = Greater(carried, memory.to_here[end]);
  }
  block.Barrier();
}

// Joins the spans of a row (x) and head (y), for 32 dimensions (z): 256 spans at a time. All
// threads bring their sums to shared memory and find what multiplies them; one warp joins them.
template <class Block>
KVANT_GPU void MergeSpans(Block& block, const MergeParams& p, int heads) {
  block.SetThreads(kMergeThreads);
  const Piece& piece = PieceOf(p.tables, p.pieces, block.x);
  if (block.x < piece.first_row || block.x >= piece.first_row + piece.rows) return;
  const int position = p.tables.positions[block.x];
  const int origin = piece.begin / kSpanPositions;
  const int first = FirstVisible(p.window_kind, p.window, position) / kSpanPositions - origin;
  const int last = Least(position / kSpanPositions - origin, p.spans - 1);
  const int size = kPartialHead + p.v_dim;
  const float* partials =
      p.partials + (static_cast<int64_t>(block.x) * heads + block.y) * p.spans * size;
  const MergeMemory memory = MergeMemory::In(block);
  float carried = -Infinity();  // the greatest score so far
  PerThread<float> total, sum;
  block.Each([&](int t) { total[t] = sum[t] = 0.0f; });
  for (int begin = first; begin <= last; begin += kMergedSpans) {
    const int count = Least(kMergedSpans, last + 1 - begin);
    LoadSpans(block, p, partials + begin * size, count, memory);
    FindFactors(block, count, memory, carried);
    block.Warps(1, [&] {
      block.Each([&](int t) {
#pragma unroll 8
        for (int span = 0; span < count; ++span) {
          const Words4 of = memory.factors[span];
          const SpanFactors join = {0.0f, AsFloat(of.w[0]), AsFloat(of.w[1])};
          total[t] = Join(join, total[t], AsFloat(of.w[2]));
          sum[t] = Join(join, sum[t], memory.sums[span * kMergedDims + t]);
        }
      });
    });
    block.Barrier();
  }
  float* out = p.output + block.x * p.output_stride + static_cast<int64_t>(block.y) * p.v_dim;
  block.Warps(1, [&] {
    block.Each([&](int t) {
      const int d = block.z * kMergedDims + t;
      if (d >= p.v_dim) return;
      out[d] =
          sum[t] * Share(carried, total[t], p.sinks == nullptr ? -Infinity() : p.sinks[block.y]);
    });
  });
}

}  // namespace kvant::cuda
