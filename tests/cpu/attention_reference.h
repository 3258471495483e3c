// Shared by the attention tests: a cache of one kv head in runs of any length, random shapes and
// rows of queries, and attention in double precision with a bound on the error of a float
// computation.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "base/half.h"
#include "cpu/activations.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {

struct Shape {
  int k_dim = 64;
  int v_dim = 64;
  int heads_per_kv = 4;
  KvType k_type = KvType::kF32;
  KvType v_type = KvType::kF32;
  int64_t window = 0;
  int64_t cache_begin = 0;  // first cached position, a multiple of 16
  int64_t cache_end = 0;
  float score_cap = 0;
  std::vector<float> bias_slopes = {};  // [heads_per_kv] or none
  std::vector<float> sinks = {};        // [heads_per_kv] or none
  WindowKind window_kind = WindowKind::kSliding;
  KeyForm key_form = KeyForm::kStored;
  TokenCount count = TokenCount::kFew;
  bool in_parts = false;  // products are sums of products of parts, as in AMX

  int query_dim() const { return key_form == KeyForm::kValueFirst ? v_dim + k_dim : k_dim; }
};

// The cache of one kv head in runs of the given lengths (multiples of 16, repeated cyclically),
// each run in memory of its own that ends with the run.
class Cache {
 public:
  Cache(const Shape& shape, std::vector<int64_t> run_lengths) : shape_(shape) {
    for (int64_t begin = shape.cache_begin; begin < shape.cache_end;) {
      const int64_t length = run_lengths[blocks_.size() % run_lengths.size()];
      const int64_t count = std::min(length, shape.cache_end - begin);
      const size_t tiles = static_cast<size_t>(CeilDiv(count, kKeyTileTokens));
      const size_t groups = static_cast<size_t>(CeilDiv(count, kValueTileTokens));
      const size_t value_bytes = shape.v_type == KvType::kQ8
                                     ? groups * KvValueTileBytes(shape.v_type, shape.v_dim)
                                     : KvRowBytes(shape.v_type, count * shape.v_dim);
      Block& block = blocks_.emplace_back();
      block.keys = std::make_unique<GuardedArray<std::byte>>(
          tiles * KvKeyTileBytes(shape.k_type, shape.k_dim));
      block.values = std::make_unique<GuardedArray<std::byte>>(value_bytes);
      block.key_scales = std::make_unique<GuardedArray<float>>(tiles * kKeyTileTokens);
      block.value_scales = std::make_unique<GuardedArray<float>>(static_cast<size_t>(count));
      runs_.push_back({block.keys->data(), block.values->data(), begin, count,
                       block.key_scales->data(), block.value_scales->data()});
      begin += count;
    }
  }

  // Through the scalar kernels, so that what is stored does not depend on the tested ones.
  void Put(int64_t position, const float* key, const float* value) {
    static const KernelTable& scalar = *ChooseKernels("scalar").value();
    const Place place = PlaceOf(position);
    const int key_slot = static_cast<int>(position % kKeyTileTokens);
    const int value_slot = static_cast<int>(position % kValueTileTokens);
    scalar.store_key(key, shape_.k_dim, shape_.k_type, key_slot, place.tile, place.key_scale);
    scalar.store_value(value, shape_.v_dim, shape_.v_type, value_slot, place.group,
                       place.value_scale);
  }

  // The stored values of a key, as numbers.
  double Key(int64_t position, int d) const {
    const Place place = PlaceOf(position);
    const int64_t slot = position % kKeyTileTokens;
    if (shape_.k_type == KvType::kQ8) {
      const int64_t i = (d / 4 * kKeyTileTokens + slot) * 4 + d % 4;
      return (static_cast<int>(place.tile[i]) - 128) * static_cast<double>(*place.key_scale);
    }
    return Element(place.tile, shape_.k_type, d * kKeyTileTokens + slot);
  }
  double Value(int64_t position, int d) const {
    const Place place = PlaceOf(position);
    const int64_t slot = position % kValueTileTokens;
    if (shape_.v_type == KvType::kQ8) {
      const int8_t code = static_cast<int8_t>(place.group[d * kValueTileTokens + slot]);
      return static_cast<float>(code) * *place.value_scale;
    }
    return Element(place.group, shape_.v_type, slot * shape_.v_dim + d);
  }

