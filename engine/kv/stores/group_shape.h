// The shape that the cache layers of a group share: how long they keep positions (the policy), the
// heads, dimensions and formats of keys and values, and where blocks lie (the store).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cpu/kv_format_list.h"
#include "engine/kv/accounting/policy.h"

namespace kvant::kv {

enum class Commitment : uint8_t {
  kOnDemand,
  kAtOnce,  // all memory is touched when it is taken
};

// Bytes of one block in one layer and head: what a block takes in each lane (host_store.h).
struct SlabBytes {
  size_t keys;
  size_t values;
  size_t key_scales;  // 0 where the format has none
  size_t value_scales;
  size_t total() const { return keys + values + key_scales + value_scales; }
};

struct GroupShape {
  int64_t window = 0;  // 0 = all positions
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  std::vector<int> layers;  // cache ids, ascending
  // Keys (with their queries) and values are multiplied by cpu::KernelTable::rotate before they are
  // stored, and the results of attention are rotated back.
  bool rotate_keys = false;
  bool rotate_values = false;
  // For each layer, [kv_heads][k_dim], or nothing: subtracted from keys before they are rotated.
  // Empty: no layer has any.
  std::vector<std::vector<float>> key_offsets = {};
  std::string_view policy = {};  // a name of policy_list.h; empty: as the window says
  // A group of states ("state") has one head with k_dim words of 32 bits, the state of one layer.
  // k_type is the type that its scans keep.
  int64_t checkpoints = 0;  // most of one sequence
  std::string_view store = "host";
  int64_t source = 0;  // of groups of a source ("fixed", "encoder"): positions of the longest one

  SlabBytes slab() const;
  // Bytes of one block in all layers and heads of the group, scales included.
  uint64_t block_bytes() const;
  // Bytes of one position, in all layers and heads; 0 for states.
  uint64_t bytes_per_token() const { return holds_states() ? 0 : block_bytes() / kBlockTokens; }
  bool holds_states() const;
  bool shifts_keys() const { return !key_offsets.empty(); }
  // The offset of a cache id's kv head, [k_dim]; empty: none.
  std::span<const float> KeyOffset(int layer, int head) const;

  std::unique_ptr<const Policy> MakePolicy() const;
  // The first position that a query at `position` sees.
  int64_t FirstVisible(int64_t position) const;
};

}  // namespace kvant::kv
