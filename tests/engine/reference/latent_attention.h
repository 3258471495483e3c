// The block arch::LatentAttention in plain loops over the whole sequence: keys and values of every
// position are made from its latent.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "cpu/kernels/rope.h"
#include "engine/arch/spec.h"
#include "engine/graph/attention/attention_shape.h"
#include "tests/engine/reference/indexer.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceLatentAttention {
 public:
  ReferenceLatentAttention(const arch::LatentAttention& spec, const arch::ModelSpec& model,
                           const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec), shape_(spec.shape), model_(model), prefix_(prefix), weights_(weights) {}

  // Computes the output of all positions from their normed rows.
  std::vector<Vector> Run(const std::vector<Vector>& in) {
    std::vector<Vector> queries;  // [heads][nope + rope]
    std::vector<Vector> keys;     // [heads][nope + rope]
    std::vector<Vector> values;   // [heads][v_dim]
    for (size_t t = 0; t < in.size(); ++t) {
      queries.push_back(Queries(in[t]));
      for (int64_t h = 0; h < shape_.heads; ++h) {
        weights_.CountInput(
            prefix_ + "attn_k_b", static_cast<size_t>(h), static_cast<size_t>(shape_.heads),
            queries[t].data() + h * shape_.head_dim(), static_cast<size_t>(shape_.nope));
        Rotate(queries[t].data() + h * shape_.head_dim() + shape_.nope, t);
      }
      Heat(queries[t], t);
      AddKeysAndValues(in[t], t, keys, values);
    }
    if (spec_.indexer.has_value()) {
      seen_ = ReferenceIndexer(*spec_.indexer, model_, prefix_, weights_).Run(in, small_);
    }
    std::vector<Vector> out;
    for (size_t t = 0; t < in.size(); ++t) {
      Vector attended;
      for (int64_t h = 0; h < shape_.heads; ++h) Attend(queries[t], t, h, keys, values, attended);
      if (spec_.gated) Gate(weights_.Multiply(prefix_ + "attn_gate", in[t]), attended);
      out.push_back(weights_.Multiply(prefix_ + "attn_output", attended));
    }
    return out;
  }

 private:
  Vector NormOf(const char* name, Vector values) {
    return weights_.Norm(prefix_, {arch::NormKind::kRms, name, spec_.epsilon}, values);
  }

  Vector Queries(const Vector& in) {
    if (spec_.q_rank == 0) return weights_.Multiply(prefix_ + "attn_q", in);
    const Vector small = NormOf("attn_q_a_norm", weights_.Multiply(prefix_ + "attn_q_a", in));
    small_.push_back(small);
    return weights_.Multiply(prefix_ + "attn_q_b", small);
  }

  // Row `row` of Wk of a head, or of Wv, times the latent.
  double KeyNumber(int64_t head, int64_t row, const Vector& latent) {
    const int64_t r = shape_.latent;
    const bool together = weights_.Has(prefix_ + "attn_kv_b.weight");
    const Vector& matrix =
        weights_.Get(prefix_ + (together ? "attn_kv_b" : "attn_k_b") + ".weight");
    double sum = 0;
    for (int64_t i = 0; i < r; ++i) {
      const int64_t at = together ? (head * (shape_.nope + shape_.v_dim) + row) * r + i
                                  : (head * r + i) * shape_.nope + row;
      sum += matrix[static_cast<size_t>(at)] * latent[static_cast<size_t>(i)];
    }
    return sum;
  }
  double ValueNumber(int64_t head, int64_t row, const Vector& latent) {
    const bool together = weights_.Has(prefix_ + "attn_kv_b.weight");
    const Vector& matrix =
        weights_.Get(prefix_ + (together ? "attn_kv_b" : "attn_v_b") + ".weight");
    const int64_t first =
        together ? head * (shape_.nope + shape_.v_dim) + shape_.nope : head * shape_.v_dim;
    double sum = 0;
    for (int64_t i = 0; i < shape_.latent; ++i) {
      sum += matrix[static_cast<size_t>((first + row) * shape_.latent + i)] *
             latent[static_cast<size_t>(i)];
    }
    return sum;
  }

  void AddKeysAndValues(const Vector& in, size_t position, std::vector<Vector>& keys,
                        std::vector<Vector>& values) {
    Vector row = weights_.Multiply(prefix_ + "attn_kv_a_mqa", in);
    Vector rotated(row.begin() + shape_.latent, row.end());
    row.resize(static_cast<size_t>(shape_.latent));
    const Vector latent = NormOf("attn_kv_a_norm", row);
    Rotate(rotated.data(), position);
    weights_.CountInput(prefix_ + "attn_kv_b", 0, 1, latent.data(), latent.size());
    latents_.push_back(latent);
    Vector& key = keys.emplace_back();
    Vector& value = values.emplace_back();
    for (int64_t h = 0; h < shape_.heads; ++h) {
      for (int64_t i = 0; i < shape_.nope; ++i) key.push_back(KeyNumber(h, i, latent));
      key.insert(key.end(), rotated.begin(), rotated.end());
      for (int64_t i = 0; i < shape_.v_dim; ++i) value.push_back(ValueNumber(h, i, latent));
    }
  }

  void Gate(const Vector& gates, Vector& attended) const {
    const size_t size = attended.size() / gates.size();
    for (size_t i = 0; i < attended.size(); ++i) attended[i] /= 1.0 + std::exp(-gates[i / size]);
  }

  void Heat(Vector& queries, size_t position) const {
    const graph::QueryTemperature& by = spec_.temperature;
    const double lengths =
        std::floor((static_cast<double>(position) + static_cast<double>(by.offset)) /
                   static_cast<double>(by.length));
    const double factor = 1.0 + static_cast<double>(by.scale) * std::log(1.0 + lengths);
    for (double& value : queries) value *= factor;
  }

  void Rotate(double* part, size_t position) const {
    if (!spec_.rope.has_value()) return;
    const graph::RopeSpec& rope = model_.ropes[*spec_.rope];
    const int64_t half = rope.n_rot / 2;
    // The session has room for as many positions as the model was trained for.
    const bool is_long = !rope.factors_long.empty() && model_.context_train > rope.original_context;
    const std::vector<float>& factors = is_long ? rope.factors_long : rope.factors;
    for (int64_t i = 0; i < half; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(half);
      const double factor =
          factors.empty() ? 1.0 : static_cast<double>(factors[static_cast<size_t>(i)]);
      const double angle = static_cast<double>(position) /
                           std::pow(static_cast<double>(rope.base), share) /
                           (factor * static_cast<double>(rope.linear_factor));
      const bool halves = rope.style == cpu::RopeStyle::kHalves;
      double& a = part[halves ? i : 2 * i];
      double& b = part[halves ? i + half : 2 * i + 1];
      const double amplitude = static_cast<double>(rope.amplitude);
      const double turned = amplitude * (a * std::cos(angle) - b * std::sin(angle));
      b = amplitude * (a * std::sin(angle) + b * std::cos(angle));
      a = turned;
    }
  }

  // Appends what a head of the query at a position gives to `out`.
  void Attend(const Vector& queries, size_t position, int64_t head, const std::vector<Vector>& keys,
              const std::vector<Vector>& values, Vector& out) {
    const double* query = queries.data() + head * shape_.head_dim();
    Vector weights;
    double total = 0;
    for (size_t s = 0; s <= position; ++s) {
      double dot = 0;
      for (int64_t d = 0; d < shape_.head_dim(); ++d) {
        dot += query[d] * keys[s][static_cast<size_t>(head * shape_.head_dim() + d)];
      }
      const bool sees = seen_.empty() || seen_[position][s] > 0;
      weights.push_back(sees ? std::exp(dot * static_cast<double>(spec_.scale)) : 0);
      total += weights.back();
    }
    Vector weighted(latents_[0].size());
    for (size_t s = 0; s <= position; ++s) {
      for (size_t i = 0; i < weighted.size(); ++i) {
        weighted[i] += weights[s] / total * latents_[s][i];
      }
    }
    weights_.CountInput(prefix_ + "attn_v_b", static_cast<size_t>(head),
                        static_cast<size_t>(shape_.heads), weighted.data(), weighted.size());
    for (int64_t d = 0; d < shape_.v_dim; ++d) {
      double sum = 0;
      for (size_t s = 0; s <= position; ++s) {
        sum += weights[s] / total * values[s][static_cast<size_t>(head * shape_.v_dim + d)];
      }
      out.push_back(sum);
    }
  }

  const arch::LatentAttention& spec_;
  const graph::LatentShape& shape_;
  const arch::ModelSpec& model_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
  std::vector<Vector> latents_;  // by position
  std::vector<Vector> small_;    // what queries are made of in the second step, by position
  std::vector<Vector> seen_;     // by an indexer's choice
};

inline std::vector<Vector> Reference(const arch::LatentAttention& spec,
                                     const arch::ModelSpec& model, const std::string& prefix,
                                     ReferenceWeights& weights, const std::vector<Vector>& in) {
  return ReferenceLatentAttention(spec, model, prefix, weights).Run(in);
}

}  // namespace kvant::test
