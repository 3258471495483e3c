#include "engine/graph/device/device_attention.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/result.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/stores/device_space.h"
#include "engine/kv/stores/device_store.h"

namespace kvant::graph {
namespace {

// The kernels read what the CPU's conversions (engine/kv/kv_rows.cpp) take apart.
static_assert(cuda::kBlockPositions == kv::kBlockTokens);
static_assert(cuda::kKeyTilePositions == cpu::kKeyTileTokens);
static_assert(cuda::kValueTilePositions == cpu::kValueTileTokens);

// Bits of a call's progress that count rows; the others are its ticket.
constexpr int kRowBits = 20;

// Stretches that a pass of many rows is cut into at most.
constexpr int64_t kStretches = 4;
static_assert(kStretches <= cuda::kEvents);

// Graphs that are kept. A text needs one for each layer and power of two of its length.
constexpr size_t kGraphsMax = 4096;

cuda::KeyForm KeyFormOf(bool latent) {
  return latent ? cuda::KeyForm::kValueFirst : cuda::KeyForm::kStored;
}

template <class T>
cuda::Address AddressOf(const T* pointer) {
  return reinterpret_cast<cuda::Address>(pointer);
}

// Whether the rows that are stored are other rows than the ones with queries.
bool StoresOthers(const DeviceAttentionCall& call) {
  return call.stored != nullptr && call.stored != call.rows;
}

}  // namespace

bool PassContext::OnDevice(int cache_id) const {
  return device != nullptr && device->Has(cache_id);
}

size_t DevicePartialBytes(const AttentionShape& shape, int64_t rows, int64_t spans) {
  const size_t most = std::min(BitCeil(rows), static_cast<size_t>(cpu::kManyTokens - 1));
  const auto floats = static_cast<size_t>(shape.heads * (cuda::kPartialHead + shape.v_dim));
  return most * BitCeil(spans) * floats * sizeof(float);
}

Result<std::unique_ptr<DeviceAttention>> DeviceAttention::Create(
    std::shared_ptr<kv::DeviceSpace> space, const kv::Cache& cache,
    std::span<const CacheLayer> layers, std::span<std::byte> arena) {
  std::unique_ptr<DeviceAttention> made(new DeviceAttention(std::move(space), cache));
  for (const kv::GroupId group : cache.group_ids()) {
    Tables& tables = made->tables_.emplace_back();
    const kv::GroupShape& shape = cache.shape(group);
    if (shape.store != kv::DeviceStore::kName) continue;
    tables.layer = shape.layers.front();
    cuda::LayerBlocks blocks = kv::DeviceStore::Describe(shape, 0);
    blocks.key_form = KeyFormOf(layers[static_cast<size_t>(tables.layer)].latent);
    KVANT_TRY(made->space_->shared_device()->CanAttend(blocks));
  }
  KVANT_ASSIGN(made->arena_, made->space_->shared_device()->PinHost(arena));
  return made;
}

DeviceAttention::~DeviceAttention() {
  // The device may still read memory that is freed now, so wait for it.
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

// ---- Calls --------------------------------------------------------------------------------------

void DeviceAttention::Publish(const DeviceAttentionCall& call, int64_t rows) {
  progress_.store(call.ticket << kRowBits | static_cast<uint64_t>(rows), std::memory_order_release);
  progress_.notify_all();
}

void DeviceAttention::Attend(const DeviceAttentionCall& call, int64_t rows_needed) {
  uint64_t before = claimed_.load(std::memory_order_relaxed);
  // Only a member that is running claims a call, so that nobody waits for one that never comes.
  if (before != call.ticket && claimed_.compare_exchange_strong(before, call.ticket)) {
    if (call.prepare) call.prepare();
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
  if (StoresOthers(call)) {
    KVANT_TRY(Grow(device, cuda::MemoryKind::kDevice, stored_, bytes(call.stored_floats)));
  }
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
  params.blocks.key_form = KeyFormOf(shape.latent.has_value());
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
  params.heads_per_kv = static_cast<int32_t>(shape.heads / shape.cached_heads());
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
  const auto send = [&](const cuda::Memory& to, const float* rows, int64_t row_floats) {
    const size_t bytes = static_cast<size_t>(call.row_count * row_floats) * sizeof(float);
    return device.Upload(cuda::Stream::kWork, to.address(), rows, bytes);
  };
  KVANT_TRY(send(input_, call.rows, call.row_floats));
  if (call.stored == nullptr) return {};
  const bool others = StoresOthers(call);
  if (others) KVANT_TRY(send(stored_, call.stored, call.stored_floats));
  return device.Store({.blocks = params.blocks,
                       .tables = params.tables,
                       .input = others ? stored_.pointer<const float>() : params.input,
                       .input_stride = call.stored_floats,
                       .key_column = static_cast<int32_t>(call.key_column),
                       .value_column = static_cast<int32_t>(call.value_column)},
                      {call.row_count, call.shape->cached_heads(), 1});
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
  const int64_t others = StoresOthers(call) ? call.stored_floats : 0;
  device.CountTraffic({floats * static_cast<uint64_t>(call.row_floats + others),
                       floats * static_cast<uint64_t>(call.out_row_floats)});
  return device.Wait(cuda::Stream::kWork);
}

Status DeviceAttention::LaunchFew(cuda::Device& device, const DeviceAttentionCall& call,
                                  const cuda::AttentionParams& params,
                                  const cuda::AttentionPlan& plan, const GraphKey& key) {
  KVANT_TRY(SendRows(device, call, params));
  KVANT_TRY(device.Attend(
      params, plan, {key.pieces * params.query_tiles, call.shape->cached_heads(), key.spans}));
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
  const int64_t kv_heads = call.shape->cached_heads();
  const int64_t full = (device.facts().multiprocessors + kv_heads - 1) / kv_heads;
  const int64_t each = std::max(full, (blocks + kStretches - 1) / kStretches);
  int event = 0;
  int64_t sent = 0;  // rows
  for (int64_t first = 0; first < blocks; first += each, ++event) {
    const int64_t end = std::min(blocks, first + each);
    params.first_block = static_cast<int32_t>(first);
    KVANT_TRY(device.Attend(params, plan, {end - first, kv_heads, 1}));
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
