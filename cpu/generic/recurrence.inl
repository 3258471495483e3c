// The kernels of recurrent layers: a convolution over the last rows, the scan of a state that is a
// matrix, and gates.
//
// Included inside an instruction set's namespace and target region, after its simd.inl, and in
// cpu/scalar. Semantics are those of cpu/kernels/recurrence.h. A column's operations are the same
// whatever the width of vectors, so that every instruction set gives the same bits.

void CausalConv(const ConvTask& task) {
  for (int64_t c = 0; c < task.cols; c += kLanes) {
    const int64_t some = task.cols - c < kLanes ? task.cols - c : kLanes;
    F32 sum = task.bias == nullptr ? Zero() : LoadPartial(task.bias + c, some);
    for (int64_t tap = 0; tap < task.taps; ++tap) {
      sum = MulAdd(LoadPartial(task.weights + tap * task.weight_stride + c, some),
                   LoadPartial(task.rows[tap] + c, some), sum);
    }
    StorePartial(task.out + c, sum, some);
  }
}

void SigmoidGate(const float* gates, const float* x, int64_t cols, float* out) {
  const F32 one = Broadcast(1.0f);
  for (int64_t c = 0; c < cols; c += kLanes) {
    const int64_t some = cols - c < kLanes ? cols - c : kLanes;
    const F32 power = Exp(Sub(Zero(), LoadPartial(gates + c, some)));
    StorePartial(out + c, Div(LoadPartial(x + c, some), Add(one, power)), some);
  }
}

void KeyDecays(const KeyDecayTask& task) {
  const F32 rate = Broadcast(task.rate);
  const F32 bound = Broadcast(task.bound);
  for (int64_t c = 0; c < task.cols; c += kLanes) {
    const int64_t some = task.cols - c < kLanes ? task.cols - c : kLanes;
    const F32 x = Add(LoadPartial(task.in + c, some), LoadPartial(task.biases + c, some));
    const F32 power =
        task.bound < 0 ? Mul(bound, Sigmoid::Of(Mul(rate, x))) : Mul(rate, Softplus::Of(x));
    StorePartial(task.out + c, Exp(power), some);
  }
}

// Numbers of a state in memory.
inline F32 LoadState(const float* from) { return Load(from); }
inline F32 LoadState(const uint16_t* from) { return LoadF16(from); }
inline void StoreState(float* to, F32 numbers) { Store(to, numbers); }
inline void StoreState(uint16_t* to, F32 numbers) { StoreF16(to, ClampToF16(numbers)); }

// Sums over the rows of a state run in kScanParts parts, row i in part i % kScanParts, and a column
// keeps this order on every instruction set.
inline constexpr int64_t kScanParts = 4;
inline constexpr int kScanVectors = static_cast<int>(kScanColumns / kLanes);

inline void SumParts(const F32 (&parts)[kScanParts][kScanVectors], F32 (&sums)[kScanVectors]) {
  for (int v = 0; v < kScanVectors; ++v) {
    sums[v] = Add(Add(parts[0][v], parts[1][v]), Add(parts[2][v], parts[3][v]));
  }
}

// sums = the state's columns times `vector`, [depth].
template <class Number>
inline void ScanProduct(const Number* state, const float* vector, int64_t depth,
                        F32 (&sums)[kScanVectors]) {
  F32 parts[kScanParts][kScanVectors];
  for (auto& part : parts) {
    for (F32& vector_part : part) vector_part = Zero();
  }
  int64_t i = 0;
  for (; i + kScanParts <= depth; i += kScanParts) {
    for (int64_t part = 0; part < kScanParts; ++part) {
      const F32 factor = Broadcast(vector[i + part]);
      const Number* row = state + (i + part) * kScanColumns;
      for (int v = 0; v < kScanVectors; ++v) {
        parts[part][v] = MulAdd(factor, LoadState(row + v * kLanes), parts[part][v]);
      }
    }
  }
  for (; i < depth; ++i) {
    const F32 factor = Broadcast(vector[i]);
    for (int v = 0; v < kScanVectors; ++v) {
      F32& part = parts[i % kScanParts][v];
      part = MulAdd(factor, LoadState(state + i * kScanColumns + v * kLanes), part);
    }
  }
  SumParts(parts, sums);
}

