// Collects a runner's counters, and writes the log of the KV cache.
#include "engine/run/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/run/engine.h"

namespace kvant {
namespace {

void LogLayer(const Runner::LogSink& log, std::string_view prefix, int layer,
              const kv::GroupShape& shape, int64_t batch, int64_t positions) {
  if (shape.holds_states()) {
    log(fmt::format("{}.{}.state shape=[{},{}]", prefix, layer, batch, shape.k_dim));
    return;
  }
  for (const bool key : {true, false}) {
    if (!key && shape.v_dim == 0) continue;  // of an indexer
    log(fmt::format("{}.{}.{} shape=[{},{},{},{}]", prefix, layer, key ? "key" : "value", batch,
                    shape.kv_heads, positions, key ? shape.k_dim : shape.v_dim));
  }
}

// How many blocks of a group are held once, by a sequence, and by none; and the positions held.
void CountBlocks(const run::Engine& engine, kv::GroupId group, KvGroupStats& out) {
  const kv::Cache& cache = *engine.core->cache;
  const kv::GroupShape& shape = cache.shape(group);
  out.layers = static_cast<int>(shape.layers.size());
  out.window = shape.window;
  out.bytes_per_token = shape.bytes_per_token();
  std::vector<bool> held(static_cast<size_t>(out.blocks_capacity), false);
  for (const auto& state : engine.sequences->alive()) {
    if (state == nullptr) continue;
    const kv::BlockTable& table = state->kv.tables[group];
    for (const kv::TableEntry& entry : table.entries) {
      const int64_t first = std::max(entry.number * kv::kBlockTokens, table.first_position);
      const int64_t end = std::min((entry.number + 1) * kv::kBlockTokens, table.length);
      out.rows += shape.holds_states() ? 0 : end - first;
      if (held[static_cast<size_t>(entry.id)]) continue;
      held[static_cast<size_t>(entry.id)] = true;
      out.blocks_private += cache.references(group, entry.id) == 1 ? 1 : 0;
    }
  }
  out.blocks_kept = out.blocks_used - std::count(held.begin(), held.end(), true);
}

}  // namespace

void Runner::SetKvLog(LogSink sink) {
  run::Core& core = *engine_->core;
  core.log = std::move(sink);
  if (!core.cache.has_value()) return;
  core.cache->SetLog(core.log);
  if (!core.log) return;
  for (int layer = 0; layer < std::ssize(core.model->plan().cache_layers()); ++layer) {
    LogLayer(core.log, "Adding KV cache input: past_key_values", layer,
             core.cache->shape(core.cache->group_of_layer(layer)), core.options.sequences, 0);
  }
}

void run::LogUpdate(const Core& core, const Sequences& sequences,
                    std::span<const StepInput> inputs) {
  if (!core.log || !core.cache.has_value()) return;
  const auto kv_of = [&](size_t i) -> const kv::Sequence& {
    return sequences.Find(inputs[i].sequence)->kv;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    int64_t batch = 0;
    bool first = true;
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (kv_of(j).length != kv_of(i).length) continue;
      if (j < i) first = false;
      ++batch;
    }
    if (!first) continue;
    for (int layer = 0; layer < std::ssize(core.model->plan().cache_layers()); ++layer) {
      const kv::GroupId group = core.cache->group_of_layer(layer);
      const kv::BlockTable& table = kv_of(i).tables[group];
      LogLayer(core.log, "KV cache update: present", layer, core.cache->shape(group), batch,
               table.length - table.first_position);
    }
  }
}

// ---- Counters -----------------------------------------------------------------------------------

int64_t Runner::prefix_block() const {
  return options().prefix_cache && engine_->core->cache.has_value() ? kv::kBlockTokens : 0;
}

BlockCounts Runner::block_counts() const {
  const run::Core& core = *engine_->core;
  if (!core.cache.has_value()) return {};
  const kv::BlockTotals totals = core.cache->block_totals();
  return {.used = totals.used, .shared = totals.shared, .free = totals.free};
}

RunnerStats Runner::stats() const {
  const run::Core& core = *engine_->core;
  RunnerStats stats = core.counters;
  stats.sequences = engine_->sequences->count();
  stats.snapshots = engine_->sequences->snapshots();
  stats.prefix_bytes = engine_->sequences->prefix_bytes();
  if (!core.cache.has_value()) return stats;
  const graph::DeviceAttention::Stats device = engine_->executor->device_stats();
  stats.bytes_to_device = device.traffic.up;
  stats.bytes_to_host = device.traffic.down;
  stats.device_calls_few = device.plain_calls + device.recordings + device.replays;
  stats.device_calls_replayed = device.replays;
  stats.device_calls_many = device.long_calls;
  for (int layer = 0; layer < std::ssize(core.model->plan().cache_layers()); ++layer) {
    stats.offloaded_layers += core.cache->DeviceOf(layer) != nullptr ? 1 : 0;
  }
  const kv::CacheStats cache = core.cache->stats();
  stats.kv_bytes_used = cache.bytes_used;
  stats.kv_bytes_peak = cache.bytes_peak;
  stats.kv_bytes_written = cache.bytes_written;
  stats.kv_bytes_copied = cache.bytes_copied;
  stats.kv_blocks_taken = cache.blocks_taken;
  stats.kv_blocks_copied = cache.blocks_copied;
  for (const kv::GroupId group : core.cache->group_ids()) {
    const kv::CacheStats::Group& counted = cache.groups[group];
    KvGroupStats& out = stats.groups.emplace_back();
    out.block_bytes = counted.block_bytes;
    out.blocks_capacity = counted.capacity;
    out.blocks_committed = counted.committed;
    out.blocks_used = counted.used;
    out.blocks_shared = counted.shared;
    out.blocks_dropped = counted.dropped;
    CountBlocks(*engine_, group, out);
    stats.kv_bytes_committed += static_cast<uint64_t>(counted.committed) * counted.block_bytes;
    stats.kv_bytes_capacity += static_cast<uint64_t>(counted.capacity) * counted.block_bytes;
  }
  return stats;
}

}  // namespace kvant
