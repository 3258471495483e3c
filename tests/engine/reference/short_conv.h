// The block arch::ShortConv in plain loops over the whole sequence, from the formulas in its
// header.
#pragma once

#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

// A convolution of each column over the last `taps` rows, of which `ahead` follow the present one;
// before the first row and behind the last one there are zeros.
inline std::vector<Vector> ReferenceConv(const std::string& name, size_t taps,
                                         ReferenceWeights& weights, const std::vector<Vector>& in,
                                         size_t ahead = 0) {
  const Vector& weight = weights.Get(name + ".weight");
  std::vector<Vector> out;
  for (size_t t = 0; t < in.size(); ++t) {
    Vector row(in[t].size());
    if (weights.Has(name + ".bias")) row = weights.Get(name + ".bias");
    for (size_t back = 0; back < taps && back <= t + ahead; ++back) {
      const size_t source = t + ahead - back;
      for (size_t c = 0; c < row.size() && source < in.size(); ++c) {
        row[c] += weight[c * taps + taps - 1 - back] * in[source][c];
      }
    }
    out.push_back(row);
  }
  return out;
}

inline std::vector<Vector> Reference(const arch::ShortConv& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  const size_t dim = in.front().size();
  std::vector<Vector> gates;
  std::vector<Vector> products;
  for (const Vector& row : in) {
    const Vector bcx = weights.Multiply(prefix + "shortconv.in_proj", row);
    gates.emplace_back(dim);
    products.emplace_back(dim);
    for (size_t i = 0; i < dim; ++i) {
      gates.back()[i] = bcx[dim + i];
      products.back()[i] = bcx[i] * bcx[2 * dim + i];
    }
  }
  // The middle of the taps, where the convolution reaches to both sides.
  const auto taps = static_cast<size_t>(spec.taps);
  const size_t ahead = spec.reach == arch::Reach::kBothSides ? taps / 2 : 0;
  std::vector<Vector> out =
      ReferenceConv(prefix + "shortconv.conv", taps, weights, products, ahead);
  for (size_t t = 0; t < out.size(); ++t) {
    for (size_t i = 0; i < dim; ++i) out[t][i] *= gates[t][i];
    out[t] = weights.Multiply(prefix + "shortconv.out_proj", out[t]);
  }
  return out;
}

}  // namespace kvant::test
