// Mamba 2 (Dao and Gu 2024, arXiv 2405.21060): a recurrence whose state is a matrix for each head:
//   z, xbc, dt = ssm_in . input
//   x, b, c = silu(conv(xbc)), where conv takes each column over the last `taps` rows
//   step = softplus(dt + bias)
//   S = exp(a * step) S + b (x) step * x,  y = c . S + d * x
//   out = ssm_out . rms_norm of each group of (y * silu(z))
//
// The heads of a group share b and c. Tensors: ssm_in, ssm_conv1d [taps x columns of x, b and c],
// ssm_dt.bias, [heads], ssm_a and ssm_d, [1 x heads], ssm_norm [columns of a group x groups] where
// the model has the norm, ssm_out; biases of ssm_in, ssm_conv1d and ssm_out are optional. It keeps
// the last taps - 1 rows of xbc and the matrices as its state.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

class SublayerBuilder;

struct Mamba2 {
  int64_t taps = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t state_dim = 0;  // of b and c
  int64_t groups = 0;
  float norm_epsilon = 0;

  int64_t inner() const { return heads * head_dim; }
  int64_t conv_columns() const { return inner() + 2 * groups * state_dim; }

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads ssm.conv_kernel, ssm.time_step_rank, ssm.inner_size, ssm.state_size and ssm.group_count.
Result<Mamba2> ReadMamba2(const Metadata& metadata, float norm_epsilon);

}  // namespace kvant::arch
