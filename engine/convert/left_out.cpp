#include "engine/convert/left_out.h"

#include <algorithm>

namespace kvant::convert {
namespace {

// The last ones are numbers of positions and segments of BERT, and those of encoder-decoders:
// positions that are sines, and distances in an attention that has none. Families that read such
// tensors have taken them before.
constexpr std::string_view kIgnoredSuffixes[] = {".rotary_emb.inv_freq",
                                                 ".attn.bias",
                                                 ".attn.masked_bias",
                                                 ".attention.bias",
                                                 ".attention.masked_bias",
                                                 ".embed_positions.weight",
                                                 ".embed_positions.weights",
                                                 ".embed_positions._float_tensor",
                                                 "embeddings.position_ids",
                                                 "embeddings.token_type_ids",
                                                 ".EncDecAttention.relative_attention_bias.weight"};

constexpr std::string_view kOtherParts[] = {
    "vision_model.",      "vision_tower.",        "visual.",      "multi_modal_projector.",
    "audio_tower.",       "embed_vision.",        "embed_audio.", "vision_adapter.",
    "vision_projection.", "vit_large_projector.", "vit.",         "mlp_AR.",
    "patch_merge_mlp."};

}  // namespace

bool IsIgnored(std::string_view name) {
  return std::ranges::any_of(kIgnoredSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool IsOfAnotherPart(std::string_view name) {
  if (name.starts_with(kInnerModel)) name.remove_prefix(kInnerModel.size());
  return std::ranges::any_of(kOtherParts,
                             [name](std::string_view part) { return name.starts_with(part); });
}

}  // namespace kvant::convert
