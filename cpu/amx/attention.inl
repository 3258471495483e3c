// Attention in tile products, for the rows of passes with many tokens, and wherever keys and values
// are q8. Included inside a namespace and target region, after the tile instructions.
//
// Tiles of query vectors, spans and units are those of cpu/generic/attention_spans.inl. Keys and
// values of a span are laid out as tiles once for all query vectors of a tile; then 32 query
// vectors at a time, a unit, meet all keys of the span, and their weights all values.
//
// Products of q8 codes are exact integers and give the bits of attention_q8.inl. Other scores are
// sums over k_dim, other weighted values over the positions, 32 at a time from a multiple of 32 on:
// neither the rows beside a row, nor runs and tiles, change a bit.

// clang-format off
#include "cpu/avx512vnni/simd.inl"
#include "cpu/generic/math.inl"
#include "cpu/generic/quantize_vector.inl"
#include "cpu/generic/attention_tile.inl"
#include "cpu/generic/attention_merge.inl"
#include "cpu/generic/attention_codes.inl"
#include "cpu/generic/attention_softmax.inl"
#include "cpu/generic/attention_spans.inl"
#include "cpu/amx/attention_tiles.inl"
#include "cpu/amx/attention_panels.inl"
// clang-format on

// Fewer query vectors than this, if their products are exact, are no work for tiles.
constexpr int64_t kTileQueriesMin = 16;

// A query vector's weights become lines of parts, 32 positions each.
template <int kParts>
struct PartLines {
  std::byte* lines;
  int64_t part;    // bytes between the parts of a line
  float* weights;  // where they are kept, too, by offset in the span; null: nowhere

  void operator()(int64_t offset, const F32 (&vectors)[kStepVectors]) const {
    std::byte* line = lines + offset / 32 * kLineBytes;
    PutPairs<kParts, true>(vectors[0], vectors[1], line, part);
    PutPairs<kParts, true>(vectors[2], vectors[3], line + kLineBytes, part);
    if (weights == nullptr) return;
    for (int v = 0; v < kStepVectors; ++v) Store(weights + offset + v * kLanes, vectors[v]);
  }
};

// A query vector's weights become codes, 64 a line, low and high bytes apart, in the order of
// ValueGroupOf.
struct CodeLines {
  std::byte* low;
  std::byte* high;
  const float* scales;  // by which weights become codes

  void operator()(int64_t offset, const F32 (&weights)[kStepVectors]) const {
    // The low bytes of a lane's four codes in its first 32 bits, the high ones in the third; or in
    // the second and the fourth.
    const __m512i even = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, 1, 5, 9, 13, -1, -1, -1, -1));
    const __m512i odd = _mm512_broadcast_i32x4(
        _mm_setr_epi8(-1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, 1, 5, 9, 13));
    const auto codes = [&](int v) __attribute__((always_inline)) {
      return _mm512_castps_si512(ShiftedCode(weights[v], Load(scales + offset + v * kLanes)));
    };
    const auto two = [&](int v) __attribute__((always_inline)) {
      return _mm512_or_si512(_mm512_shuffle_epi8(codes(v), even),
                             _mm512_shuffle_epi8(codes(v + 1), odd));
    };
    const __m512i first = two(0);
    const __m512i second = two(2);
    _mm512_store_si512(low + offset, _mm512_unpacklo_epi64(first, second));
    _mm512_store_si512(high + offset, _mm512_unpackhi_epi64(first, second));
  }
};
static_assert(kStepTokens == kLineBytes);

// The products of AttendTile.
struct TileProducts {
  AttentionPanels panels;
  PositionRange wanted;  // what the unit sees of the span's segments, as offsets in the span

  void Begin(QueryTile& tile) {
    VisitKvVectorFormat(tile.task->k_type,
                        [&]<class Format>(Format) { PackQueries<Format>(tile, panels); });
    std::memset(panels.zeros, 0, static_cast<size_t>(panels.value_tiles * kLineBytes));
  }

  void BeginSpan(const QueryTile& tile) {
    VisitKvVectorFormat(tile.task->k_type,
                        [&]<class Format>(Format) { PackKeys<Format>(tile, panels); });
    VisitKvVectorFormat(tile.task->v_type,
                        [&]<class Format>(Format) { PackValues<Format>(tile, panels); });
  }

  void Score(const QueryTile& tile) {
    const PositionRange segments = {tile.segments[0].positions.begin,
                                    tile.segments[tile.segment_count - 1].positions.end};
    wanted = Intersect(segments, SeenByAny(tile, tile.unit_first, tile.unit_count));
    wanted = {wanted.begin - tile.span_begin, wanted.end - tile.span_begin};
    if (wanted.empty()) return;
    VisitKvVectorFormat(tile.task->k_type, [&]<class Format>(Format) { ScoreOf<Format>(tile); });
  }

