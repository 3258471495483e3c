// Partial results of attention, a span's maximum (of scores times log2(e)), sum of exponentials and
// weighted values, and how they become a query vector's result: in order of position, whoever
// computed them.
//
// Included inside an instruction set's namespace and target region, after attention_tile.inl and
// before attention.inl.

// Merges a partial result of one query vector into its result so far.
void MergePartial(const QueryTile& tile, int query, float part_max, float part_total,
                  const float* part_sums) {
  if (part_total == 0.0f) return;  // nothing that this row sees
  const float max = tile.max[query];
  const float merged_max = max > part_max ? max : part_max;
  F32 factors[] = {Broadcast(max - merged_max), Broadcast(part_max - merged_max)};
  Exp2<24, false>(factors);
  const auto [old_factor, part_factor] = factors;

  const F32 total = Mul(Broadcast(part_total), part_factor);
  tile.total[query] = FirstLane(MulAdd(Broadcast(tile.total[query]), old_factor, total));
  tile.max[query] = merged_max;
  float* sums = tile.sums + query * tile.value_stride;
  for (int64_t i = 0; i < tile.value_stride; i += kLanes) {
    const F32 weighted = Mul(Load(part_sums + i), part_factor);
    Store(sums + i, MulAdd(Load(sums + i), old_factor, weighted));
  }
}

// A sink weighs like a position whose value is zero.
void MergeSink(const QueryTile& tile, int query) {
  const AttentionTask& task = *tile.task;
  if (task.sinks == nullptr) return;
  for (int64_t i = 0; i < tile.value_stride; i += kLanes) Store(tile.span_sums + i, Zero());
  const float sink = task.sinks[query % task.heads_per_kv] * kLog2E;
  MergePartial(tile, query, sink, 1.0f, tile.span_sums);
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

// Takes a query vector's span into its result, or leaves it for the merge.
void FinishSpan(const QueryTile& tile, int query) {
  const float max = tile.span_max[query - tile.unit_first];
  const float total = tile.span_total[query - tile.unit_first];
  const float* sums = tile.SpanSumsOf(query);
  if (tile.task->slice.partials == nullptr) return MergePartial(tile, query, max, total, sums);
  float* record = PartialOf(tile, query);
  record[0] = max;
  record[1] = total;
  for (int64_t i = 0; i < tile.value_stride; i += kLanes) Store(record + 16 + i, Load(sums + i));
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