  // The scale of q8 values; 0 for other types, which have no codes.
  double ValueScale(int64_t position) const {
    if (shape_.v_type != KvType::kQ8) return 0;
    return static_cast<double>(*PlaceOf(position).value_scale);
  }

  std::span<const KvRun> runs() const { return runs_; }

 private:
  struct Block {
    std::unique_ptr<GuardedArray<std::byte>> keys;
    std::unique_ptr<GuardedArray<std::byte>> values;
    std::unique_ptr<GuardedArray<float>> key_scales;
    std::unique_ptr<GuardedArray<float>> value_scales;
  };
  struct Place {
    std::byte* tile;
    std::byte* group;
    float* key_scale;
    float* value_scale;
  };

  static int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

  Place PlaceOf(int64_t position) const {
    size_t i = 0;
    while (position >= runs_[i].first_position + runs_[i].count) ++i;
    const size_t token = static_cast<size_t>(position - runs_[i].first_position);
    return {blocks_[i].keys->data() +
                token / kKeyTileTokens * KvKeyTileBytes(shape_.k_type, shape_.k_dim),
            blocks_[i].values->data() +
                token / kValueTileTokens * KvValueTileBytes(shape_.v_type, shape_.v_dim),
            blocks_[i].key_scales->data() + token, blocks_[i].value_scales->data() + token};
  }

  static double Element(const std::byte* elements, KvType type, int64_t i) {
    if (type == KvType::kF32) return reinterpret_cast<const float*>(elements)[i];
    return F16ToF32(reinterpret_cast<const uint16_t*>(elements)[i]);
  }

  Shape shape_;
  std::vector<Block> blocks_;
  std::vector<KvRun> runs_;
};

struct Rows {
  std::vector<int64_t> positions;
  std::vector<float> queries;  // [rows][heads_per_kv][query_dim]
};

// Uniform with the given deviation.
inline std::vector<float> RandomVector(int64_t count, std::mt19937& generator,
                                       float deviation = 1.0f) {
  const float limit = deviation * std::sqrt(3.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = limit * (static_cast<float>(generator()) * 0x1p-31f - 1.0f);
  }
  return values;
}

template <class T>
inline T OneOf(std::mt19937& generator, std::initializer_list<T> choices) {
  return choices.begin()[generator() % choices.size()];
}

