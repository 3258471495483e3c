#include "engine/arch/kda_mixers.h"

#include <algorithm>

#include "base/result.h"

namespace kvant::arch {

Result<std::vector<Block>> ReadKdaMixers(const Metadata& metadata, const Stack& stack,
                                         const KdaTraits& traits, std::vector<RopeSpec>& ropes) {
  constexpr const char* kKvHeads = "attention.head_count_kv";
  const size_t layers = stack.layers.size();
  KVANT_ASSIGN(const auto kv_heads, metadata.CountOrNonePerLayer(kKvHeads, layers, kHeadsMax));
  if (std::ranges::all_of(kv_heads, [](int64_t count) { return count == 0; })) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected kv heads in some layer, found none",
                     metadata.file().path(), metadata.Key(kKvHeads));
  }
  KVANT_ASSIGN(auto attentions, ReadLatentAttentions(metadata, stack, traits.rope, ropes));
  std::vector<Block> mixers;
  for (size_t i = 0; i < layers; ++i) {
    const bool predicts = i + stack.predictors.count >= layers;
    if (kv_heads[i] > 0 || predicts) {
      attentions[i].gated = traits.gated;
      mixers.emplace_back(attentions[i]);
      continue;
    }
    KVANT_ASSIGN(const Kda kda, ReadKda(metadata, traits.decays, attentions[i].shape.heads,
                                        stack.final_norm.epsilon));
    mixers.emplace_back(kda);
  }
  return mixers;
}

}  // namespace kvant::arch
