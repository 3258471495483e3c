// The kernels that walk one row of floats: norm, addition, rotary embedding.
//
// Included inside an instruction set's namespace and target region, after its simd.inl and
// math.inl. Semantics are those of cpu/kernels/table.h. Rows of any length: whole vectors, then one
// partial vector.

// 1 / sqrt(mean + epsilon) of squares whose sums are in lanes.
inline float NormFactor(const F32 (&sums)[kSumVectors], int64_t cols, float epsilon) {
  const float mean = SumLanes(sums) / static_cast<float>(cols);
  return 1.0f / std::sqrt(mean + epsilon);
}

// Calls visit(i, count, sum) for the vectors of a row, with the sum of the lanes they belong to.
template <class Visit>
[[gnu::always_inline]] inline void ForSumVectors(int64_t cols, F32 (&sums)[kSumVectors],
                                                 const Visit& visit) {
  for (F32& sum : sums) sum = Zero();
  int64_t i = 0;
  for (; i + kSumLanes <= cols; i += kSumLanes) {
    for (int v = 0; v < kSumVectors; ++v) visit(i + v * kLanes, int64_t{kLanes}, sums[v]);
  }
  for (int v = 0; v < kSumVectors && i + v * kLanes < cols; ++v) {
    visit(i + v * kLanes, Least(kLanes, cols - i - v * kLanes), sums[v]);
  }
}

[[gnu::always_inline]] inline F32 LoadSome(const float* x, int64_t count) {
  return count == kLanes ? Load(x) : LoadPartial(x, count);
}

[[gnu::always_inline]] inline void StoreSome(float* out, F32 values, int64_t count) {
  if (count == kLanes) return Store(out, values);
  StorePartial(out, values, count);
}

void RmsNorm(const float* x, const float* weight, int64_t cols, float epsilon, float* out) {
  F32 sums[kSumVectors];
  ForSumVectors(cols, sums, [&](int64_t i, int64_t count, F32& sum) {
    const F32 values = LoadSome(x + i, count);
    sum = MulAdd(values, values, sum);
  });
  const F32 factor = Broadcast(NormFactor(sums, cols, epsilon));
  for (int64_t i = 0; i < cols; i += kLanes) {
    const int64_t count = Least(kLanes, cols - i);
    const F32 scaled = Mul(LoadSome(x + i, count), factor);
    StoreSome(out + i, Mul(scaled, LoadSome(weight + i, count)), count);
  }
}

void LayerNorm(const float* x, const float* weight, const float* bias, int64_t cols, float epsilon,
               float* out) {
  F32 sums[kSumVectors];
  ForSumVectors(cols, sums, [&](int64_t i, int64_t count, F32& sum) {
    sum = Add(LoadSome(x + i, count), sum);
  });
  const F32 mean = Broadcast(SumLanes(sums) / static_cast<float>(cols));
  ForSumVectors(cols, sums, [&](int64_t i, int64_t count, F32& sum) {
    const F32 centred = Sub(LoadSome(x + i, count), mean);
    StoreSome(out + i, centred, count);
    // Lanes behind the row would count the mean.
    const F32 values = count == kLanes ? centred : LoadPartial(out + i, count);
    sum = MulAdd(values, values, sum);
  });
  const F32 factor = Broadcast(NormFactor(sums, cols, epsilon));
  for (int64_t i = 0; i < cols; i += kLanes) {
    const int64_t count = Least(kLanes, cols - i);
    F32 scaled = Mul(Mul(LoadSome(out + i, count), factor), LoadSome(weight + i, count));
    if (bias != nullptr) scaled = Add(scaled, LoadSome(bias + i, count));
    StoreSome(out + i, scaled, count);
  }
}

void AddRows(const float* a, const float* b, int64_t cols, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) Store(out + i, Add(Load(a + i), Load(b + i)));
  const int64_t rest = cols - i;
  if (rest == 0) return;
  StorePartial(out + i, Add(LoadPartial(a + i, rest), LoadPartial(b + i, rest)), rest);
}

void Cap(float* values, int64_t count, float cap) {
  const F32 limit = Broadcast(cap);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t some = Least(kLanes, count - i);
    const F32 value = LoadPartial(values + i, some);
    StorePartial(values + i, Mul(limit, Tanh(Div(value, limit))), some);
  }
}