inline Shape RandomShape(std::mt19937& generator) {
  Shape shape;
  shape.k_dim = OneOf(generator, {6, 8, 48, 64, 80, 96});
  shape.v_dim = OneOf(generator, {6, 8, 48, 64, 72, 75, 128});
  shape.heads_per_kv = OneOf(generator, {1, 2, 3, 4, 7, 8});
  shape.k_type = OneOf(generator, {KvType::kF32, KvType::kF16, KvType::kQ8});
  shape.v_type = OneOf(generator, {KvType::kF32, KvType::kF16, KvType::kQ8});
  shape.window = OneOf<int64_t>(generator, {0, 0, 1, 7, 32, 33, 600});
  if (generator() % 3 == 0) shape.window_kind = WindowKind::kSections;
  shape.cache_end = 1 + static_cast<int64_t>(generator() % 700);
  if (shape.window > 0 && generator() % 2 == 0) {  // far from 0, older positions dropped
    const int64_t moved = 16 * static_cast<int64_t>(generator() % 100'000);
    shape.cache_begin += moved;
    shape.cache_end += moved;
  }
  if (generator() % 3 == 0) shape.score_cap = OneOf(generator, {1.5f, 50.0f});
  for (std::vector<float>* each_head : {&shape.bias_slopes, &shape.sinks}) {
    if (generator() % 3 != 0) continue;
    *each_head =
        RandomVector(shape.heads_per_kv, generator, each_head == &shape.sinks ? 3.0f : 0.1f);
  }
  if (generator() % 3 == 0) shape.key_form = KeyForm::kValueFirst;
  shape.count = OneOf(generator, {TokenCount::kFew, TokenCount::kMany});
  return shape;
}

inline std::string Describe(const Shape& shape) {
  const bool sections = shape.window_kind == WindowKind::kSections;
  return fmt::format("k_dim {} v_dim {} heads {} {} {} cache [{}, {}) cap {}{}{}{}{}", shape.k_dim,
                     shape.v_dim, shape.heads_per_kv, sections ? "sections" : "window",
                     shape.window, shape.cache_begin, shape.cache_end, shape.score_cap,
                     shape.bias_slopes.empty() ? "" : " bias", shape.sinks.empty() ? "" : " sinks",
                     shape.key_form == KeyForm::kStored ? "" : ", values first",
                     shape.count == TokenCount::kFew ? "" : ", many tokens");
}

inline void FillRandom(const Shape& shape, Cache& cache, uint32_t seed) {
  std::mt19937 generator(seed);
  for (int64_t p = shape.cache_begin; p < shape.cache_end; ++p) {
    const std::vector<float> key = RandomVector(shape.k_dim, generator, 1.5f);
    const std::vector<float> value = RandomVector(shape.v_dim, generator);
    cache.Put(p, key.data(), value.data());
  }
}

inline Rows RandomRows(const Shape& shape, std::vector<int64_t> positions, uint32_t seed) {
  std::mt19937 generator(seed);
  const int64_t count =
      static_cast<int64_t>(positions.size()) * shape.heads_per_kv * shape.query_dim();
  return {std::move(positions), RandomVector(count, generator)};
}

// The last `count` cached positions, as in a prefill.
inline std::vector<int64_t> LastPositions(const Shape& shape, int64_t count) {
  std::vector<int64_t> positions;
  for (int64_t p = shape.cache_end - count; p < shape.cache_end; ++p) positions.push_back(p);
  return positions;
}

// As `shape`, for kernels that must give the bits of the reference: those of passes with many
// tokens may have an arithmetic of their own.
inline Shape InCommonArithmetic(const KernelTable& kernels, Shape shape) {
  if (kernels.many_form != ActivationForm::kInt8) shape.count = TokenCount::kFew;
  return shape;
}

inline float ScaleOf(const Shape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.query_dim()));
}

// All rows in one call: queries [rows][heads_per_kv][query_dim], out [rows][heads_per_kv][v_dim].
inline AttentionTask MakeTask(const Shape& shape, std::span<const KvRun> runs,
                              std::span<const HiddenPositions> hidden,
                              std::span<const int64_t> positions, const float* queries, float* out,
                              std::span<std::byte> scratch) {
  const auto each_head = [](const std::vector<float>& values) {
    return values.empty() ? nullptr : values.data();
  };
  return {.queries = queries,
          .query_row_stride = int64_t{shape.heads_per_kv} * shape.query_dim(),
          .out = out,
          .out_row_stride = int64_t{shape.heads_per_kv} * shape.v_dim,
          .rows = std::ssize(positions),
          .positions = positions.data(),
          .heads_per_kv = shape.heads_per_kv,
          .k_dim = shape.k_dim,
          .v_dim = shape.v_dim,
          .k_type = shape.k_type,
          .v_type = shape.v_type,
          .scale = ScaleOf(shape),
          .window = shape.window,
          .runs = runs,
          .hidden = hidden,
          .score_cap = shape.score_cap,
          .bias_slopes = each_head(shape.bias_slopes),
          .sinks = each_head(shape.sinks),
          .window_kind = shape.window_kind,
          .scratch = scratch,
          .key_form = shape.key_form,
          .count = shape.count};
}

inline void AttendInto(const KernelTable& kernels, const Shape& shape, std::span<const KvRun> runs,
                       std::span<const HiddenPositions> hidden, std::span<const int64_t> positions,
                       const float* queries, float* out, std::span<std::byte> scratch) {
  kernels.attention(MakeTask(shape, runs, hidden, positions, queries, out, scratch));
}

inline std::vector<float> Attend(const KernelTable& kernels, const Shape& shape,
                                 std::span<const KvRun> runs,
                                 std::span<const HiddenPositions> hidden, const Rows& rows) {
  const int64_t count = std::ssize(rows.positions);
  const GuardedArray<float> queries(rows.queries);
  const GuardedArray<float> out(static_cast<size_t>(count * shape.heads_per_kv * shape.v_dim));
  const GuardedArray<std::byte> scratch(kernels.attention_scratch_bytes(
      count, shape.heads_per_kv, shape.k_dim, shape.v_dim, shape.key_form));
  std::fill(scratch.begin(), scratch.end(), std::byte{0xff});  // NaN
  AttendInto(kernels, shape, runs, hidden, rows.positions, queries.data(), out.data(),
             {scratch.data(), scratch.size()});
  return out.ToVector();
}

