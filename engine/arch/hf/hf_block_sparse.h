// The tensors of experts in folders whose layers call them "block_sparse_moe".
#pragma once

#include <array>

#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {

inline constexpr std::array<HfTensor, 1> kHfBlockSparseRouter = {HfOfExperts(
    "model.layers.{}.block_sparse_moe.gate.weight", kRouterName, Extent::kExperts, Extent::kDim)};

inline constexpr std::array<HfTensor, 3> kHfBlockSparseExperts = {
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w1.weight",
                "blk.{}.ffn_gate_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w3.weight",
                "blk.{}.ffn_up_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w2.weight",
                "blk.{}.ffn_down_exps.weight", Extent::kDim, Extent::kExpertFfn, ExpertForm::kEach),
};

inline constexpr std::array<HfTensor, 3> kHfBlockSparseSharedExpert = {
    HfOfExperts("model.layers.{}.block_sparse_moe.shared_experts.gate_proj.weight",
                "blk.{}.ffn_gate_shexp.weight", Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.block_sparse_moe.shared_experts.up_proj.weight",
                "blk.{}.ffn_up_shexp.weight", Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.block_sparse_moe.shared_experts.down_proj.weight",
                "blk.{}.ffn_down_shexp.weight", Extent::kDim, Extent::kSharedFfn),
};

}  // namespace kvant::arch