  // From sums of integers to products with scaled keys.
  void Finish(const QueryTile& tile, int query) const {
    if (wanted.empty() || !KvHasScales(tile.task->k_type)) return;
    const PositionRange tiles = StepsWanted(kKeyTileTokens);
    float* scores = tile.ScoresOf(query);
    for (int64_t i = tiles.begin * kKeyTileTokens; i < tiles.end * kKeyTileTokens; i += kLanes) {
      Store(scores + i, Mul(ToFloat(LoadInts(scores + i)), Load(panels.key_scales + i)));
    }
  }

  template <class Format>
  auto SinkOf(const QueryTile& tile, int query, PositionRange steps) const {
    ClearLines<Format>(tile, query, {0, steps.begin});
    ClearLines<Format>(tile, query, {steps.end, kAttentionSpan});
    if constexpr (Format::kHasScales) {
      return CodeLines{WeightsOf(tile, query, 0), WeightsOf(tile, query, 1), tile.code_scales};
    } else {
      return PartLines<kPartsOf<Format>>{
          WeightsOf(tile, query, 0), panels.unit_blocks * kTileLines * kWeightBytes,
          panels.left_out_count > 0 ? tile.ScoresOf(query) : nullptr};
    }
  }

  void Weigh(const QueryTile& tile) const {
    if (wanted.empty()) {
      for (int64_t i = 0; i < tile.unit_count * tile.value_stride; i += kLanes) {
        Store(tile.span_sums + i, Zero());
      }
      return;
    }
    VisitKvVectorFormat(tile.task->v_type, [&]<class Format>(Format) {
      if constexpr (Format::kHasScales) {
        WeighCodes(tile);
        ScaleQ8Sums(tile);
      } else {
        WeighOf<Format>(tile);
        for (int64_t i = 0; i < panels.left_out_count; ++i) {
          AddLeftOut<typename Format::Number>(tile, panels.left_out[i]);
        }
      }
    });
  }

 private:
  int64_t BlocksOf(const QueryTile& tile) const { return StepsOf(tile.unit_count, kTileLines); }

  // Steps [begin, end) of the span that hold what the unit sees.
  PositionRange StepsWanted(int64_t step) const {
    return {wanted.begin / step, StepsOf(wanted.end, step)};
  }

  std::byte* WeightsOf(const QueryTile& tile, int query, int part) const {
    const int64_t row = part * panels.unit_blocks * kTileLines + query - tile.unit_first;
    return panels.weights + row * kWeightBytes;
  }

  template <class Format>
  void ScoreOf(const QueryTile& tile) const {
    const int k_dim = tile.task->k_dim;
    const int64_t bytes = KeyTilesBytes<Format>(k_dim);
    const int64_t steps = StepsOf(k_dim, kStepOf<Format>);
    const int64_t unit =
        tile.unit_row / RowsOfQueries(tile.cut.unit_queries, tile.rows, tile.task->heads_per_kv);
    const PositionRange tiles = StepsWanted(kKeyTileTokens);
    const Operand queries = {panels.queries + unit * panels.unit_blocks * bytes, kLineBytes, bytes,
                             steps * kTileBytes, kTileBytes};
    const Operand keys = {panels.keys + tiles.begin * bytes, kLineBytes, bytes, steps * kTileBytes,
                          kTileBytes};
    using Products =
        std::conditional_t<Format::kHasScales, ByteProducts<true>, PartProducts<kPartsOf<Format>>>;
    MultiplyGrid<Products>(queries, BlocksOf(tile), keys, tiles.end - tiles.begin, steps,
                           reinterpret_cast<std::byte*>(tile.scores + tiles.begin * kKeyTileTokens),
                           kScoreStride * int64_t{sizeof(float)});
  }

  // Writes zeros as weights in `offsets` of the span, whole steps of the softmax, as far as the
  // unit sees something there.
  template <class Format>
  void ClearLines(const QueryTile& tile, int query, PositionRange offsets) const {
    constexpr int64_t kStep = kStepOf<Format>;
    static_assert(kStepTokens % kStep == 0);
    const PositionRange steps = StepsWanted(kStep);
    const PositionRange lines = Intersect(steps, {offsets.begin / kStep, offsets.end / kStep});
    if (lines.empty()) return;
    constexpr int kParts = Format::kHasScales ? 2 : kPartsOf<Format>;
    for (int part = 0; part < kParts; ++part) {
      std::memset(WeightsOf(tile, query, part) + lines.begin * kLineBytes, 0,
                  static_cast<size_t>((lines.end - lines.begin) * kLineBytes));
    }
  }

  // The span's values from the first step that the unit sees on.
  template <class Format>
  Operand ValuesFrom(int64_t step) const {
    const int64_t part = panels.value_tiles * kTileBytes;
    const int64_t bytes = kPartsOf<Format> * part;
    return {panels.values + step * bytes, kLineBytes, kTileBytes, part, bytes};
  }

