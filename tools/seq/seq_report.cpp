#include "tools/seq/seq_report.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace kvant::tools {

Json StateJson(const std::string& name, int64_t length, std::span<const float> logits) {
  Json state = {{"sequence", name}, {"length", length}};
  if (!logits.empty()) {
    state["top"] = std::max_element(logits.begin(), logits.end()) - logits.begin();
    state["logits_xxh64"] = fmt::format("{:016x}", XXH64(logits.data(), logits.size_bytes(), 0));
  }
  return state;
}

Json TopLogitsJson(std::span<const float> logits, int64_t wanted, const Tokenizer& tokenizer) {
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  const size_t count = std::min(static_cast<size_t>(wanted), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](TokenId a, TokenId b) {
                      const float x = logits[static_cast<size_t>(a)];
                      const float y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  Json out = Json::array();
  for (size_t i = 0; i < count; ++i) {
    out.push_back({{"id", order[i]},
                   {"text", tokenizer.TokenBytes(order[i], {.special = true})},
                   {"logit", logits[static_cast<size_t>(order[i])]}});
  }
  return out;
}

Json StatsJson(const RunnerStats& stats) {
  Json out = {{"sequences", stats.sequences},
              {"snapshots", stats.snapshots},
              {"kv_bytes_used", stats.kv_bytes_used},
              {"prefix_bytes", stats.prefix_bytes},
              {"kv_bytes_peak", stats.kv_bytes_peak},
              {"kv_bytes_committed", stats.kv_bytes_committed},
              {"kv_bytes_capacity", stats.kv_bytes_capacity},
              {"kv_bytes_written", stats.kv_bytes_written},
              {"kv_bytes_copied", stats.kv_bytes_copied},
              {"kv_blocks_taken", stats.kv_blocks_taken},
              {"kv_blocks_copied", stats.kv_blocks_copied},
              {"rewinds", stats.rewinds},
              {"replays", stats.replays},
              {"tokens_processed", stats.tokens_processed},
              {"tokens_replayed", stats.tokens_replayed},
              {"tokens_scanned", stats.tokens_scanned},
              {"tokens_reused", stats.tokens_reused},
              {"passes", stats.passes},
              {"encoder_passes", stats.encoder_passes},
              {"offloaded_layers", stats.offloaded_layers},
              {"bus_bytes", stats.bytes_to_device + stats.bytes_to_host},
              {"device_calls", stats.device_calls_few + stats.device_calls_many}};
  for (const KvGroupStats& group : stats.groups) {
    out["groups"].push_back({{"layers", group.layers},
                             {"window", group.window},
                             {"bytes_per_token", group.bytes_per_token},
                             {"block_bytes", group.block_bytes},
                             {"blocks_capacity", group.blocks_capacity},
                             {"blocks_committed", group.blocks_committed},
                             {"blocks_used", group.blocks_used},
                             {"blocks_shared", group.blocks_shared},
                             {"blocks_private", group.blocks_private},
                             {"blocks_kept", group.blocks_kept},
                             {"rows", group.rows},
                             {"blocks_dropped", group.blocks_dropped}});
  }
  return out;
}

}  // namespace kvant::tools
