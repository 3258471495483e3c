// The block arch::DeltaNet in plain loops over the whole sequence, from the formulas in its header.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/gated_ffn.h"
#include "tests/engine/reference/short_conv.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceDeltaNet {
 public:
  ReferenceDeltaNet(const arch::DeltaNet& spec, const std::string& prefix,
                    ReferenceWeights& weights)
      : spec_(spec), prefix_(prefix), weights_(weights) {}

  std::vector<Vector> Run(const std::vector<Vector>& in) {
    std::vector<Vector> products;
    for (const Vector& row : in) products.push_back(weights_.Multiply(prefix_ + "attn_qkv", row));
    std::vector<Vector> qkv =
        ReferenceConv(prefix_ + "ssm_conv1d", static_cast<size_t>(spec_.taps), weights_, products);
    std::vector<Vector> states(static_cast<size_t>(spec_.value_heads),
                               Vector(static_cast<size_t>(spec_.key_dim * spec_.value_dim)));
    std::vector<Vector> out;
    for (size_t t = 0; t < in.size(); ++t) {
      for (double& value : qkv[t]) value /= 1.0 + std::exp(-value);
      const Vector gate = weights_.Multiply(prefix_ + "attn_gate", in[t]);
      const Vector alphas = Scalars(in[t], "ssm_alpha", 1);
      const Vector betas = Scalars(in[t], "ssm_beta", 0);
      Vector row;
      for (int64_t head = 0; head < spec_.value_heads; ++head) {
        const auto h = static_cast<size_t>(head);
        const double rate = weights_.Get(prefix_ + "ssm_a")[h];
        const double step =
            std::log1p(std::exp(alphas[h] + weights_.Get(prefix_ + "ssm_dt.bias")[h]));
        Vector result =
            Step(states[h], qkv[t], head, std::exp(rate * step), 1.0 / (1.0 + std::exp(-betas[h])));
        ReferenceWeights::NormVector(arch::NormKind::kRms, static_cast<double>(spec_.norm_epsilon),
                                     weights_.Get(prefix_ + "ssm_norm.weight").data(),
                                     result.size(), result.data());
        row.insert(row.end(), result.begin(), result.end());
      }
      const bool plain = spec_.gate_activation == cpu::Activation::kSigmoid;
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] *= (plain ? 1.0 : gate[i]) / (1.0 + std::exp(-gate[i]));
      }
      out.push_back(weights_.Multiply(prefix_ + "ssm_out", row));
    }
    return out;
  }

 private:
  // One number for each value head: by a matrix of its own, or one of the two halves that each key
  // head has in a common one.
  Vector Scalars(const Vector& in, const std::string& name, int64_t half) {
    if (!weights_.Has(prefix_ + "ssm_ba.weight")) return weights_.Multiply(prefix_ + name, in);
    const Vector both = weights_.Multiply(prefix_ + "ssm_ba", in);
    const int64_t per_key = spec_.value_heads / spec_.key_heads;
    Vector one;
    for (int64_t head = 0; head < spec_.value_heads; ++head) {
      one.push_back(
          both[static_cast<size_t>((head / per_key * 2 + half) * per_key + head % per_key)]);
    }
    return one;
  }

  // The head's part of `qkv`, scaled to unit length.
  Vector Head(const Vector& qkv, int64_t first) const {
    Vector head(qkv.begin() + first, qkv.begin() + first + spec_.key_dim);
    double squares = 1e-6;
    for (const double value : head) squares += value * value;
    for (double& value : head) value /= std::sqrt(squares);
    return head;
  }

  Vector Step(Vector& state, const Vector& qkv, int64_t head, double decay, double gain) const {
    const Vector query = Head(qkv, spec_.KeyHead(head) * spec_.key_dim);
    const Vector key = Head(qkv, spec_.key_columns() + spec_.KeyHead(head) * spec_.key_dim);
    const int64_t values = 2 * spec_.key_columns() + head * spec_.value_dim;
    Vector out;
    for (int64_t c = 0; c < spec_.value_dim; ++c) {
      double known = 0;
      for (int64_t i = 0; i < spec_.key_dim; ++i) {
        double& cell = state[static_cast<size_t>(i * spec_.value_dim + c)];
        cell *= decay;
        known += key[static_cast<size_t>(i)] * cell;
      }
      const double added = gain * (qkv[static_cast<size_t>(values + c)] - known);
      double sum = 0;
      for (int64_t i = 0; i < spec_.key_dim; ++i) {
        double& cell = state[static_cast<size_t>(i * spec_.value_dim + c)];
        cell += key[static_cast<size_t>(i)] * added;
        sum += query[static_cast<size_t>(i)] * cell;
      }
      out.push_back(sum / std::sqrt(static_cast<double>(spec_.key_dim)));
    }
    return out;
  }

  const arch::DeltaNet& spec_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
};

inline std::vector<Vector> Reference(const arch::DeltaNet& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  return ReferenceDeltaNet(spec, prefix, weights).Run(in);
}

}  // namespace kvant::test
