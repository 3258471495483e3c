// Parts that the sublayers of RWKV share: vectors that files keep in two shapes, and products by
// way of a few columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/norm.h"

namespace kvant::arch {

// The group norm of what the heads give. Files do not say it.
inline constexpr float kWkvNormEpsilon = 64e-5f;

// The heads of a time mix: as many as the stream's width has vectors of wkv.head_size.
struct WkvHeads {
  int64_t heads = 0;
  int64_t head_dim = 0;
};
Result<WkvHeads> ReadWkvHeads(const Metadata& metadata, int64_t dim);

// Whether token_shift_count says that both sublayers of a layer mix tokens. kNotSupported if not.
Status CheckTokenShifts(const Metadata& metadata);

// `count` vectors of `size` values, which have one tensor, [size x count] or [size x 1 x 1 x
// count].
Result<std::vector<graph::WeightVector>> ReadMixFactors(const graph::PlanBuilder& plan,
                                                        const std::string& name, int64_t size,
                                                        int64_t count);

// A product by way of `rank` columns: out = second . activation(first . in) + bias.
struct LowRank {
  std::string_view first;  // names of the matrices, "time_mix_w1"
  std::string_view second;
  std::string_view bias;  // of the vector; empty: none
  int64_t rank = 0;
  std::optional<cpu::Activation> activation = {};
};

// The operands of one, found before what they read is made.
struct LowRankOperands {
  std::vector<graph::MatMulOperand> first;
  std::vector<graph::MatMulOperand> second;
};
Result<LowRankOperands> FindLowRank(SublayerBuilder& builder, const LowRank& low);

// Adds the product of `in` as a value of dim columns.
graph::ValueId AddLowRank(SublayerBuilder& builder, const LowRank& low, LowRankOperands operands,
                          const graph::Activations& in);

// Applies an activation to a value in place.
void AddActivation(SublayerBuilder& builder, std::string_view name, cpu::Activation activation,
                   graph::ValueId value, int64_t cols);

// The norm of each head's result, time_mix_ln.
Result<graph::Norm> ReadWkvNorm(SublayerBuilder& builder);

}  // namespace kvant::arch