// Changes each row of a state, and sums what `update` adds to the parts.
template <class Number, class Update>
inline void ScanRows(Number* state, int64_t depth, F32 (&sums)[kScanVectors],
                     const Update& update) {
  F32 parts[kScanParts][kScanVectors];
  for (auto& part : parts) {
    for (F32& vector_part : part) vector_part = Zero();
  }
  int64_t i = 0;
  for (; i + kScanParts <= depth; i += kScanParts) {
    for (int64_t part = 0; part < kScanParts; ++part) {
      update(i + part, state + (i + part) * kScanColumns, parts[part]);
    }
  }
  for (; i < depth; ++i) update(i, state + i * kScanColumns, parts[i % kScanParts]);
  SumParts(parts, sums);
}

// The decay of each row of a state: one for all, or one of its own.
struct OneDecay {
  F32 decay;
  F32 Of(int64_t) const { return decay; }
};
struct KeyDecay {
  const float* decays;
  F32 Of(int64_t i) const { return Broadcast(decays[i]); }
};

// state = decay * state + key (x) added; sums = the new state's columns times `query`.
template <class Number, class Decay>
inline void ScanUpdate(Number* state, const float* key, const float* query, const Decay& decay,
                       int64_t depth, const F32 (&added)[kScanVectors], F32 (&sums)[kScanVectors]) {
  ScanRows(state, depth, sums, [&](int64_t i, Number* row, F32(&part)[kScanVectors]) {
    const F32 key_i = Broadcast(key[i]);
    const F32 query_i = Broadcast(query[i]);
    const F32 kept = decay.Of(i);
    for (int v = 0; v < kScanVectors; ++v) {
      const F32 changed = MulAdd(key_i, added[v], Mul(kept, LoadState(row + v * kLanes)));
      StoreState(row + v * kLanes, changed);
      part[v] = MulAdd(query_i, changed, part[v]);
    }
  });
}

// sums = query . (state + bonus * key (x) value), then state = decays * state + key (x) value.
template <class Number>
inline void ScanWkv6(const ScanTask& task, Number* state, int64_t t,
                     const F32 (&value)[kScanVectors], F32 (&sums)[kScanVectors]) {
  const float* key = task.keys + t * task.key_stride;
  const float* query = task.queries + t * task.key_stride;
  const float* decays = task.decays + t * task.gate_stride;
  ScanRows(state, task.depth, sums, [&](int64_t i, Number* row, F32(&part)[kScanVectors]) {
    const F32 key_i = Broadcast(key[i]);
    const F32 query_i = Broadcast(query[i]);
    const F32 decay = Broadcast(decays[i]);
    const F32 bonus = Broadcast(task.bonus[i]);
    for (int v = 0; v < kScanVectors; ++v) {
      const F32 before = LoadState(row + v * kLanes);
      const F32 added = Mul(key_i, value[v]);
      part[v] = MulAdd(query_i, MulAdd(bonus, added, before), part[v]);
      StoreState(row + v * kLanes, MulAdd(decay, before, added));
    }
  });
}

// state = decays * state + key (x) value + writer (x) (eraser . state); sums = query . state.
template <class Number>
inline void ScanWkv7(const ScanTask& task, Number* state, int64_t t,
                     const F32 (&value)[kScanVectors], F32 (&sums)[kScanVectors]) {
  const float* key = task.keys + t * task.key_stride;
  const float* query = task.queries + t * task.key_stride;
  const float* decays = task.decays + t * task.gate_stride;
  const float* writer = task.writers + t * task.eraser_stride;
  F32 known[kScanVectors];
  ScanProduct(state, task.erasers + t * task.eraser_stride, task.depth, known);
  ScanRows(state, task.depth, sums, [&](int64_t i, Number* row, F32(&part)[kScanVectors]) {
    const F32 key_i = Broadcast(key[i]);
    const F32 query_i = Broadcast(query[i]);
    const F32 writer_i = Broadcast(writer[i]);
    const F32 decay = Broadcast(decays[i]);
    for (int v = 0; v < kScanVectors; ++v) {
      const F32 kept = Mul(decay, LoadState(row + v * kLanes));
      const F32 changed = MulAdd(writer_i, known[v], MulAdd(key_i, value[v], kept));
      StoreState(row + v * kLanes, changed);
      part[v] = MulAdd(query_i, changed, part[v]);
    }
  });
}

