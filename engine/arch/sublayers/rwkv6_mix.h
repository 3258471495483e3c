// The time mix of RWKV 6 (Peng et al. 2024, arXiv 2404.05892): a recurrence whose state is a matrix
// for each head. With x' the row before x and d = x' - x:
//   m = w2 of each mix . tanh(w1 . (x + lerp_x * d))
//   x_i = x + (lerp_i + m_i) * d, for the mixes w, k, v, r and g
//   r, k, v, g = receptance . x_r, key . x_k, value . x_v, gate . x_g
//   w = exp(-exp(decay + decay_w2 . tanh(decay_w1 . x_w)))
//   y = r . (S + first * k (x) v),  S = diag(w) S + k (x) v
//   out = output . (group_norm(y) * silu(g))
//
// Tensors, each time_mix_: lerp_x, [dim]; lerp_fused, [dim x 5], or lerp_w, lerp_k, lerp_v, lerp_r
// and lerp_g; w1, [dim x 5 ranks], w2, [rank x dim x 5]; decay, decay_w1, decay_w2; first,
// [head_dim x heads]; receptance, key, value, gate, output; ln. Its state is the last x and the
// matrices.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

class SublayerBuilder;

struct Rwkv6Mix {
  int64_t heads = 0;
  int64_t head_dim = 0;
  // Columns of the products in two steps.
  int64_t mix_rank = 0;
  int64_t decay_rank = 0;

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads wkv.head_size, time_mix_extra_dim and time_decay_extra_dim.
Result<Rwkv6Mix> ReadRwkv6Mix(const Metadata& metadata, int64_t dim);

}  // namespace kvant::arch
