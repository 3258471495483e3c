// The blocks arch::Rwkv6Mix, Rwkv7Mix and ChannelMix in plain loops over the whole sequence, from
// the formulas in their headers.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

inline double ReferenceSigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// x + factors * (row before - x), for factors from `first` on.
inline Vector ReferenceMix(const std::vector<Vector>& in, size_t t, const Vector& factors,
                           size_t first = 0) {
  Vector out = in[t];
  for (size_t i = 0; i < out.size(); ++i) {
    const double before = t > 0 ? in[t - 1][i] : 0.0;
    out[i] += factors[first + i] * (before - in[t][i]);
  }
  return out;
}

// The matrix `second` times f(the matrix `first` times `in`), plus the vector `bias`.
template <class Function>
Vector ReferenceLowRank(ReferenceWeights& weights, const std::string& first,
                        const std::string& second, const std::string& bias, const Vector& in,
                        const Function& f) {
  Vector low = weights.Multiply(first, in);
  for (double& value : low) value = f(value);
  Vector out = weights.Multiply(second, low);
  if (bias.empty()) return out;
  const Vector& added = weights.Get(bias + ".weight");
  for (size_t i = 0; i < out.size(); ++i) out[i] += added[i];
  return out;
}

// The norm of each head.
inline void ReferenceWkvNorm(ReferenceWeights& weights, const std::string& prefix, size_t head_dim,
                             Vector& values) {
  const Vector& weight = weights.Get(prefix + "time_mix_ln.weight");
  const Vector& bias = weights.Get(prefix + "time_mix_ln.bias");
  for (size_t i = 0; i < values.size(); i += head_dim) {
    ReferenceWeights::NormVector(arch::NormKind::kLayer, 64e-5, weight.data() + i, head_dim,
                                 values.data() + i);
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] += bias[i];
}

inline std::vector<Vector> Reference(const arch::ChannelMix& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector> out;
  for (size_t t = 0; t < in.size(); ++t) {
    const Vector mixed = ReferenceMix(in, t, weights.Get(prefix + "channel_mix_lerp_k.weight"));
    Vector key = weights.Multiply(prefix + "channel_mix_key", mixed);
    for (double& value : key) value = value > 0 ? value * value : 0.0;
    out.push_back(weights.Multiply(prefix + "channel_mix_value", key));
    if (spec.receptance == arch::Receptance::kNo) continue;
    const Vector gate =
        weights.Multiply(prefix + "channel_mix_receptance",
                         ReferenceMix(in, t, weights.Get(prefix + "channel_mix_lerp_r.weight")));
    for (size_t i = 0; i < gate.size(); ++i) out[t][i] *= ReferenceSigmoid(gate[i]);
  }
  return out;
}

// Adds the result of one head, whose state is [key][value], and changes the state.
class ReferenceWkv {
 public:
  ReferenceWkv(int64_t heads, int64_t head_dim)
      : dim_(static_cast<size_t>(head_dim)),
        state_(static_cast<size_t>(heads * head_dim * head_dim)) {}

  double& At(size_t head, size_t key, size_t value) {
    return state_[(head * dim_ + key) * dim_ + value];
  }

 private:
  size_t dim_;
  Vector state_;
};

inline std::vector<Vector> Reference(const arch::Rwkv6Mix& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  const std::string name = prefix + "time_mix_";
  const auto size = static_cast<size_t>(spec.head_dim);
  const auto rank = static_cast<size_t>(spec.mix_rank);
  ReferenceWkv state(spec.heads, spec.head_dim);
  std::vector<Vector> out;
  for (size_t t = 0; t < in.size(); ++t) {
    Vector low =
        weights.Multiply(name + "w1", ReferenceMix(in, t, weights.Get(name + "lerp_x.weight")));
    for (double& value : low) value = std::tanh(value);
    std::vector<Vector> mixed;
    for (size_t mix = 0; mix < 5; ++mix) {
      const auto part = low.begin() + static_cast<std::ptrdiff_t>(mix * rank);
      Vector factors = weights.MultiplyExpert(
          name + "w2", mix, Vector(part, part + static_cast<std::ptrdiff_t>(rank)));
      const Vector& lerp = weights.Get(name + "lerp_fused.weight");
      for (size_t i = 0; i < factors.size(); ++i) factors[i] += lerp[mix * factors.size() + i];
      mixed.push_back(ReferenceMix(in, t, factors));
    }
    Vector w = ReferenceLowRank(weights, name + "decay_w1", name + "decay_w2", name + "decay",
                                mixed[0], [](double x) { return std::tanh(x); });
    const Vector k = weights.Multiply(name + "key", mixed[1]);
    const Vector v = weights.Multiply(name + "value", mixed[2]);
    const Vector r = weights.Multiply(name + "receptance", mixed[3]);
    const Vector g = weights.Multiply(name + "gate", mixed[4]);
    const Vector& first = weights.Get(name + "first.weight");
    Vector y(v.size());
    for (size_t col = 0; col < y.size(); ++col) {
      const size_t head = col / size;
      for (size_t i = 0; i < size; ++i) {
        const size_t row = head * size + i;
        double& cell = state.At(head, i, col % size);
        y[col] += r[row] * (cell + first[row] * k[row] * v[col]);
        cell = std::exp(-std::exp(w[row])) * cell + k[row] * v[col];
      }
    }
    ReferenceWkvNorm(weights, prefix, size, y);
    for (size_t i = 0; i < y.size(); ++i) y[i] *= g[i] * ReferenceSigmoid(g[i]);
    out.push_back(weights.Multiply(name + "output", y));
  }
  return out;
}

