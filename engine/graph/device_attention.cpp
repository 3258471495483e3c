#include "engine/graph/device_attention.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/kv/stores/device_space.h"
#include "engine/kv/stores/device_store.h"

namespace kvant::graph {
namespace {

// The kernels read what the CPU's conversions (engine/kv/kv_rows.cpp) take apart.
static_assert(cuda::kBlockPositions == kv::kBlockTokens);
static_assert(cuda::kKeyTilePositions == cpu::kKeyTileTokens);
static_assert(cuda::kValueTilePositions == cpu::kValueTileTokens);
static_assert(sizeof(uint32_t) * 8 >= kv::kRowTile);

// Bits of a call's progress that count rows; the others are its ticket.
constexpr int kRowBits = 20;

// Stretches that a pass of many rows is cut into at most.
constexpr int64_t kStretches = 4;
static_assert(kStretches <= cuda::kEvents);

// Graphs that are kept. A text needs one for each layer and power of two of its length.
constexpr size_t kGraphsMax = 4096;

size_t BitCeil(int64_t number) { return std::bit_ceil(static_cast<size_t>(number)); }

uint32_t RowsOf(uint64_t bits) { return static_cast<uint32_t>(bits); }

template <class T>
cuda::Address AddressOf(const T* pointer) {
  return reinterpret_cast<cuda::Address>(pointer);
}

}  // namespace

size_t DevicePartialBytes(const AttentionShape& shape, int64_t rows, int64_t spans) {
  const size_t most = std::min(BitCeil(rows), static_cast<size_t>(cpu::kManyTokens - 1));
  const auto floats = static_cast<size_t>(shape.heads * (cuda::kPartialHead + shape.v_dim));
  return most * BitCeil(spans) * floats * sizeof(float);
}

cuda::PassTables DeviceAttention::Tables::OnDevice() const {
  return {memory.pointer<const int32_t>(PositionsAt()),
          memory.pointer<const int32_t>(BlocksAt()),
          memory.pointer<const cuda::Piece>(PiecesAt()),
          memory.pointer<const cuda::Hidden>(HiddenAt()),
          memory.pointer<const cuda::Entry>(EntriesAt()),
          memory.pointer<const int32_t>(SpansAt())};
}

Result<std::unique_ptr<DeviceAttention>> DeviceAttention::Create(
    std::shared_ptr<kv::DeviceSpace> space, const kv::Cache& cache, std::span<std::byte> arena) {
  std::unique_ptr<DeviceAttention> made(new DeviceAttention(std::move(space), cache));
  for (const kv::GroupId group : cache.group_ids()) {
    Tables& tables = made->tables_.emplace_back();
    const kv::GroupShape& shape = cache.shape(group);
    if (shape.store != kv::DeviceStore::kName) continue;
    tables.layer = shape.layers.front();
    KVANT_TRY(made->space_->shared_device()->CanAttend(kv::DeviceStore::Describe(shape, 0)));
  }
  KVANT_ASSIGN(made->arena_, made->space_->shared_device()->PinHost(arena));
  return made;
}

DeviceAttention::~DeviceAttention() {
  // What is under way reads memory that goes now.
  space_->Do([](cuda::Device& device) { return device.Wait(cuda::Stream::kWork); });
  space_->Do([](cuda::Device& device) { return device.Wait(cuda::Stream::kResults); });
}

Status DeviceAttention::status() const { return space_->status(); }

DeviceAttention::Stats DeviceAttention::stats() const {
  Stats stats = stats_;
  stats.traffic = space_->shared_device()->traffic();
  return stats;
}

DeviceAttention::Tables& DeviceAttention::TablesOf(int cache_id) {
  return tables_[cache_.group_of_layer(cache_id)];
}

// ---- Passes -------------------------------------------------------------------------------------

void DeviceAttention::Begin(const kv::PassView& view, std::span<const int64_t> positions) {
  space_->Changed();
  for (Tables& tables : tables_) {
    if (tables.layer < 0) continue;
    space_->Do([&](cuda::Device& device) { return SendTables(device, view, tables, positions); });
  }
}

Status DeviceAttention::Grow(cuda::Device& device, cuda::MemoryKind kind, cuda::Memory& memory,
                             size_t bytes) {
  if (memory.bytes() >= bytes) return {};
  graphs_.clear();
  KVANT_TRY(device.Wait(cuda::Stream::kWork));
  KVANT_TRY(device.Wait(cuda::Stream::kResults));
  memory = cuda::Memory();
  KVANT_ASSIGN(memory, device.Allocate(kind, bytes));
  return {};
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
  // Runs are joined, so those of several parts are not in the order of positions.
  std::stable_sort(
      entries + piece.entries_begin, entries + piece.entries_end,
      [](const cuda::Entry& a, const cuda::Entry& b) { return a.position < b.position; });
}

// ---- Calls --------------------------------------------------------------------------------------

void DeviceAttention::Publish(const DeviceAttentionCall& call, int64_t rows) {
  progress_.store(call.ticket << kRowBits | static_cast<uint64_t>(rows), std::memory_order_release);
  progress_.notify_all();
}

void DeviceAttention::Attend(const DeviceAttentionCall& call, int64_t rows_needed) {
  uint64_t before = claimed_.load(std::memory_order_relaxed);
  // Only a member that is running claims a call, so that nobody waits for one that never comes.
  if (before != call.ticket && claimed_.compare_exchange_strong(before, call.ticket)) {
    space_->Do([&](cuda::Device& device) { return Drive(device, call); });
    Publish(call, call.row_count);  // after an error, too: the pass ends, and nobody may wait
    return;
  }
  const uint64_t enough = call.ticket << kRowBits | static_cast<uint64_t>(rows_needed);
  for (uint64_t now = progress_.load(std::memory_order_acquire); now < enough;
       now = progress_.load(std::memory_order_acquire)) {
    progress_.wait(now, std::memory_order_acquire);
  }
}

Status DeviceAttention::Drive(cuda::Device& device, const DeviceAttentionCall& call) {
  const Tables& tables = TablesOf(call.cache_id);
  const int64_t spans = static_cast<int64_t>(std::bit_ceil(tables.spans));
  KVANT_TRY(Buffers(device, call, spans));
  KVANT_ASSIGN(cuda::AttentionParams params, ParamsOf(device, call));
  const cuda::AttentionPlan plan = device.PlanOf(
      params.blocks, static_cast<int64_t>(tables.piece_rows_max) * params.heads_per_kv,
      !call.many           ? cuda::Device::Rows::kFew
      : tables.of_one_part ? cuda::Device::Rows::kManyOfOneSequence
                           : cuda::Device::Rows::kMany);
  params.query_tiles = static_cast<int32_t>(
      (static_cast<int64_t>(tables.piece_rows_max) * params.heads_per_kv + plan.block_queries - 1) /
      plan.block_queries);
  params.spans = static_cast<int32_t>(spans);
  if (call.many) return RunMany(device, call, params, plan);
  params.partials = partials_.pointer<float>();
  return RunFew(device, call, params, plan,
                {call.cache_id, call.shape, call.row_count, static_cast<int64_t>(tables.pieces),
                 static_cast<int64_t>(tables.piece_rows_max), spans});
}

Status DeviceAttention::Buffers(cuda::Device& device, const DeviceAttentionCall& call,
                                int64_t spans) {
  const auto bytes = [&call](int64_t floats) {
    return BitCeil(call.row_count * floats) * sizeof(float);
  };
  KVANT_TRY(Grow(device, cuda::MemoryKind::kDevice, input_, bytes(call.row_floats)));
  KVANT_TRY(Grow(device, cuda::MemoryKind::kDevice, output_, bytes(call.out_row_floats)));
  if (call.many) return {};
  return Grow(device, cuda::MemoryKind::kDevice, partials_,
              DevicePartialBytes(*call.shape, call.row_count, spans));
}

Result<const DeviceAttention::Constants*> DeviceAttention::ConstantsOf(
    cuda::Device& device, const AttentionShape& shape) {
  const auto found = constants_.find(&shape);
  if (found != constants_.end()) return &found->second;
  Constants constants;
  const auto send = [&device](const std::vector<float>& values, cuda::Memory* memory) -> Status {
    if (values.empty()) return {};
    const size_t bytes = values.size() * sizeof(float);
    KVANT_ASSIGN(*memory, device.Allocate(cuda::MemoryKind::kDevice, bytes));
    return device.Upload(cuda::Stream::kWork, memory->address(), values.data(), bytes);
  };
  KVANT_TRY(send(shape.bias_slopes, &constants.slopes));
  KVANT_TRY(send(shape.sinks, &constants.sinks));
  KVANT_TRY(send(shape.distances.values, &constants.distances));
  return &constants_.emplace(&shape, std::move(constants)).first->second;
}

Result<cuda::AttentionParams> DeviceAttention::ParamsOf(cuda::Device& device,
                                                        const DeviceAttentionCall& call) {
  const AttentionShape& shape = *call.shape;
  KVANT_ASSIGN(const Constants* constants, ConstantsOf(device, shape));
  cuda::AttentionParams params{};
  params.blocks = cache_.DeviceOf(call.cache_id)->BlocksOf(cache_.IndexInGroup(call.cache_id));
  params.tables = TablesOf(call.cache_id).OnDevice();
  params.input = input_.pointer<const float>();
  params.output = output_.pointer<float>();
  params.input_stride = call.row_floats;
  params.output_stride = call.out_row_floats;
  params.slopes = constants->slopes.pointer<const float>();
  params.sinks = constants->sinks.pointer<const float>();
  if (!shape.distances.values.empty()) {
    params.distances = constants->distances.pointer<const float>() + cpu::kDistancePadding;
    params.distance_least = static_cast<int32_t>(shape.distances.least);
    params.distance_count = static_cast<int32_t>(shape.distances.count);
    params.distance_stride =
        static_cast<int32_t>(shape.distances.count + 2 * cpu::kDistancePadding);
  }
  params.heads_per_kv = static_cast<int32_t>(shape.HeadsPerKv());
  params.scale = call.scale;
  params.score_cap = shape.score_cap;
  params.window = static_cast<int32_t>(shape.window);
  params.window_kind = shape.window_kind == cpu::WindowKind::kSections ? cuda::Window::kSections
                                                                       : cuda::Window::kSliding;
  return params;
}

// The rows to the device, and their keys and values into the cache.
Status DeviceAttention::SendRows(cuda::Device& device, const DeviceAttentionCall& call,
                                 const cuda::AttentionParams& params) {
  const size_t bytes = static_cast<size_t>(call.row_count * call.row_floats) * sizeof(float);
  KVANT_TRY(device.Upload(cuda::Stream::kWork, input_.address(), call.rows, bytes));
  if (!call.stores) return {};
  return device.Store({.blocks = params.blocks,
                       .tables = params.tables,
                       .input = params.input,
                       .input_stride = params.input_stride,
                       .key_column = static_cast<int32_t>(call.shape->key_column()),
                       .value_column = static_cast<int32_t>(call.shape->value_column())},
                      {call.row_count, call.shape->kv_heads, 1});
}

Status DeviceAttention::RunFew(cuda::Device& device, const DeviceAttentionCall& call,
                               const cuda::AttentionParams& params, const cuda::AttentionPlan& plan,
                               const GraphKey& key) {
  if (graphs_.size() >= kGraphsMax) graphs_.clear();
  const auto [found, is_new] = graphs_.try_emplace(key);
  cuda::Graph& graph = found->second;
  if (is_new) {  // a shape that never comes again is not worth a recording
    ++stats_.plain_calls;
    KVANT_TRY(LaunchFew(device, call, params, plan, key));
    return device.Wait(cuda::Stream::kWork);
  }
  if (!graph) {
    KVANT_TRY(device.BeginRecording());
    const Status launched = LaunchFew(device, call, params, plan, key);
    auto recorded = device.EndRecording();
    if (!launched.ok()) return launched;
    KVANT_ASSIGN(graph, std::move(recorded));
    ++stats_.recordings;
  } else {
    ++stats_.replays;
  }
  KVANT_TRY(device.Run(graph));
  const auto floats = static_cast<uint64_t>(call.row_count) * sizeof(float);
  device.CountTraffic({floats * static_cast<uint64_t>(call.row_floats),
                       floats * static_cast<uint64_t>(call.out_row_floats)});
  return device.Wait(cuda::Stream::kWork);
}

Status DeviceAttention::LaunchFew(cuda::Device& device, const DeviceAttentionCall& call,
                                  const cuda::AttentionParams& params,
                                  const cuda::AttentionPlan& plan, const GraphKey& key) {
  KVANT_TRY(SendRows(device, call, params));
  KVANT_TRY(device.Attend(params, plan,
                          {key.pieces * params.query_tiles, call.shape->kv_heads, key.spans}));
  KVANT_TRY(device.Merge({.tables = params.tables,
                          .partials = params.partials,
                          .output = params.output,
                          .output_stride = params.output_stride,
                          .sinks = params.sinks,
                          .pieces = static_cast<int32_t>(key.pieces),
                          .spans = params.spans,
                          .v_dim = params.blocks.v_dim,
                          .window = params.window,
                          .window_kind = params.window_kind},
                         {call.row_count, call.shape->heads,
                          (params.blocks.v_dim + cuda::kMergedDims - 1) / cuda::kMergedDims}));
  return device.Download(cuda::Stream::kWork, call.out, output_.address(),
                         static_cast<size_t>(call.row_count * call.out_row_floats) * sizeof(float));
}

int64_t DeviceAttention::RowsBefore(Tables& tables, int64_t block, const cuda::AttentionPlan& plan,
                                    const cuda::AttentionParams& params) const {
  const auto piece_number = static_cast<size_t>(block / params.query_tiles);
  const auto* pieces = tables.At<cuda::Piece>(tables.PiecesAt());
  if (piece_number == tables.pieces) {
    const cuda::Piece& last = pieces[tables.pieces - 1];
    return last.first_row + last.rows;
  }
  const cuda::Piece& piece = pieces[piece_number];
  const int64_t queries = block % params.query_tiles * plan.block_queries;
  return piece.first_row + std::min<int64_t>(queries / params.heads_per_kv, piece.rows);
}

Status DeviceAttention::RunMany(cuda::Device& device, const DeviceAttentionCall& call,
                                cuda::AttentionParams params, const cuda::AttentionPlan& plan) {
  ++stats_.long_calls;
  Tables& tables = TablesOf(call.cache_id);
  KVANT_TRY(SendRows(device, call, params));
  const int64_t blocks = static_cast<int64_t>(tables.pieces) * params.query_tiles;
  const int64_t full =
      (device.facts().multiprocessors + call.shape->kv_heads - 1) / call.shape->kv_heads;
  const int64_t each = std::max(full, (blocks + kStretches - 1) / kStretches);
  int event = 0;
  int64_t sent = 0;  // rows
  for (int64_t first = 0; first < blocks; first += each, ++event) {
    const int64_t end = std::min(blocks, first + each);
    params.first_block = static_cast<int32_t>(first);
    KVANT_TRY(device.Attend(params, plan, {end - first, call.shape->kv_heads, 1}));
    // The results go to the host while the next stretch is computed.
    KVANT_TRY(device.Record(cuda::Stream::kWork, event));
    KVANT_TRY(device.Follow(cuda::Stream::kResults, event));
    const int64_t rows = RowsBefore(tables, end, plan, params);
    const int64_t offset = sent * call.out_row_floats;
    KVANT_TRY(device.Download(
        cuda::Stream::kResults, call.out + offset, AddressOf(params.output + offset),
        static_cast<size_t>((rows - sent) * call.out_row_floats) * sizeof(float)));
    KVANT_TRY(device.Record(cuda::Stream::kResults, event));
    sent = rows;
  }
  event = 0;
  for (int64_t first = 0; first < blocks; first += each, ++event) {
    KVANT_TRY(device.Wait(event));
    Publish(call, RowsBefore(tables, std::min(blocks, first + each), plan, params));
  }
  return {};
}

}  // namespace kvant::graph
