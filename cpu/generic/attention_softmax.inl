// The softmax of attention: from what the products of a query vector and the keys of a span have
// given to weights relative to the span's largest score, which the kernel's sink takes.
//
// Included inside an instruction set's namespace and target region, after attention_codes.inl and
// before attention_spans.inl. It keeps the invariants of attention.inl: exponentials are summed in
// lanes by position % 16.
//
// Weights are powers of 2: 2^((product - largest product) * factor), where the factor holds
// log2(e). Score caps and biases of some families, and factors that could overflow, are applied to
// the products before; then the factor is log2(e).

// The positions of the span's segments that a row may see.
inline SeenOffsets FindSeen(const QueryTile& tile, int row) {
  SeenOffsets seen;
  for (int s = 0; s < tile.segment_count; ++s) {
    if ((tile.segments[s].rows >> row & 1) == 0) continue;
    const PositionRange positions = Intersect(tile.segments[s].positions, tile.seen[row]);
    if (positions.empty()) continue;
    const PositionRange range = {positions.begin - tile.span_begin,
                                 positions.end - tile.span_begin};
    if (seen.count > 0 && seen.ranges[seen.count - 1].end == range.begin) {
      seen.ranges[seen.count - 1].end = range.end;
    } else {
      seen.ranges[seen.count++] = range;
    }
  }
  if (seen.count > 0) {
    seen.steps = {seen.ranges[0].begin / kStepTokens * kStepTokens,
                  static_cast<int64_t>(
                      RoundUp(static_cast<size_t>(seen.ranges[seen.count - 1].end), kStepTokens))};
  }
  return seen;
}

// Writes -infinity over the scores that a row does not see in its steps.
inline void MaskUnseen(const QueryTile& tile, int row, const SeenOffsets& seen, float* scores) {
  const auto mask = [scores](PositionRange range) {
    std::fill(scores + range.begin, scores + Greatest(range.begin, range.end), -INFINITY);
  };
  int64_t done = seen.steps.begin;
  for (int r = 0; r < seen.count; ++r) {
    mask({done, seen.ranges[r].begin});
    done = seen.ranges[r].end;
  }
  mask({done, seen.steps.end});
  ForEachHidden(tile, row, seen.steps, mask);
}

// The largest of a query vector's scores in whole steps, NaN aside; in several vectors, because
// each comparison waits for the one before.
inline float LargestScore(const float* scores, PositionRange steps) {
  F32 max[kStepVectors];
  for (F32& lanes : max) lanes = Broadcast(-INFINITY);
  for (int64_t i = steps.begin; i < steps.end; i += kStepTokens) {
#pragma GCC unroll 4
    for (int v = 0; v < kStepVectors; ++v) max[v] = Max(Load(scores + i + v * kLanes), max[v]);
  }
  static_assert(kStepVectors == 4);
  return LargestLane(Max(Max(max[0], max[1]), Max(max[2], max[3])));
}

// Turns the products of a query vector into scores: its factor, and the cap and biases of some
// families.
inline void ToScores(const QueryTile& tile, int query, const SeenOffsets& seen, float factor,
                     float* scores) {
  const AttentionTask& task = *tile.task;
  const DistanceBias& bias = task.distance_bias;
  static_assert(kLanes <= kDistancePadding);
  const int heads = task.heads_per_kv;
  const F32 cap = Broadcast(task.score_cap);
  const F32 slope = Broadcast(task.bias_slopes != nullptr ? task.bias_slopes[query % heads] : 0.0f);
  float lane_numbers[kLanes];
  for (int i = 0; i < kLanes; ++i) lane_numbers[i] = static_cast<float>(i);
  const int64_t origin = task.OriginOf(tile.first_row + query / heads);
  for (int r = 0; r < seen.count; ++r) {
    for (int64_t i = TileFloor(seen.ranges[r].begin); i < seen.ranges[r].end; i += kLanes) {
      const int64_t p = tile.span_begin + i;
      F32 score = Mul(Load(scores + i), Broadcast(factor));
      if (task.score_cap > 0.0f) score = Mul(cap, Tanh(Div(score, cap)));
      const F32 distance = Add(Load(lane_numbers), Broadcast(static_cast<float>(p - origin)));
      if (task.bias_slopes != nullptr) {
        score = MulAdd(slope, Min(distance, Sub(Zero(), distance)), score);
      }
      if (bias.values != nullptr) score = Add(score, Load(bias.At(query % heads, p - origin)));
      Store(scores + i, score);
    }
  }
}

