// The hyper-connections of a stack (engine/arch/sublayers/hyper_streams.h) and the block
// arch::NgramInput in plain loops, from the formulas in their headers. The streams of all rows,
// [tokens][count * dim], and the tokens are kept with the weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/rwkv.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

inline constexpr const char* kHyperRows = "hyper";
inline constexpr const char* kHyperTokens = "hyper.tokens";

// Each of the `count` equal parts of a row, normed with its part of the weights.
inline Vector ReferenceNormOfParts(Vector row, const Vector& weight, size_t count, float epsilon) {
  const size_t dim = row.size() / count;
  for (size_t i = 0; i < count; ++i) {
    ReferenceWeights::NormVector(arch::NormKind::kRms, static_cast<double>(epsilon),
                                 weight.data() + i * dim, dim, row.data() + i * dim);
  }
  return row;
}

inline void ReferenceBeginHyper(const arch::HyperStreams& spec, const std::vector<Vector>& stream,
                                const std::vector<int32_t>& tokens, ReferenceWeights& weights) {
  std::vector<Vector>& kept = weights.Kept(kHyperRows);
  kept.clear();
  for (const Vector& x : stream) {
    Vector& all = kept.emplace_back();
    for (int64_t i = 0; i < spec.shape.count; ++i) all.insert(all.end(), x.begin(), x.end());
  }
  weights.Kept(kHyperTokens) = {Vector(tokens.begin(), tokens.end())};
}

// The mean that a block reads of a row; `shares` gets the factors of its result, unless it is null.
inline Vector ReferenceHyperMean(const arch::HyperStreams& spec, const std::string& name,
                                 const Vector& row, ReferenceWeights& weights, Vector* shares) {
  const auto count = static_cast<size_t>(spec.shape.count);
  const Vector normed =
      ReferenceNormOfParts(row, weights.Get(name + "_norm.weight"), count, spec.epsilon);
  Vector low = weights.Multiply(name + "_down", normed);
  for (double& value : low) {
    value /= static_cast<double>(count);
    value *= ReferenceSigmoid(value);
  }
  const Vector gates = weights.Multiply(name + "_up", low);
  Vector mean(row.size() / count);
  for (size_t i = 0; i < row.size(); ++i) {
    mean[i % mean.size()] += ReferenceSigmoid(gates[i]) * normed[i] / static_cast<double>(count);
  }
  if (shares == nullptr) return mean;
  *shares = weights.Multiply(name + "_inject", normed);
  for (double& share : *shares) {
    share = 2 * ReferenceSigmoid(share / static_cast<double>(count));
  }
  return mean;
}

// Adds a block's result to all streams of a row.
inline void ReferenceInject(const Vector& shares, const Vector& result, Vector& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] += shares[i / result.size()] * result[i % result.size()];
  }
}

// The token `back` positions before `position`, as a hash sees it.
inline int64_t ReferenceNgramToken(const Vector& tokens, size_t position, size_t back, double eos) {
  for (size_t i = 1; i <= back; ++i) {
    if (i > position || tokens[position - i] == eos) return static_cast<int64_t>(eos);
  }
  return static_cast<int64_t>(tokens[position - back]);
}

inline Vector ReferenceNgramRows(const arch::NgramInput& spec, const Vector& tokens,
                                 size_t position, ReferenceWeights& weights) {
  const Vector& table = weights.Get("per_layer_token_embd.weight");
  const auto dim = static_cast<size_t>(spec.row_dim);
  Vector rows;
  for (int64_t size = 2; size <= spec.hash.size; ++size) {
    uint64_t mixed = 0;
    for (int64_t back = 0; back < size; ++back) {
      mixed ^=
          static_cast<uint64_t>(ReferenceNgramToken(tokens, position, static_cast<size_t>(back),
                                                    static_cast<double>(spec.hash.eos))) *
          spec.hash.multipliers[static_cast<size_t>(back)];
    }
    for (int64_t head = 0; head < spec.hash.heads; ++head) {
      const auto number = static_cast<size_t>((size - 2) * spec.hash.heads + head);
      const uint64_t row = spec.hash.offsets[number] + mixed % spec.hash.counts[number];
      const auto begin = table.begin() + static_cast<std::ptrdiff_t>(row * dim);
      rows.insert(rows.end(), begin, begin + spec.row_dim);
    }
  }
  return rows;
}

// Adds n-grams to the streams; what it gives is not added to anything.
inline std::vector<Vector> Reference(const arch::NgramInput& spec, const arch::ModelSpec& model,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector>& streams = weights.Kept(kHyperRows);
  const Vector tokens = weights.Kept(kHyperTokens).front();
  const auto count = static_cast<size_t>(model.stacks.front().hyper->shape.count);
  const auto norm = [&](const char* name, const Vector& row) {
    return ReferenceNormOfParts(row, weights.Get(prefix + name), count, spec.epsilon);
  };
  std::vector<Vector> normed;
  for (size_t t = 0; t < in.size(); ++t) {
    const Vector rows = ReferenceNgramRows(spec, tokens, t, weights);
    const Vector key = norm("ple_norm_key.weight", weights.Multiply(prefix + "ple_key", rows));
    const Vector value = weights.Multiply(prefix + "ple_value", rows);
    const Vector query = norm("ple_norm_query.weight", streams[t]);
    Vector gated;
    for (size_t i = 0; i < count; ++i) {
      double dot = 0;
      for (size_t d = 0; d < value.size(); ++d) {
        dot += key[i * value.size() + d] * query[i * value.size() + d];
      }
      dot /= std::sqrt(static_cast<double>(value.size()));
      const double root = std::copysign(std::sqrt(std::max(std::abs(dot), 1e-6)), dot);
      for (const double one : value) gated.push_back(ReferenceSigmoid(root) * one);
    }
    normed.push_back(norm("ple_norm_conv.weight", gated));
    for (size_t i = 0; i < gated.size(); ++i) streams[t][i] += gated[i];
  }
  const Vector& taps = weights.Get(prefix + "ple_conv1d.weight");
  const auto reach = static_cast<size_t>(spec.taps);
  const auto step = static_cast<size_t>(spec.hash.size);
  for (size_t t = 0; t < in.size(); ++t) {
    for (size_t i = 0; i < streams[t].size(); ++i) {
      double sum = 0;
      for (size_t back = 0; back < reach && back * step <= t; ++back) {
        sum += taps[i * reach + reach - 1 - back] * normed[t - back * step][i];
      }
      streams[t][i] += sum * ReferenceSigmoid(sum);
    }
  }
  return in;
}

}  // namespace kvant::test
