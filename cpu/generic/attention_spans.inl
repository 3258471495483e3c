// Attention's way through a task: tiles of rows, spans of positions, units of a tile.
//
// Included inside an instruction set's namespace and target region, after attention_merge.inl and
// attention_softmax.inl. The products of queries with keys and of weights with values are those of
// the file that includes it.

// Some rows of the task, of which nothing is known yet.
void PlaceRows(QueryTile& tile, int64_t first_row, int rows) {
  const AttentionTask& task = *tile.task;
  tile.first_row = first_row;
  tile.rows = rows;
  tile.queries = rows * task.heads_per_kv;
  for (int r = 0; r < rows; ++r) {
    const int64_t position = task.positions[first_row + r];
    const int64_t oldest = FirstInWindow(task.window_kind, task.window, position);
    tile.seen[r] = {oldest, position + 1};
  }
  tile.seen_by_any = SeenByAny(tile, 0, tile.queries);
  for (int q = 0; q < tile.queries; ++q) {
    tile.max[q] = -INFINITY;
    tile.total[q] = 0.0f;
  }
  for (int64_t i = 0; i < tile.queries * tile.value_stride; i += kLanes) {
    Store(tile.sums + i, Zero());
  }
}

// Collects the parts of runs, from run `*next` on, that lie in the span, and moves `*next` over
// the first runs that end in it.
void FindSegments(QueryTile& tile, size_t* next) {
  const AttentionTask& task = *tile.task;
  const PositionRange span = {tile.span_begin, tile.span_begin + kAttentionSpan};
  const PositionRange wanted = Intersect(span, tile.seen_by_any);
  tile.segment_count = 0;
  tile.segments_for_all = true;
  tile.coded = {0, 0};
  bool all_end = true;
  for (size_t i = *next; i < task.runs.size(); ++i) {
    const KvRun& run = task.runs[i];
    if (run.first_position >= span.end) return;
    const int64_t run_end = run.first_position + run.count;
    all_end &= run_end <= span.end;
    if (all_end) *next = i + 1;
    const uint64_t rows = tile.RowsOf(run.rows);
    const PositionRange positions = Intersect(wanted, {run.first_position, run_end});
    if (rows == 0 || positions.empty()) continue;
    tile.segments[tile.segment_count++] = {positions, &run, rows};
    tile.segments_for_all &= rows == QueryTile::Bits(tile.rows);
  }
}

// Products have a kernel's ways of multiplying:
//   Begin(tile)            lays out the tile's queries
//   BeginSpan(tile)        the span's segments are known
//   Score(tile)            the unit's scores of all positions that it sees
//   Finish(tile, query)    the same for a query vector, whose scores are about to be read
//   SinkOf(...)            what takes a query vector's weights (attention_softmax.inl)
//   Weigh(tile)            the unit's weighted values
template <class Products>
void AttendTile(QueryTile& tile, Products& products) {
  const AttentionSlice& slice = tile.task->slice;
  const bool whole = slice.partials == nullptr;
  const int heads = tile.task->heads_per_kv;
  products.Begin(tile);
  size_t next_run = 0;
  const int64_t first = tile.seen_by_any.begin / kAttentionSpan;
  const int64_t end = (tile.seen_by_any.end + kAttentionSpan - 1) / kAttentionSpan;
  for (int64_t c = whole ? first : slice.begin; c < (whole ? end : slice.end); ++c) {
    tile.span_begin = c * kAttentionSpan;
    FindSegments(tile, &next_run);
    if (tile.segment_count == 0) {
      for (int q = 0; q < (whole ? 0 : tile.queries); ++q) PartialOf(tile, q)[1] = 0.0f;
      continue;
    }
    products.BeginSpan(tile);
    ForEachUnit(tile, [&] {
      products.Score(tile);
      for (int row = tile.unit_row; row < tile.unit_row + tile.unit_rows; ++row) {
        const SeenOffsets seen = FindSeen(tile, row);
        if (KvHasScales(tile.task->v_type)) ChooseCodeScales(tile, row, seen);
        for (int q = row * heads; q < (row + 1) * heads; ++q) {
          products.Finish(tile, q);
          SoftmaxQuery(tile, q, seen, products);
        }
      }
      products.Weigh(tile);
      FinishSpan(tile);
    });
  }
  if (whole) WriteResults(tile);
}

// visit(tile) for the tiles of a task.
template <class Visit>
void ForEachTile(const AttentionTask& task, const TileCut& cut, const Visit& visit) {
  QueryTile tile;
  tile.task = &task;
  tile.cut = cut;
  PlaceTile(task.scratch.data(), task.rows, task.heads_per_kv, task.k_dim, task.v_dim,
            task.key_form, tile);
  const int tile_rows = TileRowsOf(cut, task.rows, task.heads_per_kv);
  for (int64_t row = 0; row < task.rows; row += tile_rows) {
    PlaceRows(tile, row, static_cast<int>(Least(tile_rows, task.rows - row)));
    visit(tile);
  }
}