// Makes what products have given scores but for the factor that it returns.
inline float Prepare(const QueryTile& tile, int query, const SeenOffsets& seen, float* scores) {
  const AttentionTask& task = *tile.task;
  const float natural = task.key_form == KeyForm::kValueFirst ? 1.0f : tile.query_factor[query];
  const float factor = natural * kLog2E;
  const bool moderate = factor >= 0x1p-100f && factor <= 0x1p100f;
  const bool adjusts =
      task.score_cap != 0.0f || task.bias_slopes != nullptr || task.distance_bias.values != nullptr;
  if (moderate && !adjusts) return factor;
  ToScores(tile, query, seen, natural, scores);
  return kLog2E;
}

// Gives sink(offset, weights) the weights of each step; returns their sum.
template <int kErrorBits, class Sink>
float WeighScores(const float* scores, PositionRange steps, Exponents exponents, Sink sink) {
  F32 sums[kSumVectors];
  for (F32& sum : sums) sum = Zero();
  for (int64_t i = steps.begin; i < steps.end; i += kStepTokens) {
    F32 weights[kStepVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kStepVectors; ++v) weights[v] = Load(scores + i + v * kLanes);
    Exp2<kErrorBits>(exponents, weights);
#pragma GCC unroll 4
    for (int v = 0; v < kStepVectors; ++v) {
      sums[v % kSumVectors] = Add(sums[v % kSumVectors], weights[v]);
    }
    sink(i, weights);
  }
  return SumLanes(sums);
}

// NaN if a position with a weight that is not zero has a value whose scale is not finite, else 0.
inline float TaintOf(const QueryTile& tile, const float* scores, PositionRange steps,
                     const Exponents& exponents) {
  F32 taint = Zero();
  for (int64_t i = steps.begin; i < steps.end; i += kLanes) {
    F32 weights[] = {Load(scores + i)};
    Exp2<18>(exponents, weights);
    taint = Add(taint, MulNonZero(weights[0], Load(tile.code_taints + i)));
  }
  return SumByHalves(taint);
}

// Turns the products of one query vector into weights relative to the span's largest score.
// `Products` has, beside the functions for AttendTile, SinkOf<Format>(tile, query, steps), a sink
// for weights that meet values of a format in `steps`; other weights are zeros. A sink of codes
// leaves the scores as they are.
template <class Products>
void SoftmaxQuery(const QueryTile& tile, int query, const SeenOffsets& seen,
                  const Products& products) {
  float* scores = tile.ScoresOf(query);
  const float factor = Prepare(tile, query, seen, scores);
  MaskUnseen(tile, query / tile.task->heads_per_kv, seen, scores);
  const float largest = LargestScore(scores, seen.steps);
  // Where all is hidden, weights are zero relative to any finite number.
  const Exponents exponents = {Broadcast(largest == -INFINITY ? 0.0f : largest), Broadcast(factor)};
  const int place = query - tile.unit_first;
  tile.span_max[place] = largest * factor;
  tile.span_total[place] = VisitKvVectorFormat(tile.task->v_type, [&]<class Format>(Format) {
    // Codes are rounded to 2^-16 of the largest.
    constexpr int kErrorBits = Format::kHasScales ? 18 : 28;
    return WeighScores<kErrorBits>(scores, seen.steps, exponents,
                                   products.template SinkOf<Format>(tile, query, seen.steps));
  });
  if (!KvHasScales(tile.task->v_type)) return;
  tile.weight_step[place] = tile.code_step;
  if (tile.code_tainted) tile.weight_step[place] += TaintOf(tile, scores, seen.steps, exponents);
}
