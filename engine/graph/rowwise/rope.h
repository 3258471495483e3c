// Rotary position embedding as data: which pairs of a head rotate, and by which angle at each
// position.
//
// Pair i of position p rotates by p * frequency[i], with
//   frequency[i] = base^(-2 i / n_rot) / (linear_factor * factors[i]).
// Sources: Su et al. 2021 (arXiv 2104.09864); linear scaling: Chen et al. 2023 (arXiv 2306.15595);
// per-pair factors: the Llama 3.1 and LongRoPE (arXiv 2402.13753) model definitions.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/rope.h"

namespace kvant::graph {

struct RopeSpec {
  cpu::RopeStyle style = cpu::RopeStyle::kInterleaved;
  int64_t n_rot = 0;  // rotated dimensions of a head, even
  float base = 10000.0f;
  float linear_factor = 1.0f;
  std::vector<float>
      factors;  // empty = 1; for contexts up to original_context where factors_long is set
  std::vector<float> factors_long;  // for longer contexts; empty = factors
  int64_t original_context = 0;
  float amplitude = 1.0f;  // multiplies cosine and sine

  // [n_rot / 2] radians per position, for a session of this context.
  std::vector<float> Frequencies(int64_t context) const;

  bool operator==(const RopeSpec&) const = default;
};

}  // namespace kvant::graph
