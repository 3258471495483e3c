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

// Stretches that a pass of many rows is cut into, and the fewest pieces of one.
constexpr int64_t kStretches = 4;
static_assert(kStretches <= cuda::kEvents);
constexpr int64_t kPiecesMin = 2;

// Graphs that are kept. A text needs one for each layer and power of two of its length.
constexpr size_t kGraphsMax = 4096;

uint32_t RowsOf(uint64_t bits) { return static_cast<uint32_t>(bits); }

template <class T>
cuda::Address AddressOf(const T* pointer) {
  return reinterpret_cast<cuda::Address>(pointer);
}

}  // namespace

cuda::PassTables DeviceAttention::Tables::OnDevice() const {
  return {memory.pointer<const int32_t>(PositionsAt()), memory.pointer<const int32_t>(BlocksAt()),
          memory.pointer<const cuda::Piece>(PiecesAt()),
          memory.pointer<const cuda::Hidden>(HiddenAt()),
          memory.pointer<const cuda::Entry>(EntriesAt())};
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
  KVANT_ASSIGN(memory, device.Allocate(kind, std::bit_ceil(bytes)));
  return {};
}

Status DeviceAttention::SendTables(cuda::Device& device, const kv::PassView& view, Tables& tables,
                                   std::span<const int64_t> positions) {
  const int layer = static_cast<int>(tables.layer);
  size_t entries = 0;
  size_t hidden = 0;
  for (const kv::PassView::Work& work : view.work(layer)) {
    hidden += view.Hidden(layer, work).size();
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
  room(tables.entries_max, entries);
  KVANT_TRY(Grow(device, cuda::MemoryKind::kHost, tables.host, tables.Size()));
  KVANT_TRY(Grow(device, cuda::MemoryKind::kDevice, tables.memory, tables.Size()));
  FillPieces(view, tables, positions);
  const size_t used = tables.EntriesAt() + entries * sizeof(cuda::Entry);
  return device.Upload(cuda::Stream::kWork, tables.memory.address(), tables.At<std::byte>(0), used);
}

void DeviceAttention::FillPieces(const kv::PassView& view, Tables& tables,
                                 std::span<const int64_t> positions) {
  const int layer = static_cast<int>(tables.layer);
  const kv::GroupShape& shape = view.shape(layer);
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
  auto* piece = tables.At<cuda::Piece>(tables.PiecesAt());
  auto* hidden = tables.At<cuda::Hidden>(tables.HiddenAt());
  auto* entry = tables.At<cuda::Entry>(tables.EntriesAt());
  int32_t hidden_count = 0;
  int32_t entry_count = 0;
  tables.pieces = tables.piece_rows_max = tables.spans = 0;
  for (const kv::PassView::Work& work : view.work(layer)) {
    *piece = {.first_row = static_cast<int32_t>(work.first_row),
              .rows = static_cast<int32_t>(work.rows),
              .entries_begin = entry_count,
              .entries_end = 0,
              .hidden_begin = hidden_count,
              .hidden_end = 0,
              .begin = INT32_MAX,
              .end = 0};
    for (int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
      const int64_t position = positions[static_cast<size_t>(row)];
      piece->begin = std::min(piece->begin, static_cast<int32_t>(shape.FirstVisible(position)));
      piece->end = std::max(piece->end, static_cast<int32_t>(position + 1));
    }
    for (const cpu::HiddenPositions& range : view.Hidden(layer, work)) {
      hidden[hidden_count++] = {static_cast<int32_t>(range.begin), static_cast<int32_t>(range.end),
                                RowsOf(range.rows)};
    }
    for (const auto& run : view.BlockRuns(layer, work)) {
      for (int64_t first = 0; first < run.count; first += kv::kBlockTokens) {
        entry[entry_count++] = {
            static_cast<int32_t>(kv::Successor(run.block, first / kv::kBlockTokens)),
            static_cast<int32_t>(run.first_position + first),
            static_cast<int32_t>(std::min<int64_t>(kv::kBlockTokens, run.count - first)),
            RowsOf(run.rows)};
      }
    }
    piece->entries_end = entry_count;
    piece->hidden_end = hidden_count;
    // Runs are joined, so those of several parts are not in the order of positions.
    std::stable_sort(
        entry + piece->entries_begin, entry + entry_count,
        [](const cuda::Entry& a, const cuda::Entry& b) { return a.position < b.position; });
    const int64_t spans =
        (piece->end - 1) / cuda::kSpanPositions - piece->begin / cuda::kSpanPositions + 1;
    tables.spans = std::max(tables.spans, static_cast<size_t>(spans));
    tables.piece_rows_max = std::max(tables.piece_rows_max, static_cast<size_t>(work.rows));
    ++tables.pieces;
    ++piece;
  }
}

// ---- Calls --------------------------------------------------------------------------------------

void DeviceAttention::Publish(const DeviceAttentionCall& call, int64_t rows) {
  progress_.store(call.ticket << kRowBits | static_cast<uint64_t>(rows), std::memory_order_release);
  progress_.notify_all();
}

void DeviceAttention::Attend(const kv::PassView& view, const DeviceAttentionCall& call,
                             int64_t rows_needed) {
  uint64_t before = claimed_.load(std::memory_order_relaxed);
  // Only a member that is running claims a call, so that nobody waits for one that never comes.
  if (before != call.ticket && claimed_.compare_exchange_strong(before, call.ticket)) {
    space_->Do([&](cuda::Device& device) { return Drive(device, view, call); });
    Publish(call, call.row_count);  // after an error, too: the pass ends, and nobody may wait
    return;
  }
  const uint64_t enough = call.ticket << kRowBits | static_cast<uint64_t>(rows_needed);
  for (uint64_t now = progress_.load(std::memory_order_acquire); now < enough;
       now = progress_.load(std::memory_order_acquire)) {
    progress_.wait(now, std::memory_order_acquire);
  }
}

Status DeviceAttention::Drive(cuda::Device& device, const kv::PassView& view,
                              const DeviceAttentionCall& call) {
  const Tables& tables = TablesOf(call.cache_id);
  const int64_t spans = static_cast<int64_t>(std::bit_ceil(tables.spans));
  KVANT_TRY(Buffers(device, call, spans));
  KVANT_ASSIGN(cuda::AttentionParams params, ParamsOf(device, call));
  params.query_tiles = static_cast<int32_t>(
      (static_cast<int64_t>(tables.piece_rows_max) * params.heads_per_kv + cuda::kTileQueries - 1) /
      cuda::kTileQueries);
  params.spans = static_cast<int32_t>(spans);
  if (call.many) return RunMany(device, view, call, params);
  params.partials = partials_.pointer<float>();
  return RunFew(device, call, params,
                {call.cache_id, call.shape, call.row_count, static_cast<int64_t>(tables.pieces),
                 params.query_tiles, spans});
}

Status DeviceAttention::Buffers(cuda::Device& device, const DeviceAttentionCall& call,
                                int64_t spans) {
  const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
  KVANT_TRY(
      Grow(device, cuda::MemoryKind::kDevice, input_, bytes(call.row_count * call.row_floats)));
  KVANT_TRY(Grow(device, cuda::MemoryKind::kDevice, output_,
                 bytes(call.row_count * call.out_row_floats)));
  if (call.many) return {};
  return Grow(
      device, cuda::MemoryKind::kDevice, partials_,
      bytes(call.row_count * call.shape->heads * spans * (cuda::kPartialHead + call.shape->v_dim)));
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
                               const cuda::AttentionParams& params, const GraphKey& key) {
  if (graphs_.size() >= kGraphsMax) graphs_.clear();
  const auto [found, is_new] = graphs_.try_emplace(key);
  cuda::Graph& graph = found->second;
  if (is_new) {  // a shape that never comes again is not worth a recording
    ++stats_.plain_calls;
    KVANT_TRY(LaunchFew(device, call, params, key));
    return device.Wait(cuda::Stream::kWork);
  }
  if (!graph) {
    KVANT_TRY(device.BeginRecording());
    const Status launched = LaunchFew(device, call, params, key);
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
                                  const cuda::AttentionParams& params, const GraphKey& key) {
  KVANT_TRY(SendRows(device, call, params));
  KVANT_TRY(device.Attend(params, {key.pieces * key.query_tiles, call.shape->kv_heads, key.spans}));
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
                         {call.row_count, call.shape->heads, 1}));
  return device.Download(cuda::Stream::kWork, call.out, output_.address(),
                         static_cast<size_t>(call.row_count * call.out_row_floats) * sizeof(float));
}

