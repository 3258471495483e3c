// Describes a pass for the kernels of a device: positions, the blocks that rows are stored in,
// pieces of work, and which rows see which positions.
#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "cpu/kernels/attention.h"
#include "engine/graph/device/device_attention.h"

namespace kvant::graph {
namespace {

static_assert(sizeof(uint32_t) * 8 >= kv::kRowTile);

uint32_t RowsOf(uint64_t bits) { return static_cast<uint32_t>(bits); }

}  // namespace

cuda::PassTables DeviceAttention::Tables::OnDevice() const {
  return {memory.pointer<const int32_t>(PositionsAt()),
          memory.pointer<const int32_t>(BlocksAt()),
          memory.pointer<const cuda::Piece>(PiecesAt()),
          memory.pointer<const cuda::Hidden>(HiddenAt()),
          memory.pointer<const cuda::Entry>(EntriesAt()),
          memory.pointer<const int32_t>(SpansAt())};
}

size_t DeviceAttention::TableBytes(const PassLimits& limits) {
  // Each piece of work is of several parts, or of 32 rows of one.
  const int64_t work = std::min(limits.sequences, limits.chunk) + limits.chunk / kv::kRowTile + 1;
  Tables tables;
  tables.rows_max = BitCeil(limits.chunk);
  tables.pieces_max = tables.hidden_max = BitCeil(work);
  tables.spans_max = BitCeil(work * (limits.context / cuda::kSpanPositions + 2));
  tables.entries_max = BitCeil(work * (limits.context / kv::kBlockTokens + 1));
  return tables.Size();
}

Status DeviceAttention::SendTables(cuda::Device& device, const kv::PassView& view, Tables& tables,
                                   std::span<const int64_t> positions) {
  const int layer = static_cast<int>(tables.layer);
  size_t entries = 0;
  size_t hidden = 0;
  size_t spans = 0;
  for (const kv::PassView::Work& work : view.work(layer)) {
    hidden += view.Hidden(layer, work).size();
    spans += static_cast<size_t>(view.EndOf(layer, work) / cuda::kSpanPositions + 2);
    for (const auto& run : view.BlockRuns(layer, work)) {
      entries += static_cast<size_t>((run.count + kv::kBlockTokens - 1) / kv::kBlockTokens);
    }
  }
  const auto room = [this](size_t& most, size_t needed) {
    if (needed <= most) return;
    most = std::bit_ceil(needed);
    graphs_.clear();  // what lies behind it moves
  };
  room(tables.rows_max, positions.size());
  room(tables.pieces_max, view.work(layer).size());
  room(tables.hidden_max, std::max<size_t>(hidden, 1));
  room(tables.spans_max, spans);
  room(tables.entries_max, entries);
  KVANT_TRY(Grow(device, cuda::MemoryKind::kHost, tables.host, tables.Size()));
  KVANT_TRY(Grow(device, cuda::MemoryKind::kDevice, tables.memory, tables.Size()));
  FillPieces(view, tables, positions);
  const size_t used = tables.EntriesAt() + tables.entries * sizeof(cuda::Entry);
  return device.Upload(cuda::Stream::kWork, tables.memory.address(), tables.At<std::byte>(0), used);
}

void DeviceAttention::FillRows(const kv::PassView& view, Tables& tables,
                               std::span<const int64_t> positions) {
  const int layer = static_cast<int>(tables.layer);
  auto* rows = tables.At<int32_t>(tables.PositionsAt());
  auto* blocks = tables.At<int32_t>(tables.BlocksAt());
  for (size_t part = 0; part < view.parts().size(); ++part) {
    const kv::PartRows& of = view.parts()[part];
    const int number = static_cast<int>(part);
    const bool stores = view.Stores(layer, number);
    for (int64_t row = of.first_row; row < of.first_row + of.rows; ++row) {
      const int64_t position = positions[static_cast<size_t>(row)];
      rows[row] = static_cast<int32_t>(position);
      blocks[row] = stores ? static_cast<int32_t>(view.BlockOf(layer, number, position)) : -1;
    }
  }
}

// Work of one part that follows other such work of the part goes to the same piece.
void DeviceAttention::FillPieces(const kv::PassView& view, Tables& tables,
                                 std::span<const int64_t> positions) {
  FillRows(view, tables, positions);
  const int layer = static_cast<int>(tables.layer);
  auto* pieces = tables.At<cuda::Piece>(tables.PiecesAt());
  auto* spans = tables.At<int32_t>(tables.SpansAt());
  const auto* entries = tables.At<cuda::Entry>(tables.EntriesAt());
  tables.pieces = tables.piece_rows_max = tables.spans = tables.entries = 0;
  tables.of_one_part = true;
  size_t part = 0;           // that the work begins in
  bool of_one_part = false;  // the work before, which began in `part`
  for (const kv::PassView::Work& work : view.work(layer)) {
    const size_t part_before = part;
    while (work.first_row >= view.parts()[part].first_row + view.parts()[part].rows) ++part;
    const bool joins = of_one_part && part == part_before;
    const kv::PartRows& of = view.parts()[part];
    of_one_part = work.first_row + work.rows <= of.first_row + of.rows;
    tables.of_one_part = tables.of_one_part && of_one_part;
    if (!joins) {
      const auto hidden =
          static_cast<int32_t>(tables.pieces == 0 ? 0 : pieces[tables.pieces - 1].hidden_end);
      pieces[tables.pieces++] = {.first_row = static_cast<int32_t>(work.first_row),
                                 .rows = 0,
                                 .entries_begin = static_cast<int32_t>(tables.entries),
                                 .entries_end = static_cast<int32_t>(tables.entries),
                                 .hidden_begin = hidden,
                                 .hidden_end = hidden,
                                 .begin = INT32_MAX,
                                 .end = 0,
                                 .all_begin = 0,
                                 .all_end = INT32_MAX,
                                 .spans_at = 0};
    }
    AddWork(view, work, tables, positions);
  }
  int32_t span_count = 0;
  for (size_t i = 0; i < tables.pieces; ++i) {
    cuda::Piece& piece = pieces[i];
    piece.spans_at = span_count;
    const int32_t first = piece.begin / cuda::kSpanPositions;
    const int32_t last = (piece.end - 1) / cuda::kSpanPositions;
    int32_t entry = piece.entries_begin;
    for (int32_t span = first; span <= last; ++span) {
      while (entry < piece.entries_end && entries[entry].position < span * cuda::kSpanPositions) {
        ++entry;
      }
      spans[span_count++] = entry;
    }
    spans[span_count++] = piece.entries_end;
    tables.spans = std::max(tables.spans, static_cast<size_t>(last - first + 1));
    tables.piece_rows_max = std::max(tables.piece_rows_max, static_cast<size_t>(piece.rows));
  }
}

void DeviceAttention::AddWork(const kv::PassView& view, const kv::PassView::Work& work,
                              Tables& tables, std::span<const int64_t> positions) {
  const int layer = static_cast<int>(tables.layer);
  const kv::GroupShape& shape = view.shape(layer);
  cuda::Piece& piece = tables.At<cuda::Piece>(tables.PiecesAt())[tables.pieces - 1];
  auto* hidden = tables.At<cuda::Hidden>(tables.HiddenAt());
  auto* entries = tables.At<cuda::Entry>(tables.EntriesAt());
  const bool joins = piece.rows > 0;  // and all rows are of one sequence, and see what it has
  piece.rows += static_cast<int32_t>(work.rows);
  for (int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
    const auto position = static_cast<int32_t>(positions[static_cast<size_t>(row)]);
    const auto first = static_cast<int32_t>(shape.FirstVisible(position));
    piece.begin = std::min(piece.begin, first);
    piece.end = std::max(piece.end, position + 1);
    piece.all_begin = std::max(piece.all_begin, first);
    piece.all_end = std::min(piece.all_end, position + 1);
  }
  for (const cpu::HiddenPositions& range : view.Hidden(layer, work)) {
    const cuda::Hidden found = {static_cast<int32_t>(range.begin), static_cast<int32_t>(range.end),
                                joins ? ~0u : RowsOf(range.rows)};
    const auto same = [&](const cuda::Hidden& other) {
      return other.begin == found.begin && other.end == found.end;
    };
    if (joins && std::any_of(hidden + piece.hidden_begin, hidden + piece.hidden_end, same))
      continue;
    hidden[piece.hidden_end++] = found;
  }
  for (const auto& run : view.BlockRuns(layer, work)) {
    for (int64_t first = 0; first < run.count; first += kv::kBlockTokens) {
      const cuda::Entry entry = {
          static_cast<int32_t>(kv::Successor(run.block, first / kv::kBlockTokens)),
          static_cast<int32_t>(run.first_position + first),
          static_cast<int32_t>(std::min<int64_t>(kv::kBlockTokens, run.count - first)),
          joins ? ~0u : RowsOf(run.rows)};
      if (joins && static_cast<int32_t>(tables.entries) > piece.entries_begin &&
          entry.position <= entries[tables.entries - 1].position) {
        // The sequence has one block there; its end may have moved.
        cuda::Entry& last = entries[tables.entries - 1];
        if (entry.position == last.position) last.count = std::max(last.count, entry.count);
        continue;
      }
      entries[tables.entries++] = entry;
    }
  }
  piece.entries_end = static_cast<int32_t>(tables.entries);
  if (joins) {
    std::for_each(entries + piece.entries_begin, entries + piece.entries_end,
                  [](cuda::Entry& entry) { entry.rows = ~0u; });
    std::for_each(hidden + piece.hidden_begin, hidden + piece.hidden_end,
                  [](cuda::Hidden& range) { range.rows = ~0u; });
    return;
  }
  // Runs are joined, so the runs of several parts are not in the order of positions.
  std::stable_sort(
      entries + piece.entries_begin, entries + piece.entries_end,
      [](const cuda::Entry& a, const cuda::Entry& b) { return a.position < b.position; });
}

}  // namespace kvant::graph
