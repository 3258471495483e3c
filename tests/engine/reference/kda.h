// The block arch::Kda in plain loops over the whole sequence, from the formulas in its header.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/short_conv.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceKda {
 public:
  ReferenceKda(const arch::Kda& spec, const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec), prefix_(prefix), weights_(weights) {}

  std::vector<Vector> Run(const std::vector<Vector>& in) {
    const std::vector<Vector> queries = Convolved("q", in);
    const std::vector<Vector> keys = Convolved("k", in);
    const std::vector<Vector> values = Convolved("v", in);
    const auto dim = static_cast<size_t>(spec_.head_dim);
    std::vector<Vector> states(static_cast<size_t>(spec_.heads), Vector(dim * dim));
    std::vector<Vector> out;
    for (size_t t = 0; t < in.size(); ++t) {
      const Vector decays = Decays(Projected("f", in[t]));
      const Vector gates = Projected("g", in[t]);
      const Vector gains = weights_.Multiply(prefix_ + "ssm_beta", in[t]);
      Vector row;
      for (size_t head = 0; head < states.size(); ++head) {
        const Vector decay(decays.begin() + static_cast<int64_t>(head * dim),
                           decays.begin() + static_cast<int64_t>((head + 1) * dim));
        Vector query = Unit(queries[t], head);
        for (double& number : query) number /= std::sqrt(static_cast<double>(dim));
        const double* value = values[t].data() + head * dim;
        Vector result = Step(states[head], decay, query, Unit(keys[t], head), value,
                             1.0 / (1.0 + std::exp(-gains[head])));
        ReferenceWeights::NormVector(arch::NormKind::kRms, static_cast<double>(spec_.norm_epsilon),
                                     weights_.Get(prefix_ + "ssm_norm.weight").data(),
                                     result.size(), result.data());
        row.insert(row.end(), result.begin(), result.end());
      }
      for (size_t i = 0; i < row.size(); ++i) row[i] /= 1.0 + std::exp(-gates[i]);
      out.push_back(weights_.Multiply(prefix_ + "attn_output", row));
    }
    return out;
  }

 private:
  std::vector<Vector> Convolved(const std::string& part, const std::vector<Vector>& in) {
    std::vector<Vector> products;
    for (const Vector& row : in) {
      products.push_back(weights_.Multiply(prefix_ + "attn_" + part, row));
    }
    std::vector<Vector> rows = ReferenceConv(prefix_ + "ssm_conv1d_" + part,
                                             static_cast<size_t>(spec_.taps), weights_, products);
    for (Vector& row : rows) {
      for (double& value : row) value /= 1.0 + std::exp(-value);
    }
    return rows;
  }

  // A product of one step, or of two.
  Vector Projected(const std::string& part, const Vector& in) {
    const std::string name = prefix_ + "ssm_" + part;
    const Vector first = weights_.Multiply(name + "_a", in);
    return weights_.Has(name + "_b.weight") ? weights_.Multiply(name + "_b", first) : first;
  }

  Vector Decays(Vector numbers) {
    const Vector& biases = weights_.Get(prefix_ + "ssm_dt.bias");
    const Vector& rates = weights_.Get(prefix_ + "ssm_a");
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double x = numbers[i] + biases[i];
      const double rate = rates[i / static_cast<size_t>(spec_.head_dim)];
      const double bound = static_cast<double>(spec_.bound);
      numbers[i] = std::exp(bound < 0 ? bound / (1.0 + std::exp(-rate * x))
                                      : rate * std::log1p(std::exp(x)));
    }
    return numbers;
  }

  // The part of a head, scaled to unit length.
  Vector Unit(const Vector& all, size_t head) const {
    const auto first = all.begin() + static_cast<int64_t>(head) * spec_.head_dim;
    Vector part(first, first + spec_.head_dim);
    double squares = 1e-6;
    for (const double number : part) squares += number * number;
    for (double& number : part) number /= std::sqrt(squares);
    return part;
  }

  static Vector Step(Vector& state, const Vector& decay, const Vector& query, const Vector& key,
                     const double* value, double gain) {
    const size_t dim = key.size();
    Vector out;
    for (size_t c = 0; c < dim; ++c) {
      double known = 0;
      for (size_t i = 0; i < dim; ++i) {
        state[i * dim + c] *= decay[i];
        known += key[i] * state[i * dim + c];
      }
      double sum = 0;
      for (size_t i = 0; i < dim; ++i) {
        state[i * dim + c] += key[i] * gain * (value[c] - known);
        sum += query[i] * state[i * dim + c];
      }
      out.push_back(sum);
    }
    return out;
  }

  const arch::Kda& spec_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
};

inline std::vector<Vector> Reference(const arch::Kda& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  return ReferenceKda(spec, prefix, weights).Run(in);
}

}  // namespace kvant::test