// Rows [begin, end) of `rows`.
inline std::vector<float> Attend(const KernelTable& kernels, const Shape& shape, const Cache& cache,
                                 const Rows& rows, size_t begin, size_t end) {
  const auto query_floats =
      static_cast<size_t>(shape.heads_per_kv) * static_cast<size_t>(shape.query_dim());
  const auto part = [begin, end](const auto& v, size_t each) {
    return std::vector(v.begin() + static_cast<std::ptrdiff_t>(begin * each),
                       v.begin() + static_cast<std::ptrdiff_t>(end * each));
  };
  return Attend(kernels, shape, cache.runs(), {},
                {part(rows.positions, 1), part(rows.queries, query_floats)});
}

inline std::vector<float> Attend(const KernelTable& kernels, const Shape& shape, const Cache& cache,
                                 const Rows& rows) {
  return Attend(kernels, shape, cache.runs(), {}, rows);
}

inline int64_t FirstVisible(const Shape& shape, int64_t position) {
  int64_t oldest = shape.window > 0 ? position - shape.window + 1 : 0;
  if (shape.window > 0 && shape.window_kind == WindowKind::kSections) {
    oldest = position / shape.window * shape.window;
  }
  return std::max({int64_t{0}, shape.cache_begin, oldest});
}

// One query vector in double precision, and how far a float computation may be from it.
//
// Let u be the relative error of a rounding. A score is a chain of k_dim fused operations and one
// product, so it is off by at most (k_dim + 2) u scale sum|q k|; of keys that begin with values it
// is a sum of two such. A weight 2^(factor * product - max) has that
// as a relative error, and of |score - max| 2 u from the factor's and u from the exponent's
// rounding, 2 ulp = 4 u from the exponential, or 2^-18 if it meets q8 values; merging a span adds u
// |score - max| and 4 u for its factor, and 2 u for the products. Weights enter numerator and
// denominator. A numerator's sum has at most 512 roundings in its span and 2 for each merge, a
// denominator's fewer, the division one. A sink merges like one more span. A cap has an error of
// its own and a bias one rounding of the score. Weights that meet q8 values, times their scales,
// are rounded to multiples of the product of the largest weight and the largest scale that the row
// sees in the span over kKvWeightCodeMax. Products of parts have an error of their own
// (AttentionTask::count).
struct Exact {
  std::vector<double> out;    // [v_dim]
  std::vector<double> bound;  // [v_dim]
};

// A query as it meets q8 keys.
inline std::vector<double> AsQ8(const float* values, int dim) {
  float absmax = 0.0f;
  for (int d = 0; d < dim; ++d) absmax = std::max(absmax, std::abs(values[d]));
  std::vector<double> codes;
  for (int d = 0; d < dim; ++d) {
    const double code = std::nearbyint(values[d] * (127.0f / absmax));
    codes.push_back(code * static_cast<double>(absmax / 127.0f));
  }
  return codes;
}

// A query as it meets what is stored as `element`.
inline std::vector<double> AsMet(KvType element, const float* values, int dim) {
  return element == KvType::kQ8 ? AsQ8(values, dim) : std::vector<double>(values, values + dim);
}

// How far a product with what is stored as `element` may be from its value, beside roundings.
inline double ProductError(const Shape& shape, KvType element) {
  if (!shape.in_parts || element == KvType::kQ8) return 0.0;
  return element == KvType::kF16 ? 0x1p-15 : 0x1p-22;
}

// The scores of the visible positions, and how far a float computation of one may be from it.
struct ExactScores {
  std::vector<double> scores;
  double error = 0.0;
};

