// Partial results of attention, a span's maximum (of scores times log2(e)), sum of exponentials and
// weighted values, and how they become a query vector's result: in order of position, whoever
// computed them.
//
// Included inside an instruction set's namespace and target region, after attention_tile.inl and
// before attention.inl.

// The factors of a result so far and of a partial result when they merge.
struct MergeFactors {
  F32 old;
  F32 part;

  MergeFactors(F32 max, F32 part_max, F32 merged_max) {
    F32 factors[] = {max, part_max};
    Exp2<28>({merged_max, Broadcast(1.0f)}, factors);
    old = factors[0];
    part = factors[1];
  }
};

inline void MergeSums(float* sums, const float* part_sums, int64_t count, F32 old, F32 part) {
  for (int64_t i = 0; i < count; i += kLanes) {
    Store(sums + i, MulAdd(Load(sums + i), old, Mul(Load(part_sums + i), part)));
  }
}

// Merges partial results of `count` query vectors from `first` on into their results so far: `sums`
// of each are value_stride apart. kLanes query vectors at a time share their exponentials.
void MergePartials(const QueryTile& tile, int first, int count, const float* part_max,
                   const float* part_total, const float* part_sums) {
  for (int begin = 0; begin < count; begin += kLanes) {
    const int64_t some = Least(kLanes, count - begin);
    float* max = tile.max + first + begin;
    float* total = tile.total + first + begin;
    const F32 old_max = LoadPartial(max, some);
    const F32 new_max = LoadPartial(part_max + begin, some);
    const F32 merged_max = Max(old_max, new_max);
    const MergeFactors factors(old_max, new_max, merged_max);
    alignas(64) float old[kLanes];
    alignas(64) float part[kLanes];
    alignas(64) float merged[2][kLanes];
    Store(old, factors.old);
    Store(part, factors.part);
    const F32 weighed = Mul(LoadPartial(part_total + begin, some), factors.part);
    Store(merged[0], merged_max);
    Store(merged[1], MulAdd(LoadPartial(total, some), factors.old, weighed));
    for (int i = 0; i < some; ++i) {
      if (part_total[begin + i] == 0.0f) continue;  // nothing that this row sees
      max[i] = merged[0][i];
      total[i] = merged[1][i];
      const int64_t query = first + begin + i;
      MergeSums(tile.sums + query * tile.value_stride, part_sums + (begin + i) * tile.value_stride,
                tile.value_stride, Broadcast(old[i]), Broadcast(part[i]));
    }
  }
}

// A sink weighs like a position whose value is zero.
void MergeSink(const QueryTile& tile, int query) {
  const AttentionTask& task = *tile.task;
  if (task.sinks == nullptr) return;
  for (int64_t i = 0; i < tile.value_stride; i += kLanes) Store(tile.span_sums + i, Zero());
  const float sink = task.sinks[query % task.heads_per_kv] * kLog2E;
  const float total = 1.0f;
  MergePartials(tile, query, 1, &sink, &total, tile.span_sums);
}

// The partial result of a query vector in the span at work: maximum, sum of exponentials, from 16
// on the weighted values.
inline float* PartialOf(const QueryTile& tile, int query) {
  const AttentionTask& task = *tile.task;
  const int64_t span = tile.span_begin / kAttentionSpan - task.slice.first;
  const int64_t first = span * task.rows * task.heads_per_kv;
  const int64_t record = first + tile.first_row * task.heads_per_kv + query;
  return task.slice.partials + record * AttentionPartialFloats(task.v_dim);
}

// Takes the unit's span into its results, or leaves it for the merge.
void FinishSpan(const QueryTile& tile) {
  if (tile.task->slice.partials == nullptr) {
    return MergePartials(tile, tile.unit_first, tile.unit_count, tile.span_max, tile.span_total,
                         tile.span_sums);
  }
  for (int q = 0; q < tile.unit_count; ++q) {
    float* record = PartialOf(tile, tile.unit_first + q);
    record[0] = tile.span_max[q];
    record[1] = tile.span_total[q];
    const float* sums = tile.span_sums + q * tile.value_stride;
    for (int64_t i = 0; i < tile.value_stride; i += kLanes) Store(record + 16 + i, Load(sums + i));
  }
}

void WriteResult(const QueryTile& tile, int query) {
  const AttentionTask& task = *tile.task;
  const int heads = task.heads_per_kv;
  float* out = task.out + (tile.first_row + query / heads) * task.out_row_stride +
               int64_t{query % heads} * task.v_dim;
  const float* sums = tile.sums + query * tile.value_stride;
  // A row that sees nothing gets zeros.
  const F32 total = Broadcast(tile.total[query] == 0.0f ? 1.0f : tile.total[query]);
  int64_t d = 0;
  for (; d + kLanes <= task.v_dim; d += kLanes) Store(out + d, Div(Load(sums + d), total));
  const int64_t rest = task.v_dim - d;
  if (rest > 0) StorePartial(out + d, Div(Load(sums + d), total), rest);
}

void WriteResults(const QueryTile& tile) {
  for (int q = 0; q < tile.queries; ++q) {
    MergeSink(tile, q);
    WriteResult(tile, q);
  }
}
