// Sizes and policy of a group.
#include "engine/kv/stores/group_shape.h"

#include <algorithm>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/policies/policy_list.h"

namespace kvant::kv {
namespace {

// States of different blocks share no cache line.
constexpr size_t kStateAlignment = 64;

}  // namespace

bool GroupShape::holds_states() const { return policy == State::kName; }

SlabBytes GroupShape::slab() const {
  if (holds_states()) {
    return {RoundUp(static_cast<size_t>(k_dim) * sizeof(float), kStateAlignment), 0, 0, 0};
  }
  return {cpu::KeyTileOffset(k_type, k_dim, kBlockTokens),
          cpu::ValueTileOffset(v_type, v_dim, kBlockTokens),
          kBlockTokens * cpu::KvScaleBytes(k_type, k_dim),
          kBlockTokens * cpu::KvScaleBytes(v_type, v_dim)};
}

uint64_t GroupShape::block_bytes() const {
  return slab().total() * static_cast<uint64_t>(kv_heads) * layers.size();
}

std::unique_ptr<const Policy> GroupShape::MakePolicy() const {
  const int64_t number = holds_states() ? checkpoints : source > 0 ? source : window;
  std::unique_ptr<const Policy> made = kv::MakePolicy(policy, number);
  KVANT_CHECK(made != nullptr);
  return made;
}

std::span<const float> GroupShape::KeyOffset(int layer, int head) const {
  if (key_offsets.empty()) return {};
  const auto at = std::ranges::lower_bound(layers, layer) - layers.begin();
  const std::vector<float>& offset = key_offsets[static_cast<size_t>(at)];
  if (offset.empty()) return {};
  const auto dim = static_cast<size_t>(k_dim);
  return std::span(offset).subspan(static_cast<size_t>(head) * dim, dim);
}

int64_t GroupShape::FirstVisible(int64_t position) const {
  return MakePolicy()->FirstVisible(position);
}

}  // namespace kvant::kv
