// The block arch::CrossAttention in plain loops, from the formula in its header. The encoder's
// output is kept under "encoded".
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

inline std::vector<Vector> Reference(const arch::CrossAttention& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector> keys;
  std::vector<Vector> values;
  for (const Vector& row : weights.Kept("encoded")) {
    keys.push_back(weights.Multiply(prefix + "cross_attn_k", row));
    values.push_back(weights.Multiply(prefix + "cross_attn_v", row));
  }
  std::vector<Vector> out;
  for (const Vector& row : in) {
    const Vector queries = weights.Multiply(prefix + "cross_attn_q", row);
    Vector attended(static_cast<size_t>(spec.heads * spec.v_dim));
    for (int64_t head = 0; head < spec.heads; ++head) {
      Vector shares;
      double total = 0;
      for (const Vector& key : keys) {
        double dot = 0;
        for (int64_t d = head * spec.k_dim; d < (head + 1) * spec.k_dim; ++d) {
          dot += queries[static_cast<size_t>(d)] * key[static_cast<size_t>(d)];
        }
        shares.push_back(std::exp(dot * static_cast<double>(spec.scale)));
        total += shares.back();
      }
      for (int64_t d = head * spec.v_dim; d < (head + 1) * spec.v_dim; ++d) {
        for (size_t s = 0; s < values.size(); ++s) {
          attended[static_cast<size_t>(d)] += shares[s] / total * values[s][static_cast<size_t>(d)];
        }
      }
    }
    out.push_back(weights.Multiply(prefix + "cross_attn_o", attended));
  }
  return out;
}

}  // namespace kvant::test