class ReferenceRwkv7 {
 public:
  ReferenceRwkv7(const arch::Rwkv7Mix& spec, const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec),
        name_(prefix + "time_mix_"),
        size_(static_cast<size_t>(spec.head_dim)),
        weights_(weights),
        state_(spec.heads, spec.head_dim) {}

  // `first_values` of all rows are those of the first layer, which sets them.
  std::vector<Vector> Run(const std::string& prefix, const std::vector<Vector>& in,
                          std::vector<Vector>& first_values) {
    if (spec_.first) {
      first_values.clear();
      // Files have the mix of values in this layer, and nothing reads it.
      for (const char* unused : {"v0.weight", "v1.weight", "v2.weight"}) {
        if (weights_.Has(name_ + unused)) weights_.Get(name_ + unused);
      }
    }
    std::vector<Vector> out;
    for (size_t t = 0; t < in.size(); ++t) {
      Step step = StepOf(in, t, first_values);
      Vector y = Scan(step);
      ReferenceWkvNorm(weights_, prefix, size_, y);
      AddBonus(step, y);
      for (size_t i = 0; i < y.size(); ++i) y[i] *= step.g[i];
      out.push_back(weights_.Multiply(name_ + "output", y));
    }
    return out;
  }

 private:
  struct Step {
    Vector r, w, k, v, a, g, u;
  };

  Vector Mixed(const std::vector<Vector>& in, size_t t, size_t mix) {
    return ReferenceMix(in, t, weights_.Get(name_ + "lerp_fused.weight"), mix * in[t].size());
  }

  Vector LowRank(const char* letter, const Vector& in, double (*f)(double), bool has_bias) {
    return ReferenceLowRank(weights_, name_ + letter + "1", name_ + letter + "2",
                            has_bias ? name_ + letter + "0" : "", in, f);
  }

  Step StepOf(const std::vector<Vector>& in, size_t t, std::vector<Vector>& first_values) {
    const auto same = [](double x) { return x; };
    Step step;
    step.r = weights_.Multiply(name_ + "receptance", Mixed(in, t, 0));
    step.w = LowRank(
        "w", Mixed(in, t, 1), [](double x) { return std::tanh(x); }, true);
    step.k = weights_.Multiply(name_ + "key", Mixed(in, t, 2));
    step.v = weights_.Multiply(name_ + "value", Mixed(in, t, 3));
    step.a = LowRank("a", Mixed(in, t, 4), same, true);
    step.g = LowRank("g", Mixed(in, t, 5), ReferenceSigmoid, false);
    if (spec_.first) {
      first_values.push_back(step.v);
    } else {
      const Vector mix = LowRank("v", Mixed(in, t, 3), same, true);
      for (size_t i = 0; i < mix.size(); ++i) {
        step.v[i] += (first_values[t][i] - step.v[i]) * ReferenceSigmoid(mix[i]);
      }
    }
    SetKeys(step);
    return step;
  }

  void SetKeys(Step& step) {
    const Vector& erased = weights_.Get(name_ + "k_k.weight");
    const Vector& kept = weights_.Get(name_ + "k_a.weight");
    step.u.resize(step.k.size());
    for (size_t first = 0; first < step.k.size(); first += size_) {
      double squares = 0;
      for (size_t i = first; i < first + size_; ++i) {
        step.u[i] = step.k[i] * erased[i];
        squares += step.u[i] * step.u[i];
      }
      for (size_t i = first; i < first + size_; ++i) step.u[i] /= std::sqrt(squares);
    }
    for (size_t i = 0; i < step.k.size(); ++i) {
      step.w[i] = std::exp(-std::exp(-0.5) * ReferenceSigmoid(step.w[i]));
      step.a[i] = ReferenceSigmoid(step.a[i]);
      step.k[i] *= 1.0 + (step.a[i] - 1.0) * kept[i];
    }
  }

  Vector Scan(const Step& step) {
    Vector y(step.v.size());
    for (size_t col = 0; col < y.size(); ++col) {
      const size_t head = col / size_;
      double known = 0;
      for (size_t i = 0; i < size_; ++i) {
        known += step.u[head * size_ + i] * state_.At(head, i, col % size_);
      }
      for (size_t i = 0; i < size_; ++i) {
        const size_t row = head * size_ + i;
        double& cell = state_.At(head, i, col % size_);
        cell = step.w[row] * cell + step.k[row] * step.v[col] - step.u[row] * step.a[row] * known;
        y[col] += step.r[row] * cell;
      }
    }
    return y;
  }

  void AddBonus(const Step& step, Vector& y) {
    const Vector& factors = weights_.Get(name_ + "r_k.weight");
    for (size_t first = 0; first < y.size(); first += size_) {
      double bonus = 0;
      for (size_t i = first; i < first + size_; ++i) bonus += step.r[i] * step.k[i] * factors[i];
      for (size_t i = first; i < first + size_; ++i) y[i] += bonus * step.v[i];
    }
  }

  const arch::Rwkv7Mix& spec_;
  std::string name_;
  size_t size_;
  ReferenceWeights& weights_;
  ReferenceWkv state_;
};

inline std::vector<Vector> Reference(const arch::Rwkv7Mix& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  return ReferenceRwkv7(spec, prefix, weights).Run(prefix, in, weights.first_values());
}

// The factor by which a block scales the stream after it has added to it.
inline double ReferenceStreamScale(const arch::Block& block) {
  const auto* mix = std::get_if<arch::ChannelMix>(&block);
  return mix == nullptr ? 1.0 : static_cast<double>(mix->stream_scale);
}

}  // namespace kvant::test
