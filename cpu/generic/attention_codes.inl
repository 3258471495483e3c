// Weights of attention as integers, by which q8 values are multiplied: each weight of a span times
// the scale of its value, with one scale for the span. Weights are at most 1, so the largest scale
// of the values that a row sees gives the span's scale, which all heads of the row share. Positions
// that a query does not see have the code 0 and can be multiplied with anything.
//
// Included inside an instruction set's namespace and target region, after attention_tile.inl and
// before attention_softmax.inl.

// Writes the scales of the values that a row sees, and zeros between them, over the span's code
// scales.
inline void CopyValueScales(const QueryTile& tile, int row, const SeenOffsets& seen) {
  float* scales = tile.code_scales;
  std::fill(scales + seen.steps.begin, scales + seen.steps.end, 0.0f);
  for (int s = 0; s < tile.segment_count; ++s) {
    const Segment& segment = tile.segments[s];
    if ((segment.rows >> row & 1) == 0) continue;
    const PositionRange positions = Intersect(segment.positions, tile.seen[row]);
    if (positions.empty()) continue;
    const float* first = ValueScalesOf(*segment.run) - segment.run->first_position;
    std::copy(first + positions.begin, first + positions.end,
              scales + (positions.begin - tile.span_begin));
  }
  ForEachHidden(tile, row, seen.steps, [scales](PositionRange hidden) {
    std::fill(scales + hidden.begin, scales + hidden.end, 0.0f);
  });
}

// Zeros instead of the code scales that are not finite, which code_taints then says.
inline void TakeTaints(QueryTile& tile, PositionRange offsets) {
  for (int64_t i = offsets.begin; i < offsets.end; ++i) {
    const bool finite = std::isfinite(tile.code_scales[i]);
    tile.code_taints[i] = finite ? 0.0f : NAN;
    if (!finite) tile.code_scales[i] = 0.0f;
  }
}

inline F32 LargestScales(const float* scales, PositionRange offsets) {
  F32 largest = Zero();
  for (int64_t i = offsets.begin; i < offsets.end; i += kLanes) {
    largest = Max(Load(scales + i), largest);
  }
  return largest;
}

// Whether all of `scales` in the offsets, a multiple of kLanes, are finite.
inline bool AreFinite(const float* scales, PositionRange offsets) {
  F32 products = Zero();
  for (int64_t i = offsets.begin; i < offsets.end; i += kLanes) {
    products = MulAdd(Load(scales + i), Zero(), products);
  }
  return SumByHalves(products) == 0.0f;
}

// Says by what the weights of a row are multiplied to become codes, and keeps the scale of the
// codes.
inline void ChooseCodeScales(QueryTile& tile, int row, const SeenOffsets& seen) {
  constexpr float kCodeMax = kKvWeightCodeMax;
  constexpr float kVanishing = 0x1p-100f;  // kCodeMax divided by less may overflow
  const bool common = tile.segments_for_all && seen.whole() && tile.task->hidden.empty();
  if (common && tile.coded.begin == seen.steps.begin && tile.coded.end == seen.steps.end) return;
  tile.coded = common ? seen.steps : PositionRange{0, 0};
  CopyValueScales(tile, row, seen);
  tile.code_tainted = !AreFinite(tile.code_scales, seen.steps);
  if (tile.code_tainted) TakeTaints(tile, seen.steps);
  const float largest = LargestLane(LargestScales(tile.code_scales, seen.steps));
  const bool vanishes = !(largest >= kVanishing);
  tile.code_step = vanishes ? 0.0f : largest / kCodeMax;
  const F32 inverse = Broadcast(vanishes ? 0.0f : kCodeMax / largest);
  for (int64_t i = seen.steps.begin; i < seen.steps.end; i += kLanes) {
    Store(tile.code_scales + i, Mul(Load(tile.code_scales + i), inverse));
  }
}

// A weight times its code scale, rounded: the code is what the lower 16 bits of the float say.
inline F32 ShiftedCode(F32 weight, F32 code_scale) {
  return MulAdd(weight, code_scale, Broadcast(kRoundingShift));
}

// From a unit's sums of integers to its weighted values.
void ScaleQ8Sums(const QueryTile& tile) {
  for (int q = 0; q < tile.unit_count; ++q) {
    const F32 step = Broadcast(tile.weight_step[q]);
    float* sums = tile.span_sums + q * tile.value_stride;
    for (int64_t d = 0; d < tile.value_stride; d += kLanes) {
      Store(sums + d, Mul(ToFloat(LoadInts(sums + d)), step));
    }
  }
}