inline ExactScores ScoreExactly(const Shape& shape, const Cache& cache, const float* values,
                                int head, int64_t position) {
  const int first = shape.query_dim() - shape.k_dim;  // numbers that meet values
  const std::vector<double> latent = AsMet(shape.v_type, values, first);
  const std::vector<double> query = AsMet(shape.k_type, values + first, shape.k_dim);
  ExactScores exact;
  for (int64_t p = FirstVisible(shape, position); p <= position; ++p) {
    double dot = 0.0;
    double magnitude = 0.0;
    const auto add = [&](double product) {
      dot += product;
      magnitude += std::abs(product);
    };
    for (int d = 0; d < first; ++d) add(latent[static_cast<size_t>(d)] * cache.Value(p, d));
    for (int d = 0; d < shape.k_dim; ++d) add(query[static_cast<size_t>(d)] * cache.Key(p, d));
    const double scale = ScaleOf(shape);
    double score = scale * dot;
    double error = ((shape.query_dim() + 4) * kRounding + ProductError(shape, shape.k_type)) *
                   scale * magnitude;
    if (shape.score_cap > 0) {
      const double cap = shape.score_cap;
      score = cap * std::tanh(score / cap);
      error += cap * 0x1p-21;
    }
    if (!shape.bias_slopes.empty()) {
      score -= static_cast<double>(shape.bias_slopes[static_cast<size_t>(head)]) *
               std::abs(static_cast<double>(p - position));
      error += kRounding * std::abs(score);
    }
    exact.scores.push_back(score);
    exact.error = std::max(exact.error, error);
  }
  return exact;
}

inline Exact ExactAttention(const Shape& shape, const Cache& cache, const float* values, int head,
                            int64_t position) {
  const int64_t begin = FirstVisible(shape, position);
  const auto [scores, score_error] = ScoreExactly(shape, cache, values, head, position);
  const auto [lowest, highest] = std::minmax_element(scores.begin(), scores.end());
  const bool has_sink = !shape.sinks.empty();
  const double sink = has_sink ? static_cast<double>(shape.sinks[static_cast<size_t>(head)]) : 0;
  const double max = has_sink ? std::max(sink, *highest) : *highest;
  const double spread = max - *lowest;
  const double exponential_error = shape.v_type == KvType::kQ8 ? 0x1p-18 : 4 * kRounding;
  const double weight_error = score_error + exponential_error + kRounding * (4 * spread + 4 + 2);
  const double spans =
      static_cast<double>(position / kAttentionSpan - begin / kAttentionSpan + 1 + has_sink);
  const double visible = static_cast<double>(scores.size());
  const double sum_error = kRounding * (std::min(visible, double{kAttentionSpan}) + 2 * spans + 1) +
                           ProductError(shape, shape.v_type);

  double total = has_sink ? std::exp(sink - max) : 0.0;
  std::vector<double> weights;
  std::vector<double> value_scales;
  for (size_t i = 0; i < scores.size(); ++i) {
    weights.push_back(std::exp(scores[i] - max));
    total += weights.back();
    value_scales.push_back(cache.ValueScale(begin + static_cast<int64_t>(i)));
  }
  Exact exact;
  for (int d = 0; d < shape.v_dim; ++d) {
    double sum = 0.0;
    double magnitude = 0.0;
    double code_error = 0.0;
    double largest_weight = 0.0;  // of a span, as the next ones
    double largest_scale = 0.0;
    double span_codes = 0.0;  // sum of the values' codes without their signs
    for (size_t i = 0; i < scores.size(); ++i) {
      const int64_t position_i = begin + static_cast<int64_t>(i);
      const double weight = weights[i];
      const double value = cache.Value(position_i, d);
      const double value_scale = value_scales[i];
      sum += weight * value;
      magnitude += weight * std::abs(value);
      largest_weight = std::max(largest_weight, weight);
      largest_scale = std::max(largest_scale, value_scale);
      if (value_scale > 0) span_codes += std::abs(value) / value_scale;
      if (position_i == position || position_i % kAttentionSpan == kAttentionSpan - 1) {
        code_error += 0.5 * largest_weight * largest_scale / kKvWeightCodeMax * span_codes;
        largest_weight = largest_scale = span_codes = 0.0;
      }
    }
    exact.out.push_back(sum / total);
    exact.bound.push_back((1.01 * 2 * (weight_error + sum_error) * magnitude + 1.01 * code_error) /
                          total);
  }
  return exact;
}

}  // namespace kvant::cpu::test
