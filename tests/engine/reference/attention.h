// The block arch::Attention in plain loops over the whole sequence, from the formulas in its
// header.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cpu/kernels/rope.h"
#include "engine/arch/spec.h"
#include "engine/graph/attention/attention_nodes.h"
#include "tests/engine/reference/indexer.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceAttention {
 public:
  ReferenceAttention(const arch::Attention& spec, const arch::ModelSpec& model,
                     const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec), model_(model), prefix_(prefix), weights_(weights) {}

  static std::string PrefixOf(size_t layer) { return "blk." + std::to_string(layer) + "."; }

  // Computes the output of all positions from their normed rows.
  std::vector<Vector> Run(const std::vector<Vector>& in) {
    std::vector<Vector> qkv;
    for (size_t t = 0; t < in.size(); ++t) {
      qkv.push_back(Qkv(in[t]));
      if (spec_.clamp > 0) {
        const double limit = static_cast<double>(spec_.clamp);
        for (double& value : qkv[t]) value = std::clamp(value, -limit, limit);
      }
      const bool after = spec_.head_norm_order == graph::NormOrder::kAfterRope;
      if (!after) NormHeads(qkv[t].data());
      for (int64_t head = 0; head < spec_.heads + spec_.kv_heads; ++head) {
        if (spec_.rope != arch::Attention::kNoRope) Rotate(qkv[t].data() + head * spec_.k_dim, t);
      }
      if (after) NormHeads(qkv[t].data());
      const graph::QueryTemperature& by = spec_.temperature;
      const double lengths = std::floor((static_cast<double>(t) + static_cast<double>(by.offset)) /
                                        static_cast<double>(by.length));
      for (int64_t i = 0; i < spec_.heads * spec_.k_dim; ++i) {
        qkv[t][static_cast<size_t>(i)] *= 1 + static_cast<double>(by.scale) * std::log(1 + lengths);
      }
    }
    TakeKeysAndValues(qkv);
    if (spec_.indexer.has_value()) {
      seen_ = ReferenceIndexer(*spec_.indexer, model_, prefix_, weights_).Run(in, {});
    }
    std::vector<Vector> out;
    for (size_t t = 0; t < in.size(); ++t) {
      Vector attended = Attend(qkv, t);
      for (size_t i = 0; i < attended.size() && spec_.gated; ++i) {
        attended[i] /= 1.0 + std::exp(-gates_[t][i]);
      }
      if (spec_.gate.has_value()) ApplyGate(in[t], attended);
      if (spec_.result_norm.has_value()) {
        attended = weights_.Norm(prefix_, *spec_.result_norm, attended);
      }
      out.push_back(weights_.Multiply(prefix_ + std::string(spec_.output), attended));
    }
    return out;
  }

 private:
  // Keeps keys and values for other layers, or takes those of another layer.
  void TakeKeysAndValues(std::vector<Vector>& qkv) {
    const std::ptrdiff_t keys = spec_.heads * spec_.k_dim;
    std::vector<Vector>& kept = weights_.Kept(spec_.keys_of ? PrefixOf(*spec_.keys_of) : prefix_);
    if (!spec_.keys_of) kept.clear();
    for (size_t t = 0; t < qkv.size(); ++t) {
      if (!spec_.keys_of) kept.emplace_back(qkv[t].begin() + keys, qkv[t].end());
      qkv[t].resize(static_cast<size_t>(keys));
      qkv[t].insert(qkv[t].end(), kept[t].begin(), kept[t].end());
    }
  }

  Vector Qkv(const Vector& in) {
    if (weights_.Has(prefix_ + "attn_qkv.weight")) {
      Vector all = weights_.Multiply(prefix_ + "attn_qkv", in);
      const int64_t keys = spec_.heads * spec_.k_dim;
      AddBias("attn_q.bias", all.data());
      AddBias("attn_k.bias", all.data() + keys);
      AddBias("attn_v.bias", all.data() + keys + spec_.kv_heads * spec_.k_dim);
      return all;
    }
    Vector all;
    for (const std::string name : {"attn_q", "attn_k", "attn_v"}) {
      // Queries alone are followed by zeros, which another layer's keys and values replace.
      if (spec_.keys_of && name != "attn_q") {
        all.resize(all.size() + static_cast<size_t>(spec_.kv_heads * spec_.k_dim));
        continue;
      }
      const bool as_keys = spec_.values_are_keys && name == "attn_v";
      Vector part = weights_.Multiply(prefix_ + (as_keys ? "attn_k" : name), in);
      if (spec_.gated && all.empty()) part = WithoutGates(part);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // Multiplies a row's result by its gates, of values or of heads.
  void ApplyGate(const Vector& in, Vector& attended) {
    const Vector gates = weights_.Multiply(prefix_ + "attn_gate", in);
    const size_t piece = attended.size() / gates.size();
    for (size_t i = 0; i < attended.size(); ++i) {
      const double gate = gates[i / piece];
      switch (spec_.gate->activation) {
        case cpu::Activation::kSoftplus: attended[i] *= std::log1p(std::exp(gate)); break;
        case cpu::Activation::kSoftplusOfTwo: attended[i] *= std::log2(1 + std::exp2(gate)); break;
        default: attended[i] /= 1 + std::exp(-gate);
      }
    }
  }

  // The queries of a row, whose gates are kept.
  Vector WithoutGates(const Vector& both) {
    Vector queries;
    Vector& gates = gates_.emplace_back();
    for (size_t i = 0; i < both.size(); ++i) {
      const bool query = static_cast<int64_t>(i) / spec_.k_dim % 2 == 0;
      (query ? queries : gates).push_back(both[i]);
    }
    return queries;
  }

  // Adds the biases of a fused matrix where they are tensors of their own.
  void AddBias(const char* name, double* values) {
    if (!weights_.Has(prefix_ + name)) return;
    for (const double bias : weights_.Get(prefix_ + name)) *values++ += bias;
  }

  // Queries and keys of a row.
  void NormHeads(double* row) {
    NormSide("attn_q_norm", spec_.heads, row);
    if (spec_.keys_of) return;
    double* keys = row + spec_.heads * spec_.k_dim;
    NormSide("attn_k_norm", spec_.kv_heads, keys);
    const Vector ones(static_cast<size_t>(spec_.v_dim), 1.0);
    for (int64_t i = 0; i < spec_.kv_heads && spec_.norm_values; ++i) {
      ReferenceWeights::NormVector(
          arch::NormKind::kRms, static_cast<double>(spec_.head_norm_epsilon), ones.data(),
          ones.size(), keys + spec_.kv_heads * spec_.k_dim + i * spec_.v_dim);
    }
  }

  void NormSide(const std::string& side, int64_t heads, double* values) {
    if (spec_.head_norms == arch::HeadNorms::kNone) return;
    if (spec_.head_norms == arch::HeadNorms::kWithoutWeights) {
      const Vector ones(static_cast<size_t>(spec_.k_dim), 1.0);
      for (int64_t i = 0; i < heads; ++i) {
        ReferenceWeights::NormVector(arch::NormKind::kRms,
                                     static_cast<double>(spec_.head_norm_epsilon), ones.data(),
                                     ones.size(), values + i * spec_.k_dim);
      }
      return;
    }
    const std::string name = side + ".weight";
    if (!weights_.Has(prefix_ + name)) return;
    const Vector& weight = weights_.Get(prefix_ + name);
    const bool whole = spec_.head_norm_weights == arch::HeadNormWeights::kProjection;
    const bool shared = spec_.head_norm_weights == arch::HeadNormWeights::kShared;
    const int64_t pieces = whole ? 1 : heads;
    const int64_t count = heads * spec_.k_dim / pieces;
    for (int64_t i = 0; i < pieces; ++i) {
      ReferenceWeights::NormVector(
          spec_.head_norm_kind, static_cast<double>(spec_.head_norm_epsilon),
          weight.data() + (shared ? 0 : i * count), static_cast<size_t>(count), values + i * count);
    }
    if (whole) AddBias((side + ".bias").c_str(), values);
  }

  void Rotate(double* head, size_t position) const {
    const graph::RopeSpec& rope = model_.ropes[spec_.rope];
    const int64_t half = rope.n_rot / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(half);
      const double factor =
          rope.factors.empty() ? 1.0 : static_cast<double>(rope.factors[static_cast<size_t>(i)]);
      const double angle = static_cast<double>(position) /
                           std::pow(static_cast<double>(rope.base), share) /
                           (factor * static_cast<double>(rope.linear_factor));
      const bool halves = rope.style == cpu::RopeStyle::kHalves;
      double& a = head[halves ? i : 2 * i];
      double& b = head[halves ? i + half : 2 * i + 1];
      const double amplitude = static_cast<double>(rope.amplitude);
      const double turned = amplitude * (a * std::cos(angle) - b * std::sin(angle));
      b = amplitude * (a * std::sin(angle) + b * std::cos(angle));
      a = turned;
    }
  }

  // The bias that a distance adds to the score of a head.
  double DistanceNumber(int64_t head, int64_t distance) {
    if (spec_.buckets.buckets == 0) return 0;
    std::string name = prefix_ + "attn_rel_b.weight";
    if (!weights_.Has(name))
      name = prefix_.substr(0, prefix_.find("blk.")) + "blk.0.attn_rel_b.weight";
    const int64_t bucket = arch::DistanceBucket(spec_.buckets, spec_.mask.kind, distance);
    return weights_.Get(name)[static_cast<size_t>(bucket * spec_.heads + head)];
  }

  // The end of the positions that position t of `all` positions sees.
  size_t EndSeen(size_t t, size_t all) const {
    if (spec_.mask.kind != arch::MaskKind::kAll) return t + 1;
    return spec_.mask.window == 0 ? all : std::min(all, t + HalfWindow() + 1);
  }

  // Positions from the first that position t sees.
  size_t FirstSeen(size_t t) const {
    if (spec_.mask.kind == arch::MaskKind::kAll && spec_.mask.window > 0) {
      return t < HalfWindow() ? 0 : t - HalfWindow();
    }
    const bool from_start =
        spec_.mask.kind == arch::MaskKind::kCausal || spec_.mask.kind == arch::MaskKind::kAll;
    if (from_start) return 0;
    const auto window = static_cast<size_t>(spec_.mask.window);
    if (spec_.mask.kind == arch::MaskKind::kSections) return t / window * window;
    return t < window ? 0 : t - window + 1;
  }

  // Positions on either side that a position sees, where it sees both sides of it.
  size_t HalfWindow() const { return static_cast<size_t>(spec_.mask.window) / 2; }

  double Score(const double* query, const double* key) const {
    double dot = 0;
    for (int64_t d = 0; d < spec_.k_dim; ++d) dot += query[d] * key[d];
    const double score = dot * static_cast<double>(spec_.scale);
    const double cap = static_cast<double>(spec_.score_cap);
    return cap > 0 ? cap * std::tanh(score / cap) : score;
  }

  // Whether an indexer, if there is one, has chosen position s of `all` for row t and a kv head.
  bool Sees(size_t t, size_t s, int64_t kv, size_t all) const {
    if (!spec_.indexer.has_value()) return true;
    const int64_t choice = kv * spec_.indexer->shape.choices() / spec_.kv_heads;
    return seen_[t][static_cast<size_t>(choice) * all + s] > 0;
  }

  Vector Attend(const std::vector<Vector>& qkv, size_t t) {
    Vector out(static_cast<size_t>(spec_.heads * spec_.v_dim));
    const int64_t keys = spec_.heads * spec_.k_dim;
    const int64_t values = keys + spec_.kv_heads * spec_.k_dim;
    for (int64_t h = 0; h < spec_.heads; ++h) {
      const int64_t kv = h / (spec_.heads / spec_.kv_heads);
      Vector weights;
      double total = 0;
      if (spec_.sinks != arch::Sinks::kNone) {
        total += std::exp(weights_.Get(prefix_ + "attn_sinks.weight")[static_cast<size_t>(h)]);
      }
      for (size_t s = FirstSeen(t); s < EndSeen(t, qkv.size()); ++s) {
        const double score =
            Score(qkv[t].data() + h * spec_.k_dim, qkv[s].data() + keys + kv * spec_.k_dim);
        const double slope = spec_.bias_slopes.empty()
                                 ? 0.0
                                 : static_cast<double>(spec_.bias_slopes[static_cast<size_t>(h)]);
        const int64_t distance = static_cast<int64_t>(s) - static_cast<int64_t>(t);
        const double weight = std::exp(score - slope * std::abs(static_cast<double>(distance)) +
                                       DistanceNumber(h, distance));
        weights.push_back(Sees(t, s, kv, qkv.size()) ? weight : 0);
        total += weights.back();
      }
      for (size_t i = 0; i < weights.size(); ++i) {
        const double* value = qkv[FirstSeen(t) + i].data() + values + kv * spec_.v_dim;
        for (int64_t d = 0; d < spec_.v_dim; ++d) {
          out[static_cast<size_t>(h * spec_.v_dim + d)] += weights[i] / total * value[d];
        }
      }
    }
    return out;
  }

  std::vector<Vector> gates_;  // by position
  std::vector<Vector> seen_;   // by an indexer's choice
  const arch::Attention& spec_;
  const arch::ModelSpec& model_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
};

inline std::vector<Vector> Reference(const arch::Attention& spec, const arch::ModelSpec& model,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  return ReferenceAttention(spec, model, prefix, weights).Run(in);
}

}  // namespace kvant::test
