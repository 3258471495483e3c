// Experts under the names of Qwen's classes, all of a layer in one tensor or each in its own.
#pragma once

#include <array>

#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

// The experts of Qwen 3.5 MoE: published folders have all experts, gate and up in one tensor; those
// that transformers writes have a tensor for each expert.
inline constexpr std::array<HfTensor, 3> kHfStackedExperts = {
    HfOfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kFirstHalf),
    HfOfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked, RowPart::kSecondHalf),
    HfOfExperts("model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight",
                Extent::kDim, Extent::kExpertFfn, ExpertForm::kStacked),
};
inline constexpr auto kHfStackedOrEachExperts = Join(
    std::array{kHfExperts[0]},
    IfPresent(Join(std::array{kHfExperts[1], kHfExperts[2], kHfExperts[3]}, kHfStackedExperts)));

}  // namespace kvant::arch
