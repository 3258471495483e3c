// The scan of Mamba 1, whose steps differ from column to column.
//
// Included inside an instruction set's namespace and target region, after its simd.inl and
// recurrence.inl, and in cpu/scalar. Semantics are those of cpu/kernels/recurrence.h. A column's
// operations are the same whatever the width of vectors, so that every instruction set gives the
// same bits.

// The lanes of vector v that belong to columns.
inline int64_t LanesOf(int64_t cols, int v) {
  const int64_t left = cols - v * kLanes;
  return left < 0 ? 0 : left < kLanes ? left : kLanes;
}

template <class Number>
inline void SelectiveScanState(const SelectiveScanTask& task, Number* numbers) {
  for (int64_t t = 0; t < task.rows; ++t) {
    const float* b = task.b + t * task.bc_stride;
    const float* c = task.c + t * task.bc_stride;
    const float* x_row = task.x + t * task.x_stride;
    const float* step_row = task.steps + t * task.step_stride;
    float* out = task.out + t * task.out_stride;
    for (int v = 0; v < kScanVectors; ++v) {
      const int64_t lanes = LanesOf(task.cols, v);
      if (lanes == 0) break;
      const int64_t first = v * kLanes;
      const F32 x = LoadPartial(x_row + first, lanes);
      const F32 step = LoadPartial(step_row + first, lanes);
      const F32 added = Mul(step, x);
      F32 parts[kScanParts] = {Zero(), Zero(), Zero(), Zero()};
      for (int64_t i = 0; i < task.depth; ++i) {
        Number* state = numbers + i * kScanColumns + first;
        const F32 decay = Exp(Mul(step, Load(task.rates + i * kScanColumns + first)));
        const F32 changed = MulAdd(Broadcast(b[i]), added, Mul(decay, LoadState(state)));
        StoreState(state, changed);
        parts[i % kScanParts] = MulAdd(Broadcast(c[i]), changed, parts[i % kScanParts]);
      }
      const F32 sum = Add(Add(parts[0], parts[1]), Add(parts[2], parts[3]));
      StorePartial(out + first, MulAdd(LoadPartial(task.skips + first, lanes), x, sum), lanes);
    }
  }
}

void SelectiveScan(const SelectiveScanTask& task) {
  if (task.state_type == KvType::kF16) {
    SelectiveScanState(task, static_cast<uint16_t*>(task.state));
  } else {
    SelectiveScanState(task, static_cast<float*>(task.state));
  }
}