  template <class Format>
  void WeighOf(const QueryTile& tile) const {
    const PositionRange steps = StepsWanted(32);
    const Operand weights = {WeightsOf(tile, tile.unit_first, 0) + steps.begin * kLineBytes,
                             kWeightBytes, kTileLines * kWeightBytes,
                             panels.unit_blocks * kTileLines * kWeightBytes, kLineBytes};
    MultiplyGrid<PartProducts<kPartsOf<Format>>>(
        weights, BlocksOf(tile), ValuesFrom<Format>(steps.begin), panels.value_tiles,
        steps.end - steps.begin, reinterpret_cast<std::byte*>(tile.span_sums),
        tile.value_stride * int64_t{sizeof(float)});
  }

  // Sums of integers, of low and of high bytes, for sixteen query vectors at a time.
  void WeighCodes(const QueryTile& tile) const {
    const PositionRange steps = StepsWanted(64);
    const int64_t stride = tile.value_stride;
    for (int64_t block = 0; block < BlocksOf(tile); ++block) {
      const int first = tile.unit_first + static_cast<int>(block * kTileLines);
      const Operand codes = {WeightsOf(tile, first, 0) + steps.begin * kLineBytes, kWeightBytes,
                             panels.unit_blocks * kTileLines * kWeightBytes, 0, kLineBytes};
      MultiplyGrid<ByteProducts<false>>(
          codes, 2, ValuesFrom<KvInt8>(steps.begin), panels.value_tiles, steps.end - steps.begin,
          reinterpret_cast<std::byte*>(panels.byte_sums), stride * int64_t{sizeof(int32_t)});
      float* sums = tile.span_sums + block * kTileLines * stride;
      for (int64_t i = 0; i < kTileLines * stride; i += kLanes) {
        StoreInts(sums + i, Total({LoadInts(panels.byte_sums + i),
                                   LoadInts(panels.byte_sums + kTileLines * stride + i)}));
      }
    }
  }

  // Adds a position that is left out of the tiles to the sums of the query vectors that see it.
  template <class Number>
  static void AddLeftOut(const QueryTile& tile, int64_t position) {
    const Segment* segment = tile.segments;
    while (segment->positions.end <= position) ++segment;
    const Number* value = reinterpret_cast<const Number*>(segment->run->values) +
                          (position - segment->run->first_position) * tile.task->v_dim;
    for (int q = tile.unit_first; q < tile.unit_first + tile.unit_count; ++q) {
      if (Intersect(tile.SeenBy(q), {position, position + 1}).empty()) continue;
      const F32 weight = Broadcast(tile.ScoresOf(q)[position - tile.span_begin]);
      float* sums = tile.SpanSumsOf(q);
      for (int64_t d = 0; d < tile.task->v_dim; d += kLanes) {
        const F32 part = LoadElementsPartial(value + d, Least(kLanes, tile.task->v_dim - d));
        Store(sums + d, MulAdd(weight, part, Load(sums + d)));
      }
    }
  }
};

// Whether a task's products are for tiles: a row's bits may depend on its pass alone, so rows of
// passes with few tokens come here only where all products are exact. Rows that do not all see the
// same runs belong to such passes.
bool TakesTiles(const AttentionTask& task) {
  if (task.key_form != KeyForm::kStored) return false;
  const bool exact = KvHasScales(task.k_type) && KvHasScales(task.v_type);
  if (!exact && task.count == TokenCount::kFew) return false;
  if (exact && task.rows * task.heads_per_kv < kTileQueriesMin) return false;
  return std::all_of(task.runs.begin(), task.runs.end(),
                     [](const KvRun& run) { return run.rows == ~uint64_t{0}; });
}

size_t PlaceTiles(std::byte* base, int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                  AttentionPanels& panels) {
  QueryTile tile;
  tile.cut = kTileCut;
  const size_t bytes = PlaceTile(nullptr, rows, heads_per_kv, k_dim, v_dim, KeyForm::kStored, tile);
  std::byte* after = base == nullptr ? nullptr : base + bytes;
  return bytes + PlacePanels(after, rows, heads_per_kv, k_dim, v_dim, panels);
}

size_t ScratchBytes(int64_t rows, int heads_per_kv, int k_dim, int v_dim, KeyForm key_form) {
  const size_t without =
      avx512vbmi::Kernels()->attention_scratch_bytes(rows, heads_per_kv, k_dim, v_dim, key_form);
  if (key_form != KeyForm::kStored) return without;
  AttentionPanels panels;
  return std::max(without, PlaceTiles(nullptr, rows, heads_per_kv, k_dim, v_dim, panels));
}

void Attend(const AttentionTask& task) {
  if (!TakesTiles(task)) return avx512vbmi::Kernels()->attention(task);
  TileProducts products;
  PlaceTiles(task.scratch.data(), task.rows, task.heads_per_kv, task.k_dim, task.v_dim,
             products.panels);
  Tiles::Configure(ConfigOfAttention());
  ForEachTile(task, kTileCut, [&](QueryTile& tile) { AttendTile(tile, products); });
  Tiles::Release();
}
