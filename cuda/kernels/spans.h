// How the softmax of a row, which runs span by span, becomes one.
#pragma once

#include "cuda/kernels/stage.h"

namespace kvant::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// How the result of a span joins those before it. The operations are named one by one, so that no
// compiler joins them in one kernel and not in the other.
struct SpanFactors {
  float max;     // the greatest score so far
  float before;  // what multiplies the sums so far
  float now;     // and those of the span
};
KVANT_GPU SpanFactors JoinSpan(float max, float span_max) {
  const float greatest = Greater(max, span_max);
  return {greatest, Exp2((max - greatest) * kLog2E), Exp2((span_max - greatest) * kLog2E)};
}
KVANT_GPU float Join(const SpanFactors& factors, float sum, float span_sum) {
  return AddExact(MultiplyExact(sum, factors.before), MultiplyExact(span_sum, factors.now));
}

// What sums of weighted values are multiplied by, given the greatest score, the sum of weights
// and a sink's score. A row that sees nothing has zeros.
KVANT_GPU float Share(float max, float total, float sink) {
  if (total == 0.0f) return 0.0f;
  if (sink == -Infinity()) return 1.0f / total;
  const float greatest = Greater(max, sink);
  const float kept = Exp2((max - greatest) * kLog2E);
  return kept / AddExact(MultiplyExact(total, kept), Exp2((sink - greatest) * kLog2E));
}

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
        const SpanFactors factors = JoinSpan(max, partial[0]);
        total = Join(factors, total, partial[1]);
        sum = Join(factors, sum, partial[kPartialHead + d]);
        max = factors.max;
      }
      out[d] = sum * Share(max, total, p.sinks == nullptr ? -Infinity() : p.sinks[block.y]);
    }
  });
}

}  // namespace kvant::cuda
