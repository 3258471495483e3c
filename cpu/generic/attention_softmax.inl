// The softmax of attention: from the scores of a query vector in a span to its weights, relative to
// the span's largest score, and to the codes by which q8 values are multiplied.
//
// Included inside an instruction set's namespace and target region, after attention_codes.inl and
// before attention_spans.inl. It keeps the invariants of attention.inl: exponentials are summed in
// lanes by position % 16, and which exponential is used, the quick one or the one for all numbers,
// changes no bit.

// Writes -infinity over the scores of whole tiles that `seen` does not cover, and returns these
// whole tiles, as offsets in the span.
inline PositionRange MaskEdges(float* scores, PositionRange seen, int64_t span_begin) {
  const int64_t begin = seen.begin - span_begin;
  const int64_t end = seen.end - span_begin;
  const int64_t tiles_begin = TileFloor(begin);
  const int64_t tiles_end = TileFloor(end + kKeyTileTokens - 1);
  for (int64_t i = tiles_begin; i < begin; ++i) scores[i] = -INFINITY;
  for (int64_t i = end; i < tiles_end; ++i) scores[i] = -INFINITY;
  return {tiles_begin, tiles_end};
}

// The largest and the smallest of a query vector's scores in a span, NaN aside, lane by lane; in
// several vectors, because each comparison waits for the one before.
struct ScoreRange {
  static constexpr int kVectors = 4;
  F32 max[kVectors];
  F32 min[kVectors];

  ScoreRange() {
    for (F32& lanes : max) lanes = Broadcast(-INFINITY);
    for (F32& lanes : min) lanes = Broadcast(INFINITY);
  }
  // Whole tiles.
  void Add(const float* scores, PositionRange offsets) {
    int64_t i = offsets.begin;
    for (; i + kVectors * kLanes <= offsets.end; i += kVectors * kLanes) {
      AddAt<kVectors>(scores + i);
    }
    for (; i < offsets.end; i += kSumLanes) AddAt<kSumVectors>(scores + i);
  }
  float Largest() const { return LargestLane(Max(Max(max[0], max[1]), Max(max[2], max[3]))); }
  float Smallest() const {
    return -LargestLane(Sub(Zero(), Min(Min(min[0], min[1]), Min(min[2], min[3]))));
  }

 private:
  template <int kCount>
  void AddAt(const float* scores) {
    static_assert(kCount <= kVectors);
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      const F32 lanes = Load(scores + v * kLanes);
      max[v] = Max(lanes, max[v]);
      min[v] = Min(lanes, min[v]);
    }
  }
};

// scores = finish(exp(scores - max), offset) for kVectors vectors from an offset on; adds the
// exponentials to the sums by lane.
template <int kVectors, class Exp, class Finish>
inline void ExponentialsAt(int64_t offset, float* scores, float max, F32 (&sums)[kSumVectors],
                           const Exp& exp, const Finish& finish) {
  F32 weights[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    weights[v] = Sub(Load(scores + offset + v * kLanes), Broadcast(max));
  }
  exp(weights);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = offset + v * kLanes;
    sums[v % kSumVectors] = Add(sums[v % kSumVectors], weights[v]);
    Store(scores + at, finish(weights[v], at));
  }
}

// The same for whole tiles.
template <class Exp, class Finish>
inline void Exponentials(float* scores, PositionRange offsets, float max, F32 (&sums)[kSumVectors],
                         const Exp& exp, const Finish& finish) {
  constexpr int kVectors = 4;
  static_assert(kVectors % kSumVectors == 0 && kKeyTileTokens % kSumLanes == 0);
  int64_t i = offsets.begin;
  for (; i + kVectors * kLanes <= offsets.end; i += kVectors * kLanes) {
    ExponentialsAt<kVectors>(i, scores, max, sums, exp, finish);
  }
  for (; i < offsets.end; i += kSumLanes) {
    ExponentialsAt<kSumVectors>(i, scores, max, sums, exp, finish);
  }
}

// Writes -infinity over the scores of hidden positions in the offsets of a span.
inline void MaskHidden(const QueryTile& tile, int row, PositionRange offsets, float* scores) {
  for (const HiddenPositions& hidden : tile.task->hidden) {
    if ((tile.RowsOf(hidden.rows) >> row & 1) == 0) continue;
    const PositionRange masked =
        Intersect(offsets, {hidden.begin - tile.span_begin, hidden.end - tile.span_begin});
    for (int64_t i = masked.begin; i < masked.end; ++i) scores[i] = -INFINITY;
  }
}

