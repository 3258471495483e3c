// Functions that decoder families share: a model of one stack, whose layers are an attention and a
// feed-forward.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

// Whether the layers of a family may be a mixture of experts.
enum class MayHaveExperts : uint8_t { kNo, kYes };

// Reads a model of one stack: its sizes, its final norm, and as many layers as block_count says,
// which are still empty. The key of the norms' epsilon follows from their kind. kNotSupported for
// experts that the family may not have.
Result<ModelSpec> ReadDecoder(const Metadata& metadata, NormKind norms = NormKind::kRms,
                              MayHaveExperts experts = MayHaveExperts::kNo);
inline Result<ModelSpec> ReadDecoder(const Metadata& metadata, MayHaveExperts experts) {
  return ReadDecoder(metadata, NormKind::kRms, experts);
}

// Scales that some families have. The keys are embedding_scale, residual_scale and logit_scale, by
// which logits are divided; the numbers count where the file has no key.
struct StreamScales {
  float embedding = 1;
  float residual = 1;
  float logit_divisor = 1;
};

// Gives them to a stack whose layers are filled.
Status ReadStreamScales(const Metadata& metadata, const StreamScales& otherwise, Stack& stack);

// The norms of a layer, by the names of their weights. An empty name: there is no such norm.
struct LayerNorms {
  std::string_view before_attention = "attn_norm";
  std::string_view after_attention = {};
  std::string_view before_ffn = "ffn_norm";
  std::string_view after_ffn = {};
};

// Norms after the sublayers and none before them.
inline constexpr LayerNorms kNormsAfter = {.before_attention = "",
                                           .after_attention = "post_attention_norm",
                                           .before_ffn = "",
                                           .after_ffn = "post_ffw_norm"};

template <class Of>
std::vector<Block> AsBlocks(const std::vector<Of>& sublayers) {
  return {sublayers.begin(), sublayers.end()};
}

// Gives each layer its attention, or else the block that `other` makes for it.
template <class Other>
std::vector<Block> MixersOf(const std::vector<std::optional<Attention>>& attentions,
                            const Other& other) {
  std::vector<Block> mixers;
  for (const std::optional<Attention>& attention : attentions) {
    mixers.push_back(attention.has_value() ? Block(*attention) : Block(other));
  }
  return mixers;
}

// Fills the layers of a stack, each with one mixer (an attention or a recurrence) and one
// feed-forward. The norms are of the kind of the final one.
void FillLayers(Stack& stack, const LayerNorms& norms, const std::vector<Block>& mixers,
                const std::vector<Block>& ffns);

template <class AnyAttention, class Ffn>
void FillLayers(Stack& stack, const LayerNorms& norms, const std::vector<AnyAttention>& attentions,
                const std::vector<Ffn>& ffns) {
  FillLayers(stack, norms, AsBlocks(attentions), AsBlocks(ffns));
}

// Fills the layers for a family with experts: the file decides whether a layer's feed-forward is a
// mixture of experts or a gated one.
Status FillLayersWithExperts(const Metadata& metadata, Stack& stack, const LayerNorms& norms,
                             const std::vector<Block>& mixers, const ExpertTraits& traits);

template <class AnyAttention>
Status FillLayersWithExperts(const Metadata& metadata, Stack& stack, const LayerNorms& norms,
                             const std::vector<AnyAttention>& attentions,
                             const ExpertTraits& traits) {
  return FillLayersWithExperts(metadata, stack, norms, AsBlocks(attentions), traits);
}

}  // namespace kvant::arch
