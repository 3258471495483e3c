// Weights of attention as integers, by which q8 values are multiplied: the weights of a span, each
// times the scale of its value, with one scale for the span. Positions that a query does not see
// have the code 0 and can be multiplied with anything.
//
// Included inside an instruction set's namespace and target region, after attention_tile.inl and
// before attention_softmax.inl.

// What becomes of a query's exponentials: the largest product with the scale of a value, and NaN
// in `taint` where such a scale is NaN, because the value was not finite.
struct ScaledWeights {
  F32 largest;
  F32 taint;
};

// The scales of a run's values by offset in a span.
struct RunScales {
  const float* scales;  // of the run's first value
  int64_t run_offset;   // of that value
  int64_t count;

  F32 At(int64_t offset) const { return Load(scales + (offset - run_offset)); }
  F32 PartAt(int64_t offset) const {
    const int64_t token = offset - run_offset;
    return LoadPartial(scales + token, Least(kLanes, Greatest(0, count - token)));
  }
};

// Exponentials times the scales of their values, which are finite.
struct FiniteScales {
  RunScales run;
  ScaledWeights& scaled;

  F32 operator()(F32 weights, int64_t offset) const {
    const F32 products = Mul(weights, run.At(offset));
    scaled.largest = Max(products, scaled.largest);
    return products;
  }
};
// The same where scales may be NaN, or end.
struct AnyScales {
  RunScales run;
  ScaledWeights& scaled;

  F32 operator()(F32 weights, int64_t offset) const {
    const F32 products = MulNonZero(weights, run.PartAt(offset));
    scaled.largest = Max(products, scaled.largest);
    scaled.taint = MulAdd(products, Zero(), scaled.taint);
    return products;
  }
};

// Whether all scales of `count` values are finite.
inline bool AreFinite(const float* scales, int64_t count) {
  F32 products = Zero();
  for (int64_t i = 0; i < count; i += kLanes) {
    products = MulAdd(LoadPartial(scales + i, Least(kLanes, count - i)), Zero(), products);
  }
  return SumByHalves(products) == 0.0f;
}

// Says by what a query's scaled weights are multiplied to become codes, and keeps the scale of the
// codes.
inline F32 ChooseWeightStep(const QueryTile& tile, int query, const ScaledWeights& scaled) {
  constexpr float kCodeMax = kKvWeightCodeMax;
  constexpr float kVanishing = 0x1p-100f;  // kCodeMax divided by less may overflow
  const float max = LargestLane(scaled.largest);
  const bool vanishes = !(max >= kVanishing);
  tile.weight_step[query - tile.unit_first] =
      (vanishes ? 0.0f : max / kCodeMax) + SumByHalves(scaled.taint);
  return Broadcast(vanishes ? 0.0f : kCodeMax / max);
}

// A weight times `inverse`, rounded: the code is what the lower 16 bits of the float say.
inline F32 ShiftedCode(F32 weight, F32 inverse) {
  return MulAdd(weight, inverse, Broadcast(kRoundingShift));
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