// What some families do to the scores of a query vector before the softmax.
inline void AdjustScores(const QueryTile& tile, int query, PositionRange seen, float* scores) {
  const AttentionTask& task = *tile.task;
  const DistanceBias& bias = task.distance_bias;
  if (task.score_cap == 0.0f && task.bias_slopes == nullptr && bias.values == nullptr) return;
  static_assert(kLanes <= kDistancePadding);
  const int heads = task.heads_per_kv;
  const F32 cap = Broadcast(task.score_cap);
  const F32 slope = Broadcast(task.bias_slopes != nullptr ? task.bias_slopes[query % heads] : 0.0f);
  float lane_numbers[kLanes];
  for (int i = 0; i < kLanes; ++i) lane_numbers[i] = static_cast<float>(i);
  const int64_t origin = task.OriginOf(tile.first_row + query / heads);
  for (int64_t p = TileFloor(seen.begin); p < seen.end; p += kLanes) {
    F32 score = Load(scores + (p - tile.span_begin));
    if (task.score_cap > 0.0f) score = Mul(cap, Tanh(Div(score, cap)));
    const F32 distance = Add(Load(lane_numbers), Broadcast(static_cast<float>(p - origin)));
    if (task.bias_slopes != nullptr) score = MulAdd(slope, distance, score);
    if (bias.values != nullptr) score = Add(score, Load(bias.At(query % heads, p - origin)));
    Store(scores + (p - tile.span_begin), score);
  }
}

struct Unscaled {
  F32 operator()(F32 weights, int64_t /*offset*/) const { return weights; }
};

// What SoftmaxQuery has found in a span for one query vector: what it sees, in whole tiles, as
// offsets in the span.
struct SeenScores {
  PositionRange offsets[kSpanSegmentsMax];
  const Segment* segments[kSpanSegmentsMax];
  int count;
  ScaledWeights scaled;  // of q8 values
};

// From scores to exponentials relative to `base`, times the scales of q8 values. Returns the sum of
// the exponentials.
template <class Exp>
float WeighScores(const QueryTile& tile, int query, SeenScores& seen, float base, const Exp& exp) {
  float* scores = tile.ScoresOf(query);
  F32 sums[kSumVectors];
  for (F32& sum : sums) sum = Zero();
  if (!KvHasScales(tile.task->v_element)) {
    for (int s = 0; s < seen.count; ++s) {
      Exponentials(scores, seen.offsets[s], base, sums, exp, Unscaled());
    }
    return SumLanes(sums);
  }
  ScaledWeights scaled = {Zero(), Zero()};
  for (int s = 0; s < seen.count; ++s) {
    const Segment& segment = *seen.segments[s];
    const int64_t run_offset = segment.run->first_position - tile.span_begin;
    const RunScales scales = {segment.run->value_scales, run_offset, segment.run->count};
    const PositionRange offsets = seen.offsets[s];
    const int64_t end = run_offset + segment.run->count;
    const int64_t whole =
        segment.finite_scales ? Least(offsets.end, end / kSumLanes * kSumLanes) : offsets.begin;
    Exponentials(scores, {offsets.begin, whole}, base, sums, exp, FiniteScales{scales, scaled});
    Exponentials(scores, {whole, offsets.end}, base, sums, exp, AnyScales{scales, scaled});
  }
  seen.scaled = scaled;
  return SumLanes(sums);
}

// Turns the scores of one query vector into weights relative to the span's maximum, and says for
// which offsets.
void SoftmaxQuery(const QueryTile& tile, int query, SeenScores& all) {
  const int row = query / tile.task->heads_per_kv;
  float* scores = tile.ScoresOf(query);
  all.count = 0;
  ScoreRange range;
  for (int s = 0; s < tile.segment_count; ++s) {
    if ((tile.segments[s].rows >> row & 1) == 0) continue;
    const PositionRange seen = Intersect(tile.segments[s].positions, tile.SeenBy(query));
    if (seen.empty()) continue;
    AdjustScores(tile, query, seen, scores);
    const PositionRange offsets = MaskEdges(scores, seen, tile.span_begin);
    MaskHidden(tile, row, offsets, scores);
    range.Add(scores, offsets);
    all.offsets[all.count] = offsets;
    all.segments[all.count++] = &tile.segments[s];
  }
  const float max = range.Largest();
  // Where all is hidden, weights are zero relative to any finite number.
  const float base = max == -INFINITY ? 0.0f : max;
  const int place = query - tile.unit_first;
  tile.span_max[place] = max;
  if (range.Smallest() - base >= kExpNormalMin) {
    tile.span_total[place] = WeighScores(tile, query, all, base, NormalExp());
  } else {
    tile.span_total[place] = WeighScores(tile, query, all, base, FullExp());
  }
}
