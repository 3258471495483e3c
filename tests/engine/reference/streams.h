// The blocks arch::PredictStreams, arch::CorrectStreams and arch::Laurel in plain loops, and what a
// stack makes of its streams, from the formulas in their headers. A block gives the difference that
// it makes to the stream of the layers; the others are kept with the weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

inline double RootMeanSquare(const double* x, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += x[i] * x[i];
  return std::sqrt(std::max(sum / static_cast<double>(count), 1e-5));
}

// The products of one of the matrices of a tensor.
inline Vector MultiplyPart(const Vector& matrices, size_t index, const double* in, size_t dim) {
  Vector out(dim);
  const double* matrix = matrices.data() + index * dim * dim;
  for (size_t r = 0; r < dim; ++r) {
    for (size_t c = 0; c < dim; ++c) out[r] += matrix[r * dim + c] * in[c];
  }
  return out;
}

// Scales a vector to a length and appends it.
inline void AppendAsLong(double length, const Vector& product, Vector& out) {
  const double own = RootMeanSquare(product.data(), product.size());
  for (const double value : product) out.push_back(value * length / own);
}

inline void ReferenceBeginStreams(const arch::Streams& spec, const std::vector<Vector>& stream,
                                  ReferenceWeights& weights) {
  std::vector<Vector>& kept = weights.Kept("streams");
  kept.clear();
  const Vector& matrices = weights.Get("altup_proj.weight");
  for (const Vector& x : stream) {
    Vector& all = kept.emplace_back(x);
    const double length = RootMeanSquare(x.data(), x.size());
    for (size_t i = 1; i < static_cast<size_t>(spec.shape.count); ++i) {
      AppendAsLong(length, MultiplyPart(matrices, i - 1, x.data(), x.size()), all);
    }
  }
}

inline void ReferenceEndStreams(const arch::Streams& spec, std::vector<Vector>& stream,
                                ReferenceWeights& weights) {
  const Vector& matrices = weights.Get("altup_unembd_proj.weight");
  const auto count = static_cast<size_t>(spec.shape.count);
  for (size_t t = 0; t < stream.size(); ++t) {
    const Vector& all = weights.Kept("streams")[t];
    const size_t dim = stream[t].size();
    Vector parts;
    for (size_t i = 1; i < count; ++i) {
      AppendAsLong(RootMeanSquare(all.data(), dim),
                   MultiplyPart(matrices, i - 1, all.data() + i * dim, dim), parts);
    }
    for (size_t d = 0; d < dim; ++d) {
      double sum = all[d];
      for (size_t i = 1; i < count; ++i) sum += parts[(i - 1) * dim + d];
      stream[t][d] = sum / static_cast<double>(count);
    }
  }
}

inline void AddToOtherStreams(const Vector& added, Vector& all) {
  for (size_t i = added.size(); i < all.size(); ++i) all[i] += added[i % added.size()];
}

// The coefficients of a row, by the router's tensors.
inline Vector StreamCoefs(const arch::Norm& norm, const std::string& coefs,
                          const std::string& prefix, ReferenceWeights& weights, const Vector& in) {
  Vector normed = weights.Norm(prefix, norm, in);
  for (double& value : normed) value /= static_cast<double>(in.size());
  Vector turned = weights.Multiply(prefix + "altup_router", normed);
  for (double& value : turned) value = std::tanh(value);
  const Vector& matrix = weights.Get(prefix + coefs + ".weight");
  Vector out(matrix.size() / turned.size());
  for (size_t r = 0; r < out.size(); ++r) {
    for (size_t c = 0; c < turned.size(); ++c) out[r] += matrix[r * turned.size() + c] * turned[c];
  }
  return out;
}

inline std::vector<Vector> Reference(const arch::PredictStreams& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector> out;
  for (size_t t = 0; t < in.size(); ++t) {
    Vector& all = weights.Kept("streams")[t];
    const size_t dim = in[t].size();
    const size_t count = all.size() / dim;
    const Vector first(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(dim));
    const Vector coefs =
        StreamCoefs(spec.router_norm, "altup_predict_coef", prefix, weights, first);
    const Vector before = all;
    for (size_t j = 0; j < count; ++j) {
      for (size_t i = 0; i < count; ++i) {
        for (size_t d = 0; d < dim; ++d) {
          all[j * dim + d] += coefs[j * count + i] * before[i * dim + d];
        }
      }
    }
    Vector& difference = out.emplace_back();
    for (size_t d = 0; d < dim; ++d) difference.push_back(all[d] - in[t][d]);
  }
  return out;
}

inline std::vector<Vector> Reference(const arch::CorrectStreams& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector> out;
  const std::string scale = prefix + "altup_correct_scale.weight";
  for (size_t t = 0; t < in.size(); ++t) {
    Vector& all = weights.Kept("streams")[t];
    const size_t dim = in[t].size();
    const Vector coefs =
        StreamCoefs(spec.router_norm, "altup_correct_coef", prefix, weights, in[t]);
    const Vector before = all;
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] += (1 + coefs[i / dim]) * (in[t][i % dim] - before[i % dim]);
    }
    Vector& difference = out.emplace_back();
    for (size_t d = 0; d < dim; ++d) {
      difference.push_back(all[d] * (weights.Has(scale) ? weights.Get(scale)[d] : 1) - in[t][d]);
    }
  }
  return out;
}

inline std::vector<Vector> Reference(const arch::Laurel& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector> out;
  for (size_t t = 0; t < in.size(); ++t) {
    const Vector& all = weights.Kept("streams")[t];
    const Vector first(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(in[t].size()));
    const Vector normed = weights.Norm(prefix, spec.before, first);
    const Vector inner = weights.Multiply(prefix + "laurel_l", normed);
    const Vector product =
        weights.Norm(prefix, spec.after, weights.Multiply(prefix + "laurel_r", inner));
    Vector& difference = out.emplace_back();
    for (size_t d = 0; d < in[t].size(); ++d) {
      difference.push_back((in[t][d] + normed[d] + product[d]) / std::sqrt(2.0) - in[t][d]);
    }
  }
  return out;
}

}  // namespace kvant::test