// The rotation of a pair (a, b) is (a cos - b sin, b cos + a sin), in both styles with the product
// by the sine rounded first and the other fused.

void RopeInterleaved(float* vector, int64_t n_rot, const float* cosines, const float* sines) {
  for (int64_t i = 0; i < n_rot; i += kLanes) {
    const int64_t count = Least(kLanes, n_rot - i);
    const F32 pairs = LoadPartial(vector + i, count);
    const F32 cosine = LoadDuplicated(cosines + i / 2, count / 2);
    const F32 sine = LoadDuplicated(sines + i / 2, count / 2);
    StorePartial(vector + i, MulSubAdd(pairs, cosine, Mul(SwapLanes<1>(pairs), sine)), count);
  }
}

void RopeHalves(float* vector, int64_t n_rot, const float* cosines, const float* sines) {
  const int64_t half = n_rot / 2;
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t count = Least(kLanes, half - i);
    const F32 first = LoadPartial(vector + i, count);
    const F32 second = LoadPartial(vector + half + i, count);
    const F32 cosine = LoadPartial(cosines + i, count);
    const F32 sine = LoadPartial(sines + i, count);
    StorePartial(vector + i, MulSub(first, cosine, Mul(second, sine)), count);
    StorePartial(vector + half + i, MulAdd(second, cosine, Mul(first, sine)), count);
  }
}

void Rope(float* vectors, int64_t n_heads, int64_t head_dim, int64_t n_rot, RopeStyle style,
          const float* cos_sin) {
  const float* sines = cos_sin + n_rot / 2;
  for (int64_t head = 0; head < n_heads; ++head) {
    float* vector = vectors + head * head_dim;
    if (style == RopeStyle::kInterleaved) {
      RopeInterleaved(vector, n_rot, cos_sin, sines);
    } else {
      RopeHalves(vector, n_rot, cos_sin, sines);
    }
  }
}

// The Hadamard transform of a power of two of values takes sums and differences of pairs at growing
// distance. Here pairs at a distance below kLanes, of all values of a vector.
template <int kDistance = 1>
inline F32 HadamardInside(F32 v) {
  if constexpr (kDistance < kLanes) {
    alignas(64) static constexpr auto kSigns = [] {
      std::array<float, kLanes> signs = {};
      for (int i = 0; i < kLanes; ++i) signs[static_cast<size_t>(i)] = i & kDistance ? -1.0f : 1.0f;
      return signs;
    }();
    return HadamardInside<2 * kDistance>(MulAdd(v, Load(kSigns.data()), SwapLanes<kDistance>(v)));
  } else {
    return v;
  }
}

// Pairs at `distance`, at least kLanes.
inline void HadamardAt(int64_t distance, float* values, int64_t order) {
  for (int64_t begin = 0; begin < order; begin += 2 * distance) {
    float* first = values + begin;
    float* second = first + distance;
    for (int64_t i = 0; i < distance; i += kLanes) {
      const F32 a = Load(first + i);
      const F32 b = Load(second + i);
      Store(first + i, Add(a, b));
      Store(second + i, Sub(a, b));
    }
  }
}

// The transform of fewer values than a vector has.
inline void HadamardOfFew(float* values, int64_t order) {
  for (int64_t distance = 1; distance < order; distance *= 2) {
    for (int64_t i = 0; i < order; ++i) {
      if ((i & distance) != 0) continue;
      const float a = values[i];
      const float b = values[i + distance];
      values[i] = a + b;
      values[i + distance] = a - b;
    }
  }
}

void Rotate(float* vectors, int64_t n_vectors, int64_t dim) {
  const int64_t order = dim & -dim;
  const float factor = 1.0f / std::sqrt(static_cast<float>(order));
  for (float* values = vectors; values != vectors + n_vectors * dim; values += order) {
    if (order < kLanes) {
      HadamardOfFew(values, order);
      for (int64_t i = 0; i < order; ++i) values[i] *= factor;
      continue;
    }
    for (int64_t i = 0; i < order; i += kLanes) Store(values + i, HadamardInside(Load(values + i)));
    for (int64_t distance = kLanes; distance < order; distance *= 2) {
      HadamardAt(distance, values, order);
    }
    for (int64_t i = 0; i < order; i += kLanes) {
      Store(values + i, Mul(Load(values + i), Broadcast(factor)));
    }
  }
}
