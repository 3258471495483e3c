// An indexer in plain loops over the whole sequence: which positions each row sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "cpu/kernels/rope.h"
#include "engine/arch/spec.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceIndexer {
 public:
  ReferenceIndexer(const arch::Indexer& spec, const arch::ModelSpec& model,
                   const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec), shape_(spec.shape), model_(model), prefix_(prefix), weights_(weights) {}

  // For each row [choices][positions], 1 where the row sees the position. `in` are the normed rows,
  // `small` what the queries of latent attention are made of, otherwise empty. Layers without an
  // indexer of their own get what the last one has chosen.
  const std::vector<Vector>& Run(const std::vector<Vector>& in, const std::vector<Vector>& small) {
    std::vector<Vector>& seen = weights_.Kept("choice");
    if (spec_.reuses) return seen;
    seen.clear();
    std::vector<Vector> keys;
    std::vector<Vector> products;
    for (size_t t = 0; t < in.size(); ++t) {
      const auto kind = has_own_queries() ? arch::NormKind::kRms : arch::NormKind::kLayer;
      const char* key = has_own_queries() ? "indexer.k_proj" : "indexer.attn_k";
      products.push_back(weights_.Multiply(prefix_ + key, in[t]));
      keys.push_back(weights_.Norm(prefix_, {kind, "indexer.k_norm", spec_.epsilon},
                                   shape_.pooled ? MeanOfLast(products) : products.back()));
      const size_t ahead = shape_.pooled ? static_cast<size_t>(shape_.block) - 1 : 0;
      Rotate(keys[t].data(), t < ahead ? 0 : t - ahead);
      seen.push_back(Choose(in[t], small.empty() ? Vector() : small[t], t, keys));
    }
    for (size_t t = 0; t < in.size(); ++t) seen[t] = WithWidth(seen[t], t + 1, in.size());
    return seen;
  }

 private:
  bool has_own_queries() const { return shape_.per_head || shape_.pooled; }

  // The mean of the products of a block that ends with the last row; there may be fewer.
  Vector MeanOfLast(const std::vector<Vector>& products) const {
    const auto block = static_cast<size_t>(shape_.block);
    Vector mean(static_cast<size_t>(shape_.dim));
    for (size_t i = 0; i < std::min(block, products.size()); ++i) {
      const Vector& one = products[products.size() - 1 - i];
      for (size_t d = 0; d < mean.size(); ++d) mean[d] += one[d] / static_cast<double>(block);
    }
    return mean;
  }

  Vector Queries(const Vector& in, const Vector& small, size_t position) {
    Vector queries = has_own_queries() ? weights_.Multiply(prefix_ + "indexer.q_proj", in)
                                       : weights_.Multiply(prefix_ + "indexer.attn_q_b", small);
    for (int64_t h = 0; h < shape_.heads; ++h) {
      double* query = queries.data() + h * shape_.dim;
      if (has_own_queries()) {
        const Vector& norm = weights_.Get(prefix_ + "indexer.q_norm.weight");
        ReferenceWeights::NormVector(arch::NormKind::kRms, static_cast<double>(spec_.epsilon),
                                     norm.data(), norm.size(), query);
      }
      Rotate(query, position);
    }
    return queries;
  }

  // The rotation of the first values of a vector.
  void Rotate(double* part, size_t position) const {
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
      double& a = part[halves ? i : 2 * i];
      double& b = part[halves ? i + half : 2 * i + 1];
      const double amplitude = static_cast<double>(rope.amplitude);
      const double turned = amplitude * (a * std::cos(angle) - b * std::sin(angle));
      b = amplitude * (a * std::sin(angle) + b * std::cos(angle));
      a = turned;
    }
  }

  // [choices][position + 1]
  Vector Choose(const Vector& in, const Vector& small, size_t position,
                const std::vector<Vector>& keys) {
    const Vector queries = Queries(in, small, position);
    const Vector heads =
        has_own_queries() ? Vector() : weights_.Multiply(prefix_ + "indexer.proj", in);
    Vector seen;
    for (int64_t choice = 0; choice < shape_.choices(); ++choice) {
      Vector units;
      for (size_t p = 0; p <= position; ++p) {
        double score = 0;
        for (int64_t h = 0; h < (shape_.per_head ? 1 : shape_.heads); ++h) {
          double product = 0;
          for (int64_t d = 0; d < shape_.dim; ++d) {
            product += queries[static_cast<size_t>((choice + h) * shape_.dim + d)] *
                       keys[p][static_cast<size_t>(d)];
          }
          const double root =
              std::sqrt(static_cast<double>(shape_.heads) * static_cast<double>(shape_.dim));
          const double head = heads.empty() ? 1 : heads[static_cast<size_t>(h)] / root;
          score += shape_.per_head ? product : head * std::max(0.0, product);
        }
        const size_t unit = p / static_cast<size_t>(shape_.block);
        if (unit == units.size()) units.push_back(score);
        // The key of a pooled block is in its last position; until then the block is always seen.
        const bool whole = (p + 1) % static_cast<size_t>(shape_.block) == 0;
        units[unit] = !shape_.pooled ? std::max(units[unit], score) : whole ? score : HUGE_VAL;
      }
      const Vector chosen = Best(units);
      for (size_t p = 0; p <= position; ++p) {
        seen.push_back(chosen[p / static_cast<size_t>(shape_.block)]);
      }
    }
    return seen;
  }

  // 1 for the units that are chosen.
  Vector Best(Vector units) const {
    for (size_t i = 0; i < units.size() && static_cast<int64_t>(i) < shape_.local; ++i) {
      units[units.size() - 1 - i] = HUGE_VAL;
    }
    std::vector<size_t> order(units.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return units[a] > units[b]; });
    Vector chosen(units.size());
    const bool lacks = shape_.pooled && !units.empty() && units.back() == HUGE_VAL;
    const int64_t most = shape_.top_k + (lacks ? 1 : 0);
    for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < most; ++i) {
      chosen[order[i]] = 1;
    }
    return chosen;
  }

  // Gives each choice `after` positions instead of `before`; the new ones are not seen.
  Vector WithWidth(const Vector& seen, size_t before, size_t after) const {
    Vector wide(static_cast<size_t>(shape_.choices()) * after);
    for (size_t choice = 0; choice < static_cast<size_t>(shape_.choices()); ++choice) {
      std::copy_n(seen.begin() + static_cast<std::ptrdiff_t>(choice * before), before,
                  wide.begin() + static_cast<std::ptrdiff_t>(choice * after));
    }
    return wide;
  }

  const arch::Indexer& spec_;
  const graph::IndexShape& shape_;
  const arch::ModelSpec& model_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
};

}  // namespace kvant::test
