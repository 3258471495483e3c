// The tensors of layers that predict further tokens (arch::Predictors), as folders have them.
#pragma once

#include <array>

#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// The tensors that such a layer has beside those of a layer. Classes that call it
// mtp have names of their own for these (engine/convert/folder_tensors.h).
inline constexpr std::array<HfTensor, 6> kHfPredictor = {{
    HfMatrix("model.layers.{}.eh_proj.weight", "blk.{}.nextn.eh_proj.weight", Extent::kDim,
             Extent::kTwoDims),
    {.hf_name = "model.layers.{}.enorm.weight",
     .gguf_name = "blk.{}.nextn.enorm.weight",
     .rows = Extent::kDim},
    {.hf_name = "model.layers.{}.hnorm.weight",
     .gguf_name = "blk.{}.nextn.hnorm.weight",
     .rows = Extent::kDim},
    {.hf_name = "model.layers.{}.embed_tokens.weight",
     .gguf_name = "blk.{}.nextn.embed_tokens.weight",
     .rows = Extent::kVocab,
     .columns = Extent::kDim,
     .presence = Presence::kOptional},
    {.hf_name = "model.layers.{}.shared_head.head.weight",
     .gguf_name = "blk.{}.nextn.shared_head_head.weight",
     .rows = Extent::kVocab,
     .columns = Extent::kDim,
     .presence = Presence::kOptional},
    {.hf_name = "model.layers.{}.shared_head.norm.weight",
     .gguf_name = "blk.{}.nextn.shared_head_norm.weight",
     .rows = Extent::kDim,
     .presence = Presence::kOptional},
}};

}  // namespace kvant::arch
