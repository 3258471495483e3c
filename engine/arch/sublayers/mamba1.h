// Mamba 1 (Gu and Dao 2023, arXiv 2312.00752): a recurrence with a state for each column and a step
// of its own for each:
//   x, z = ssm_in . input
//   x = silu(conv(x)), where conv takes each column over the last `taps` rows
//   dt, b, c = ssm_x . x, each after an RMS norm in some models
//   step = softplus(ssm_dt . dt + bias)
//   S[i] = exp(a[i] * step) * S[i] + b[i] * step * x,  y = sum over i of c[i] * S[i] + d * x
//   out = ssm_out . (y * silu(z))
//
// Tensors: ssm_in, ssm_conv1d [taps x inner], ssm_x, ssm_dt with its bias, ssm_a [state x inner],
// ssm_d [inner], ssm_out; ssm_dt_norm, ssm_b_norm and ssm_c_norm where norms have weights; biases
// of ssm_in, ssm_conv1d and ssm_out are optional. It keeps the last taps - 1 rows of x and the
// states.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

class SublayerBuilder;

// Norms of dt, b and c.
enum class StepNorms : uint8_t { kNone, kWithoutWeights, kWithWeights };

struct Mamba1 {
  int64_t taps = 0;
  int64_t inner = 0;      // columns of x
  int64_t state_dim = 0;  // of b and c
  int64_t rank = 0;       // of dt
  StepNorms norms = StepNorms::kNone;
  float norm_epsilon = 0;

  int64_t parameters() const { return rank + 2 * state_dim; }

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads ssm.conv_kernel, ssm.inner_size, ssm.state_size and ssm.time_step_rank. Norms without
// weights follow from ssm.dt_b_c_rms, their epsilon from ssm.dt_b_c_rms_epsilon, if there is one.
Result<Mamba1> ReadMamba1(const Metadata& metadata, float norm_epsilon);

}  // namespace kvant::arch
