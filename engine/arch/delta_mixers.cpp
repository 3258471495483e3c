#include "engine/arch/delta_mixers.h"

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch {

Result<std::vector<Block>> ReadDeltaMixers(const Metadata& metadata, const Stack& stack,
                                           ValueHeads order, std::vector<RopeSpec>& ropes) {
  const size_t predicting = stack.predictors.count;
  const size_t layers = stack.layers.size();
  KVANT_ASSIGN(std::vector<bool> chosen, ReadAttentionInterval(metadata, layers - predicting));
  chosen.resize(layers, true);  // layers that predict further tokens have attention
  KVANT_ASSIGN(auto attentions, ReadSomeAttentions(metadata, stack, chosen));
  for (auto& attention : attentions) {
    if (!attention.has_value()) continue;
    attention->head_norms = HeadNorms::kRequired;
    attention->gated = true;
  }
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, ropes));
  KVANT_ASSIGN(const DeltaNet net, ReadDeltaNet(metadata, order, stack.final_norm.epsilon));
  return MixersOf(attentions, net);
}

}  // namespace kvant::arch
