// What can be seen of a runner: its counters, and the log of the KV cache with the two line forms
// that other engines' users know, and events.
#include <algorithm>

#include <fmt/format.h>

#include "engine/runner_state.h"

namespace kvant {
namespace {

void LogLayer(const Runner::LogSink& log, std::string_view prefix, int layer,
              const kv::GroupShape& shape, int64_t batch, int64_t positions) {
  for (const bool key : {true, false}) {
    log(fmt::format("{}.{}.{} shape=[{},{},{},{}]", prefix, layer, key ? "key" : "value", batch,
                    shape.kv_heads, positions, key ? shape.k_dim : shape.v_dim));
  }
}

}  // namespace

void Runner::SetKvLog(LogSink sink) {
  State& state = *state_;
  state.log = std::move(sink);
  if (!state.cache.has_value()) return;
  state.cache->SetLog(state.log);
  if (!state.log) return;
  for (int layer = 0; layer < std::ssize(state.model->plan().cache_layers()); ++layer) {
    LogLayer(state.log, "Adding KV cache input: past_key_values", layer,
             state.cache->shape(state.cache->group_of_layer(layer)), state.options.sequences, 0);
  }
}

// One batch for each length among the sequences of a step.
void Runner::State::LogUpdate(std::span<const StepInput> inputs) {
  if (!cache.has_value()) return;
  const auto kv_of = [&](size_t i) -> const kv::Sequence& {
    return sequences[static_cast<size_t>(inputs[i].sequence)]->kv;
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
    for (int layer = 0; layer < std::ssize(model->plan().cache_layers()); ++layer) {
      const int group = cache->group_of_layer(layer);
      const int64_t held = kv_of(i).tables[static_cast<size_t>(group)].first_position;
      LogLayer(log, "KV cache update: present", layer, cache->shape(group), batch,
               kv_of(i).length - held);
    }
  }
}

// ---- Counters -----------------------------------------------------------------------------------

void Runner::State::CountBlocks(int group, KvGroupStats& out) const {
  const kv::GroupShape& shape = cache->shape(group);
  out.layers = static_cast<int>(shape.layers.size());
  out.window = shape.window;
  out.bytes_per_token = shape.bytes_per_token();
  std::vector<bool> held(static_cast<size_t>(out.blocks_capacity), false);
  for (const auto& slot : sequences) {
    const kv::BlockTable& table = slot->kv.tables[static_cast<size_t>(group)];
    for (const kv::TableEntry& entry : table.entries) {
      const int64_t first = std::max(entry.number * kv::kBlockTokens, table.first_position);
      out.rows += std::min((entry.number + 1) * kv::kBlockTokens, slot->kv.length) - first;
      if (held[static_cast<size_t>(entry.id)]) continue;
      held[static_cast<size_t>(entry.id)] = true;
      out.blocks_private += cache->references(group, entry.id) == 1 ? 1 : 0;
    }
  }
  out.blocks_kept = out.blocks_used - std::count(held.begin(), held.end(), true);
}

RunnerStats Runner::stats() const {
  const State& state = *state_;
  RunnerStats stats = state.stats;
  for (const auto& slot : state.sequences) stats.sequences += slot->used ? 1 : 0;
  for (const auto& slot : state.snapshots) stats.snapshots += slot->used ? 1 : 0;
  if (!state.cache.has_value()) return stats;
  const kv::CacheStats cache = state.cache->stats();
  stats.kv_bytes_used = cache.bytes_used;
  stats.kv_bytes_peak = cache.bytes_peak;
  stats.kv_bytes_written = cache.bytes_written;
  stats.kv_bytes_copied = cache.bytes_copied;
  stats.kv_blocks_taken = cache.blocks_taken;
  stats.kv_blocks_copied = cache.blocks_copied;
  for (int group = 0; group < state.cache->groups(); ++group) {
    const kv::CacheStats::Group& counted = cache.groups[static_cast<size_t>(group)];
    KvGroupStats& out = stats.groups.emplace_back();
    out.block_bytes = counted.block_bytes;
    out.blocks_capacity = counted.capacity;
    out.blocks_committed = counted.committed;
    out.blocks_used = counted.used;
    out.blocks_shared = counted.shared;
    out.blocks_dropped = counted.dropped;
    state.CountBlocks(group, out);
    stats.kv_bytes_committed += static_cast<uint64_t>(counted.committed) * counted.block_bytes;
    stats.kv_bytes_capacity += static_cast<uint64_t>(counted.capacity) * counted.block_bytes;
  }
  return stats;
}

}  // namespace kvant