Status DeviceAttention::RunMany(cuda::Device& device, const kv::PassView& view,
                                const DeviceAttentionCall& call, cuda::AttentionParams params) {
  ++stats_.long_calls;
  const auto work = view.work(call.cache_id);
  const int64_t pieces = std::ssize(work);
  const int64_t each = std::max(kPiecesMin, (pieces + kStretches - 1) / kStretches);
  KVANT_TRY(SendRows(device, call, params));
  const auto row_of = [&](int64_t piece) {
    return piece < pieces ? work[static_cast<size_t>(piece)].first_row : call.row_count;
  };
  int event = 0;
  for (int64_t first = 0; first < pieces; first += each, ++event) {
    const int64_t end = std::min(pieces, first + each);
    params.first_piece = static_cast<int32_t>(first);
    KVANT_TRY(device.Attend(params, {(end - first) * params.query_tiles, call.shape->kv_heads, 1}));
    // The results go to the host while the next stretch is computed.
    KVANT_TRY(device.Record(cuda::Stream::kWork, event));
    KVANT_TRY(device.Follow(cuda::Stream::kResults, event));
    const int64_t offset = row_of(first) * call.out_row_floats;
    const int64_t floats = row_of(end) * call.out_row_floats - offset;
    KVANT_TRY(device.Download(cuda::Stream::kResults, call.out + offset,
                              AddressOf(params.output + offset),
                              static_cast<size_t>(floats) * sizeof(float)));
    KVANT_TRY(device.Record(cuda::Stream::kResults, event));
  }
  event = 0;
  for (int64_t first = 0; first < pieces; first += each, ++event) {
    KVANT_TRY(device.Wait(event));
    Publish(call, row_of(std::min(pieces, first + each)));
  }
  return {};
}

}  // namespace kvant::graph
