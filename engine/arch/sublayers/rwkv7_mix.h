// The time mix of RWKV 7 (Peng et al. 2025, arXiv 2503.14456): a recurrence whose state is a matrix
// for each head. With x' the row before x and x_i = x + lerp_i * (x' - x):
//   r, k, v = receptance . x_r, key . x_k, value . x_v
//   w = exp(-exp(-1/2) sigmoid(w2 . tanh(w1 . x_w) + w0)),  a = sigmoid(a2 . a1 . x_a + a0)
//   g = g2 . sigmoid(g1 . x_g)
//   v = v + (v of the first layer - v) sigmoid(v2 . v1 . x_v + v0), but in the first layer
//   u = k * k_k, over its length in each head;  k = k * (1 + (a - 1) * k_a)
//   S = diag(w) S + k (x) v - (u * a) (x) (u . S),  y = r . S
//   out = output . ((group_norm(y) + (sum of r * k * r_k) v) * g)
//
// Tensors, each time_mix_: lerp_fused, [dim x 6] in the order r, w, k, v, a, g; receptance, key,
// value, output; w0 to w2, a0 to a2, v0 to v2, g1, g2; k_k, k_a, r_k, [dim]; ln. Its state is the
// last x and the matrices.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

class SublayerBuilder;

struct Rwkv7Mix {
  int64_t heads = 0;
  int64_t head_dim = 0;
  // Columns of the products in two steps.
  int64_t decay_rank = 0;
  int64_t rate_rank = 0;
  int64_t value_rank = 0;
  int64_t gate_rank = 0;
  bool first = false;  // of the stack's layers

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads wkv.head_size and attention.{decay,iclr,value_residual_mix,gate}_lora_rank.
Result<Rwkv7Mix> ReadRwkv7Mix(const Metadata& metadata, int64_t dim);

}  // namespace kvant::arch
