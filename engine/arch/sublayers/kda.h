// Kimi delta attention: a gated delta net with a decay for each number of a key (Kimi Linear, arXiv
// 2510.26692). All heads have queries, keys and values of the same size:
//   q, k, v = silu(conv(the matrix . x)), where conv takes each column over the last `taps` rows
//   q, k = each head of them over its length, q also over sqrt(head_dim)
//   S = exp(-rate * softplus(f . x + dt)) S, or exp(bound * sigmoid(rate * (f . x + dt))) S, for
//       each row of S, with a rate for each head
//   S = S + k (x) sigmoid(beta . x) (v - k . S)
//   out = attn_output . (rms_norm(q . S) of each head * sigmoid(g . x))
//
// Tensors: attn_q, attn_k and attn_v, or all three in attn_qkv; ssm_conv1d_q, ssm_conv1d_k and
// ssm_conv1d_v, [taps x 1 x columns]; f is ssm_f_a, or ssm_f_b . ssm_f_a with head_dim values
// between them, and so is g; ssm_beta; ssm_a, [1 x heads], which is -rate where there is no bound;
// ssm_dt.bias, [columns]; ssm_norm, [head_dim]; attn_output. It keeps the last taps - 1 rows of q,
// k and v before their convolutions, and the matrices, as its state.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

class SublayerBuilder;

struct Kda {
  int64_t taps = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  float bound = 0;  // of the decays' logarithms, below 0; 0: none
  float norm_epsilon = 0;

  int64_t columns() const { return heads * head_dim; }

  Status AddNodes(SublayerBuilder& builder) const;
};

// Says whether the decays of a family have a bound.
enum class KdaDecays : uint8_t { kFree, kBounded };

// Reads ssm.conv_kernel, kda.head_dim and, where decays have a bound, kda.gate_lower_bound.
// kNotSupported for kda.safe_gate = false there.
Result<Kda> ReadKda(const Metadata& metadata, KdaDecays decays, int64_t heads, float norm_epsilon);

}  // namespace kvant::arch
