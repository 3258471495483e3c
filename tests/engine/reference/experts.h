// The block arch::Experts in plain loops, one token and one expert after the other, from the
// formulas in its header.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/gated_ffn.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceExperts {
 public:
  ReferenceExperts(const arch::Experts& spec, const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec), prefix_(prefix), weights_(weights) {}

  Vector Run(const Vector& normed) {
    const Vector logits = weights_.Multiply(prefix_ + "ffn_gate_inp", normed);
    if (spec_.latent == 0) return AddShared(normed, AddBias(Sum(logits, normed)));
    const Vector sum = Sum(logits, weights_.Multiply(prefix_ + "ffn_latent_down", normed));
    return AddShared(normed, weights_.Multiply(prefix_ + "ffn_latent_up", sum));
  }

  // Adds the bias that all experts of the layer share, if there is one.
  Vector AddBias(Vector sum) {
    const std::string name = prefix_ + "ffn_exps.bias";
    for (size_t i = 0; i < sum.size() && weights_.Has(name); ++i) sum[i] += weights_.Get(name)[i];
    return sum;
  }

  // The weighted sum of the chosen experts' outputs for a row.
  Vector Sum(const Vector& logits, const Vector& in) {
    Vector out(in.size());
    for (const auto& [expert, weight] : Choose(logits)) {
      const bool weighs_input = spec_.routing.weighs == graph::Weighs::kInput;
      Vector row = in;
      for (double& value : row) value *= weighs_input ? weight : 1;
      const Vector part =
          weights_.MultiplyExpert(prefix_ + "ffn_down_exps", expert, Gated(expert, row));
      for (size_t i = 0; i < out.size(); ++i) out[i] += (weighs_input ? 1 : weight) * part[i];
    }
    return out;
  }

  Vector AddShared(const Vector& in, Vector out) {
    if (spec_.shared == arch::SharedExpert::kNone) return out;
    Vector up = weights_.Multiply(prefix_ + "ffn_up_shexp", in);
    Vector gate = up;
    if (spec_.kind == arch::ExpertKind::kPlain) {
      for (double& value : gate) {
        value = ReferenceActivation(spec_.shared_activation.activation, value);
      }
    } else {
      if (weights_.Has(prefix_ + "ffn_gate_shexp.weight")) {
        gate = weights_.Multiply(prefix_ + "ffn_gate_shexp", in);
      } else {  // both are in one matrix, the gate first
        gate.resize(up.size() / 2);
        up.erase(up.begin(), up.begin() + static_cast<ptrdiff_t>(gate.size()));
      }
      Multiply(spec_.shared_activation, gate, up);
    }
    const Vector part = weights_.Multiply(prefix_ + "ffn_down_shexp", gate);
    double weight = 1;
    if (spec_.shared == arch::SharedExpert::kGated) {
      weight = Sigmoid(weights_.Multiply(prefix_ + "ffn_gate_inp_shexp", in).front());
    }
    for (size_t i = 0; i < out.size(); ++i) out[i] += weight * part[i];
    return out;
  }

  // Experts and their weights, the best first.
  std::vector<std::pair<size_t, double>> Choose(const Vector& logits) {
    const graph::Routing& routing = spec_.routing;
    if (routing.gating == graph::Gating::kSparseMixer) return Mix(logits);
    const Vector gates = Gates(logits);
    Vector scores = spec_.routing.by_logits ? logits : gates;
    const bool bare = weights_.Has(prefix_ + "exp_probs_b");
    const std::string name = prefix_ + (bare ? "exp_probs_b" : "exp_probs_b.bias");
    if (weights_.Has(name)) {
      const Vector& bias = weights_.Get(name);
      for (size_t i = 0; i < scores.size(); ++i) scores[i] += bias[i];
    }
    DropGroups(scores);
    std::vector<std::pair<size_t, double>> chosen;
    double sum = 0;
    for (const size_t expert : Sorted(scores)) {
      if (static_cast<int64_t>(chosen.size()) == routing.used) break;
      chosen.emplace_back(expert, gates[expert]);
      sum += gates[expert];
    }
    const bool over_chosen = routing.gating == graph::Gating::kSoftmaxOfChosen;
    for (auto& [expert, weight] : chosen) {
      if (routing.normalize || over_chosen) weight /= sum;
      weight *= static_cast<double>(routing.scale);
    }
    return chosen;
  }

 private:
  // The best of the remaining experts, weighted by a softmax over those of them that are close.
  std::vector<std::pair<size_t, double>> Mix(Vector logits) const {
    const Vector all = logits;
    std::vector<std::pair<size_t, double>> chosen;
    for (int64_t rank = 0; rank < spec_.routing.used; ++rank) {
      const size_t best = Sorted(logits).front();
      const double top = logits[best];
      double sum = 0;
      for (size_t i = 0; i < logits.size(); ++i) {
        const double below = (top - all[i]) / std::max(std::abs(all[i]), top);
        if (below <= 2 * static_cast<double>(spec_.routing.jitter))
          sum += std::exp(logits[i] - top);
      }
      chosen.emplace_back(best, 1 / sum);
      logits[best] = -INFINITY;
    }
    return chosen;
  }

  static double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  // The gates of all experts. For a softmax over the chosen experts alone, exp(logit) has the
  // softmax's order.
  Vector Gates(const Vector& logits) const {
    Vector gates;
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    for (const double logit : logits) {
      switch (spec_.routing.gating) {
        case graph::Gating::kSoftmax: gates.push_back(std::exp(logit) / sum); break;
        case graph::Gating::kSoftmaxOfChosen:
        case graph::Gating::kSparseMixer: gates.push_back(std::exp(logit)); break;
        case graph::Gating::kSigmoid: gates.push_back(Sigmoid(logit)); break;
        case graph::Gating::kSqrtSoftplus:
          gates.push_back(std::sqrt(std::log(1 + std::exp(logit))));
          break;
      }
    }
    return gates;
  }

  // The places of values, the largest value first.
  static std::vector<size_t> Sorted(const Vector& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&values](size_t a, size_t b) { return values[a] > values[b]; });
    return order;
  }

  // Experts of groups that are not among the best have no chance.
  void DropGroups(Vector& scores) const {
    const graph::ExpertGroups& groups = spec_.routing.groups;
    if (groups.count == 1) return;
    const size_t size = scores.size() / static_cast<size_t>(groups.count);
    Vector of_groups;
    for (auto begin = scores.begin(); begin != scores.end(); begin += static_cast<long>(size)) {
      Vector group(begin, begin + static_cast<long>(size));
      std::sort(group.rbegin(), group.rend());
      const bool top_two = groups.score == graph::GroupScore::kSumOfTopTwo && size > 1;
      of_groups.push_back(top_two ? group[0] + group[1] : group[0]);
    }
    const std::vector<size_t> order = Sorted(of_groups);
    for (size_t i = static_cast<size_t>(groups.used); i < order.size(); ++i) {
      for (size_t k = 0; k < size; ++k) scores[order[i] * size + k] = -INFINITY;
    }
  }

  Vector Gated(size_t expert, const Vector& in) {
    if (spec_.kind == arch::ExpertKind::kPlain) {
      Vector up = weights_.MultiplyExpert(prefix_ + "ffn_up_exps", expert, in);
      for (double& value : up) value = ReferenceActivation(spec_.activation.activation, value);
      return up;
    }
    if (weights_.Has(prefix_ + "ffn_gate_up_exps.weight")) {
      Vector gate = weights_.MultiplyExpert(prefix_ + "ffn_gate_up_exps", expert, in);
      const Vector up(gate.begin() + spec_.width, gate.end());
      gate.resize(static_cast<size_t>(spec_.width));
      Multiply(spec_.activation, gate, up);
      return gate;
    }
    Vector gate = weights_.MultiplyExpert(prefix_ + "ffn_gate_exps", expert, in);
    Multiply(spec_.activation, gate, weights_.MultiplyExpert(prefix_ + "ffn_up_exps", expert, in));
    return gate;
  }

  static void Multiply(const cpu::GateActivation& activation, Vector& gate, const Vector& up) {
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = ReferenceProduct(activation, gate[i], up[i]);
    }
  }

  const arch::Experts& spec_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
};

inline std::vector<Vector> Reference(const arch::Experts& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  ReferenceExperts experts(spec, prefix, weights);
  std::vector<Vector> out;
  for (const Vector& row : in) out.push_back(experts.Run(row));
  return out;
}

}  // namespace kvant::test
