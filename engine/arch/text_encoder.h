// Functions that families of embedding models share: an encoder of one stack, whose positions see
// all of their text, or a window on both sides.
//
// Such a family sets ModelSpec::embedder, and no stacks. What comes behind the last layer is read
// by engine/arch/embedding_head.h.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayers/attention.h"

namespace kvant::arch {

// Reads the sizes of a model: embedding_length, context_length, the epsilon of the norms and
// block_count. The layers are empty, the embedding is token_embd, and the final norm is
// output_norm.
Result<ModelSpec> ReadTextEncoder(const Metadata& metadata, NormKind norms);

// Reads what ReadTextEncoder does, and an embedding like BERT's: with the rows of segments,
// token_types, where the file has them, and a norm, token_embd_norm. All norms subtract the mean.
Result<ModelSpec> ReadBertEncoder(const Metadata& metadata);

// The attentions of all layers of a stack (ReadAttentions), without masks. Where there is a window,
// attention.sliding_window, a position sees those that are at most half of it away.
Result<std::vector<Attention>> ReadBothSided(const Metadata& metadata, const Stack& stack);

// Attentions on both sides with rotary positions, whose tables go to `model`.
Result<std::vector<Attention>> ReadRotatedBothSided(const Metadata& metadata, ModelSpec& model);

// Fills layers whose norms stand behind the sums: attn_output_norm and layer_output_norm. There is
// no final norm then; its epsilon stays.
void FillLayersNormedAfter(Stack& stack, const std::vector<Attention>& attentions,
                           const std::vector<Block>& ffns);

}  // namespace kvant::arch