// Asks for what a row reads and writes. Rows lie far apart, often by a multiple of 4 KiB, so that
// no prefetcher finds the next one and few of them stay in a cache. (GCC leaves out calls of a
// function that only prefetches.)
[[gnu::always_inline]] inline void PrefetchRow(const ScanTask& task, int64_t t) {
  constexpr int64_t kLineFloats = 16;
  const bool of_keys = task.rule != ScanRule::kAdd && task.rule != ScanRule::kDelta;
  for (int64_t i = 0; i < task.depth; i += kLineFloats) {
    __builtin_prefetch(task.keys + t * task.key_stride + i);
    __builtin_prefetch(task.queries + t * task.key_stride + i);
    if (of_keys) __builtin_prefetch(task.decays + t * task.gate_stride + i);
  }
  __builtin_prefetch(task.values + t * task.value_stride);
  // Stores to the state wait for the one to the result.
  __builtin_prefetch(task.out + t * task.out_stride, 1);
  __builtin_prefetch(task.gains == nullptr ? task.decays : task.gains + t * task.gate_stride);
}

// Rows between a row and the one that it asks for.
inline constexpr int64_t kScanAhead = 4;

// The rules with a decay and a gain for the whole state.
template <class Number>
inline void ScanGated(const ScanTask& task, Number* state, int64_t t, F32 (&added)[kScanVectors],
                      F32 (&sums)[kScanVectors]) {
  const float* key = task.keys + t * task.key_stride;
  const F32 decay = Broadcast(task.decays[t * task.gate_stride]);
  const F32 gain = Broadcast(task.gains[t * task.gate_stride]);
  if (task.rule == ScanRule::kDelta) {
    F32 known[kScanVectors];
    ScanProduct(state, key, task.depth, known);
    for (int v = 0; v < kScanVectors; ++v) added[v] = NegMulAdd(decay, known[v], added[v]);
  }
  for (int v = 0; v < kScanVectors; ++v) added[v] = Mul(gain, added[v]);
  ScanUpdate(state, key, task.queries + t * task.key_stride, OneDecay{decay}, task.depth, added,
             sums);
}

// out = decays * keys of row t.
inline void DecayedKey(const ScanTask& task, int64_t t, float* out) {
  const float* key = task.keys + t * task.key_stride;
  const float* decays = task.decays + t * task.gate_stride;
  for (int64_t i = 0; i < task.depth; i += kLanes) {
    const int64_t some = task.depth - i < kLanes ? task.depth - i : kLanes;
    StorePartial(out + i, Mul(LoadPartial(decays + i, some), LoadPartial(key + i, some)), some);
  }
}

template <class Number>
inline void ScanKda(const ScanTask& task, Number* state, int64_t t, F32 (&added)[kScanVectors],
                    F32 (&sums)[kScanVectors]) {
  float decayed[kKdaDepthMax];
  DecayedKey(task, t, decayed);
  F32 known[kScanVectors];
  ScanProduct(state, decayed, task.depth, known);
  const F32 gain = Broadcast(task.gains[t * task.gate_stride]);
  for (int v = 0; v < kScanVectors; ++v) added[v] = Mul(gain, Sub(added[v], known[v]));
  ScanUpdate(state, task.keys + t * task.key_stride, task.queries + t * task.key_stride,
             KeyDecay{task.decays + t * task.gate_stride}, task.depth, added, sums);
}

// The vector that the state is asked for before row t: the delta rules subtract what it knows.
template <bool kOfKeys>
inline const float* KeyToAskFor(const ScanTask& task, int64_t t, float* decayed) {
  if (!kOfKeys) return task.keys + t * task.key_stride;
  DecayedKey(task, t, decayed);
  return decayed;
}

// ScanUpdate of row t, and sums what the new state knows of the next row's key.
template <class Decay>
inline void ScanUpdateAndAsk(const ScanTask& task, float* state, int64_t t, const Decay& decay,
                             const float* asked, F32 added, F32& sum, F32& known) {
  const float* key = task.keys + t * task.key_stride;
  const float* query = task.queries + t * task.key_stride;
  F32 sums[kScanParts] = {Zero(), Zero(), Zero(), Zero()};
  F32 knowns[kScanParts] = {Zero(), Zero(), Zero(), Zero()};
  const auto update = [&](int64_t i, F32& sum_part, F32& known_part) {
    float* row = state + i * kScanColumns;
    const F32 changed = MulAdd(Broadcast(key[i]), added, Mul(decay.Of(i), LoadState(row)));
    StoreState(row, changed);
    sum_part = MulAdd(Broadcast(query[i]), changed, sum_part);
    known_part = MulAdd(Broadcast(asked[i]), changed, known_part);
  };
  int64_t i = 0;
  for (; i + kScanParts <= task.depth; i += kScanParts) {
    for (int64_t part = 0; part < kScanParts; ++part) {
      update(i + part, sums[part], knowns[part]);
    }
  }
  for (; i < task.depth; ++i) update(i, sums[i % kScanParts], knowns[i % kScanParts]);
  sum = Add(Add(sums[0], sums[1]), Add(sums[2], sums[3]));
  known = Add(Add(knowns[0], knowns[1]), Add(knowns[2], knowns[3]));
}

// The delta rules where a row of the state is one vector: one sweep of the state for each row of
// the task, with the bits of ScanGated and ScanKda.
template <bool kOfKeys>
inline void ScanDeltaRows(const ScanTask& task, float* state) {
  float decayed[kOfKeys ? kKdaDepthMax : 1];
  F32 known[kScanVectors];
  ScanProduct(state, KeyToAskFor<kOfKeys>(task, 0, decayed), task.depth, known);
  for (int64_t t = 0; t < task.rows; ++t) {
    if (t + kScanAhead < task.rows) PrefetchRow(task, t + kScanAhead);
    const float* decays = task.decays + t * task.gate_stride;
    const F32 gain = Broadcast(task.gains[t * task.gate_stride]);
    const F32 value = LoadPartial(task.values + t * task.value_stride, task.cols);
    F32 added[kScanVectors] = {};
    added[0] = Mul(
        gain, kOfKeys ? Sub(value, known[0]) : NegMulAdd(Broadcast(decays[0]), known[0], value));
    F32 sums[kScanVectors] = {};
    const bool last = t + 1 == task.rows;
    const float* asked = last ? nullptr : KeyToAskFor<kOfKeys>(task, t + 1, decayed);
    const auto sweep = [&](const auto& decay) {
      if (last) {
        ScanUpdate(state, task.keys + t * task.key_stride, task.queries + t * task.key_stride,
                   decay, task.depth, added, sums);
      } else {
        ScanUpdateAndAsk(task, state, t, decay, asked, added[0], sums[0], known[0]);
      }
    };
    if constexpr (kOfKeys) {
      sweep(KeyDecay{decays});
    } else {
      sweep(OneDecay{Broadcast(decays[0])});
    }
    StorePartial(task.out + t * task.out_stride, sums[0], task.cols);
  }
}

template <class Number>
inline void ScanState(const ScanTask& task, Number* state) {
  if constexpr (kScanVectors == 1 && sizeof(Number) == sizeof(float)) {
    if (task.rule == ScanRule::kDelta) return ScanDeltaRows<false>(task, state);
    if (task.rule == ScanRule::kKda) return ScanDeltaRows<true>(task, state);
  }
  for (int64_t t = 0; t < task.rows; ++t) {
    if (t + kScanAhead < task.rows) PrefetchRow(task, t + kScanAhead);
    const float* value = task.values + t * task.value_stride;
    F32 added[kScanVectors];
    for (int v = 0; v < kScanVectors; ++v) {
      const int64_t left = task.cols - v * kLanes;
      const int64_t some = left < kLanes ? left : kLanes;
      added[v] = left <= 0 ? Zero() : LoadPartial(value + v * kLanes, some);
    }
    F32 sums[kScanVectors] = {};
    switch (task.rule) {
      case ScanRule::kAdd:
      case ScanRule::kDelta: ScanGated(task, state, t, added, sums); break;
      case ScanRule::kKda: ScanKda(task, state, t, added, sums); break;
      case ScanRule::kWkv6: ScanWkv6(task, state, t, added, sums); break;
      case ScanRule::kWkv7: ScanWkv7(task, state, t, added, sums); break;
    }
    float* out = task.out + t * task.out_stride;
    for (int v = 0; v < kScanVectors; ++v) {
      const int64_t left = task.cols - v * kLanes;
      if (left > 0) StorePartial(out + v * kLanes, sums[v], left < kLanes ? left : kLanes);
    }
  }
}

void Scan(const ScanTask& task) {
  if (task.state_type == KvType::kF16) {
    ScanState(task, static_cast<uint16_t*>(task.state));
  } else {
    ScanState(task, static_cast<float*>(task.state));
  }
}
