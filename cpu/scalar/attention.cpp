// Attention in plain code, one query vector at a time: the order of operations that cpu/generic
// promises, without its tiles, blocks and vectors.
#include "cpu/scalar/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/kv_format_list.h"
#include "cpu/scalar/math.h"
#include "cpu/scalar/quantized_vector.h"

namespace kvant::cpu::scalar {
namespace {

// The largest code of a query that meets codes.
constexpr int kQueryCodeMax = 127;

// A query and the row it belongs to.
struct Query {
  const AttentionTask& task;
  const float* values;  // [k_dim], what meets the key tiles
  int64_t row;
  int64_t head;
  QuantizedVector codes;
  // The following two are for KeyForm::kValueFirst only.
  const float* latent;  // [v_dim], what meets values
  QuantizedVector latent_codes;

  bool Sees(uint64_t rows) const {
    return (rows >> ((row + task.mask_row) % kMaskedRowsMax) & 1) != 0;
  }
  bool Sees(int64_t position) const {
    return std::none_of(task.hidden.begin(), task.hidden.end(), [&](const HiddenPositions& h) {
      return Sees(h.rows) && h.begin <= position && position < h.end;
    });
  }
};

// Calls visit(run, position) for every cached position in [begin, end) that the query sees, in
// order.
template <class Visit>
void ForEachPosition(const Query& query, int64_t begin, int64_t end, const Visit& visit) {
  for (const KvRun& run : query.task.runs) {
    if (!query.Sees(run.rows)) continue;
    const int64_t first = std::max(begin, run.first_position);
    const int64_t last = std::min(end, run.first_position + run.count);
    for (int64_t position = first; position < last; ++position) {
      if (query.Sees(position)) visit(run, position);
    }
  }
}

// Number d of the value of a run's token, before its scale.
template <class Format>
auto Value(const AttentionTask& task, const KvRun& run, int64_t token, int64_t d) {
  const size_t t = static_cast<size_t>(token);
  const std::byte* group = run.values + ValueTileOffset(task.v_type, task.v_dim, t);
  return Format::Decode(Format::Value(group, t % kValueTileTokens, static_cast<size_t>(d),
                                      static_cast<size_t>(task.v_dim)));
}

// The scales of a token, among the scales of a run.
const std::byte* ScalesAt(const void* scales, KvType type, int dim, int64_t token) {
  return static_cast<const std::byte*>(scales) +
         static_cast<size_t>(token) * KvScaleBytes(type, dim);
}

// The product of a query's codes and the codes of a key or value, number(d), times the scales of
// those: an exact integer for all codes that share a scale.
template <class Format, class Number>
float CodeProduct(const QuantizedVector& codes, int64_t dims, const std::byte* scales,
                  const Number& number) {
  float product = 0.0f;
  for (int64_t begin = 0; begin < dims; begin += Format::kNumbersPerScale) {
    int dot = 0;
    const int64_t end = std::min<int64_t>(dims, begin + Format::kNumbersPerScale);
    for (int64_t d = begin; d < end; ++d) dot += codes[d] * number(d);
    const float part =
        static_cast<float>(dot) * KvScaleOf<Format>(scales, static_cast<size_t>(begin));
    product = begin == 0 ? part : product + part;
  }
  return product;
}

// The product of a query's first part and a value, times the task's scale.
float ValueProduct(const Query& query, const KvRun& run, int64_t token) {
  const AttentionTask& task = query.task;
  return VisitKvFormat(task.v_type, [&]<class Format>(Format) {
    if constexpr (Format::kHasScales) {
      const std::byte* scales = ScalesAt(run.value_scales, task.v_type, task.v_dim, token);
      const auto number = [&](int64_t d) { return Value<Format>(task, run, token, d); };
      return CodeProduct<Format>(query.latent_codes, task.v_dim, scales, number) *
             (query.latent_codes.scale() * task.scale);
    } else {
      float lanes[kSumLanes] = {};
      for (int64_t d = 0; d < task.v_dim; ++d) {
        float& lane = lanes[d % kSumLanes];
        lane = std::fma(query.latent[d], Value<Format>(task, run, token, d), lane);
      }
      return task.scale * SumLanes(lanes);
    }
  });
}

// The factor that makes a score of the product of a query and a key tile's part of a key.
float TileFactor(const Query& query) {
  const AttentionTask& task = query.task;
  return KvHasScales(task.k_type) ? query.codes.scale() * task.scale : task.scale;
}

// The product of a query and a key tile's part of a key.
float TileProduct(const Query& query, const KvRun& run, int64_t position) {
  const AttentionTask& task = query.task;
  const size_t token = static_cast<size_t>(position - run.first_position);
  const std::byte* tile = run.keys + KeyTileOffset(task.k_type, task.k_dim, token);
  const size_t slot = token % kKeyTileTokens;
  return VisitKvFormat(task.k_type, [&]<class Format>(Format) {
    const auto number = [&](int64_t d) {
      return Format::Decode(Format::Key(tile, slot, static_cast<size_t>(d)));
    };
    if constexpr (Format::kHasScales) {
      const std::byte* scales =
          ScalesAt(run.key_scales, task.k_type, task.k_dim, static_cast<int64_t>(token));
      return CodeProduct<Format>(query.codes, task.k_dim, scales, number);
    } else {
      float dot = 0.0f;
      for (int64_t d = 0; d < task.k_dim; ++d) dot = std::fma(query.values[d], number(d), dot);
      return dot;
    }
  });
}

// The product of a query and a key, which a factor common to all keys makes an exponent of 2.
float Product(const Query& query, const KvRun& run, int64_t position) {
  const float product = TileProduct(query, run, position);
  if (query.task.key_form != KeyForm::kValueFirst) return product;
  return product * TileFactor(query) + ValueProduct(query, run, position - run.first_position);
}

// A score with the cap and the biases that some families apply.
float Adjusted(const Query& query, float score, int64_t position) {
  const AttentionTask& task = query.task;
  if (task.score_cap > 0.0f) score = task.score_cap * Tanh(score / task.score_cap);
  const int64_t distance = position - task.OriginOf(query.row);
  if (task.bias_slopes != nullptr) {
    score = std::fma(task.bias_slopes[query.head], -static_cast<float>(std::abs(distance)), score);
  }
  if (task.distance_bias.values != nullptr) score += *task.distance_bias.At(query.head, distance);
  return score;
}

// Softmax over a part of the positions, not yet divided: sums[d] = sum of e^(score - max) value[d].
struct Partial {
  float max = -std::numeric_limits<float>::infinity();  // of scores times log2(e)
  float total = 0.0f;                                   // sum of e^(score - max)
  float* sums;                                          // [v_dim]
  bool empty = true;
};

// The positions [begin, end) of a span that a query sees, and a number for each: what products
// become, then the weight e^(score - max).
struct SeenPositions {
  int64_t begin;
  int64_t end;
  float numbers[kAttentionSpan];

  float& operator[](int64_t position) { return numbers[position % kAttentionSpan]; }
};

template <class Format>
void WeighValues(const Query& query, SeenPositions& seen, Partial& span) {
  const AttentionTask& task = query.task;
  ForEachPosition(query, seen.begin, seen.end, [&](const KvRun& run, int64_t position) {
    const int64_t token = position - run.first_position;
    for (int64_t d = 0; d < task.v_dim; ++d) {
      span.sums[d] = std::fma(seen[position], Value<Format>(task, run, token, d), span.sums[d]);
    }
  });
}

// The sums of dimensions [begin, end), whose codes share scales. Weights times these scales become
// integers, relative to the largest scale.
template <class Format>
void WeighCodes(const Query& query, SeenPositions& seen, int64_t begin, int64_t end,
                Partial& span) {
  const AttentionTask& task = query.task;
  const auto scale_of = [&](const KvRun& run, int64_t token) {
    return KvScaleOf<Format>(ScalesAt(run.value_scales, task.v_type, task.v_dim, token),
                             static_cast<size_t>(begin));
  };
  constexpr float kWeightMax = kKvWeightCodeMax;
  float largest = 0.0f;
  float taint = 0.0f;  // NaN where a value was not finite
  ForEachPosition(query, seen.begin, seen.end, [&](const KvRun& run, int64_t position) {
    const float scale = scale_of(run, position - run.first_position);
    if (std::isfinite(scale)) {
      largest = std::max(largest, scale);
    } else if (seen[position] != 0.0f) {
      taint = std::numeric_limits<float>::quiet_NaN();
    }
  });
  const bool vanishes = largest < 0x1p-100f;
  const float inverse = vanishes ? 0.0f : kWeightMax / largest;
  const float step = (vanishes ? 0.0f : largest / kWeightMax) + taint;
  std::vector<int> dots(static_cast<size_t>(end - begin), 0);
  ForEachPosition(query, seen.begin, seen.end, [&](const KvRun& run, int64_t position) {
    const int64_t token = position - run.first_position;
    const float scale = scale_of(run, token);
    const float code_scale = std::isfinite(scale) ? scale * inverse : 0.0f;
    const float rounded = std::fma(seen[position], code_scale, 0x1.8p23f) - 0x1.8p23f;
    const int code = std::isfinite(rounded) ? static_cast<int>(rounded) : 0;
    for (int64_t d = begin; d < end; ++d) {
      dots[static_cast<size_t>(d - begin)] += code * Value<Format>(task, run, token, d);
    }
  });
  for (int64_t d = begin; d < end; ++d) {
    span.sums[d] = static_cast<float>(dots[static_cast<size_t>(d - begin)]) * step;
  }
}

void AttendSpan(const Query& query, int64_t begin, int64_t end, Partial& span) {
  const AttentionTask& task = query.task;
  SeenPositions seen = {begin, end, {}};
  std::fill_n(span.sums, task.v_dim, 0.0f);
  const float natural = task.key_form == KeyForm::kValueFirst ? 1.0f : TileFactor(query);
  const bool adjusts =
      task.score_cap != 0.0f || task.bias_slopes != nullptr || task.distance_bias.values != nullptr;
  float factor = natural * kLog2E;
  const bool multiplied_first = adjusts || !(factor >= 0x1p-100f && factor <= 0x1p100f);
  if (multiplied_first) factor = kLog2E;
  ForEachPosition(query, begin, end, [&](const KvRun& run, int64_t position) {
    float number = Product(query, run, position);
    if (multiplied_first) number = Adjusted(query, number * natural, position);
    seen[position] = number;
    span.max = span.max > number ? span.max : number;
    span.empty = false;
  });
  const float base = std::isinf(span.max) && span.max < 0 ? 0.0f : span.max;
  span.max *= factor;
  float lanes[kSumLanes] = {};
  VisitKvFormat(task.v_type, [&]<class Format>(Format) {
    constexpr int kErrorBits = Format::kHasScales ? 18 : 28;
    ForEachPosition(query, begin, end, [&](const KvRun&, int64_t position) {
      seen[position] = Exp2<kErrorBits>(seen[position], base, factor);
      lanes[position % kSumLanes] += seen[position];
    });
    span.total = SumLanes(lanes);
    if constexpr (Format::kHasScales) {
      for (int64_t first = 0; first < task.v_dim; first += Format::kNumbersPerScale) {
        const int64_t some = std::min<int64_t>(Format::kNumbersPerScale, task.v_dim - first);
        WeighCodes<Format>(query, seen, first, first + some, span);
      }
    } else {
      WeighValues<Format>(query, seen, span);
    }
  });
}

void Merge(const Partial& span, int64_t v_dim, Partial& result) {
  const float max = result.max > span.max ? result.max : span.max;
  const float old_factor = Exp2<28>(result.max, max, 1.0f);
  const float span_factor = Exp2<28>(span.max, max, 1.0f);
  result.max = max;
  result.total = std::fma(result.total, old_factor, span.total * span_factor);
  for (int64_t d = 0; d < v_dim; ++d) {
    result.sums[d] = std::fma(result.sums[d], old_factor, span.sums[d] * span_factor);
  }
  result.empty = false;
}

// Where a span's partial result lies between a call for some spans and the merge.
float* PartialOf(const Query& query, int64_t span) {
  const AttentionTask& task = query.task;
  const int64_t queries = task.rows * task.heads_per_kv;
  const int64_t record =
      (span - task.slice.first) * queries + query.row * task.heads_per_kv + query.head;
  return task.slice.partials + record * AttentionPartialFloats(task.v_dim);
}

void StorePartial(const Partial& span, int64_t v_dim, float* record) {
  record[0] = span.max;
  record[1] = span.empty ? 0.0f : span.total;
  std::copy_n(span.sums, v_dim, record + 16);
}

// Calls visit(number, begin, end) for the spans of the task that hold positions which the query
// sees.
template <class Visit>
void ForEachSpan(const Query& query, const Visit& visit) {
  const AttentionTask& task = query.task;
  const int64_t position = task.positions[query.row];
  const int64_t oldest = FirstInWindow(task.window_kind, task.window, position);
  const int64_t last = std::min(position / kAttentionSpan, task.slice.end - 1);
  for (int64_t c = std::max(oldest / kAttentionSpan, task.slice.begin); c <= last; ++c) {
    visit(c, std::max(oldest, c * kAttentionSpan),
          std::min(position + 1, (c + 1) * kAttentionSpan));
  }
}

void WriteResult(const Query& query, Partial& result) {
  const AttentionTask& task = query.task;
  if (task.sinks != nullptr) {
    std::vector<float> zeros(static_cast<size_t>(task.v_dim), 0.0f);
    const float score = task.sinks[query.head] * kLog2E;
    const Partial sink{.max = score, .total = 1.0f, .sums = zeros.data()};
    Merge(sink, task.v_dim, result);
  }
  float* out = task.out + query.row * task.out_row_stride + query.head * task.v_dim;
  // A row that sees nothing gets zeros.
  for (int64_t d = 0; d < task.v_dim; ++d) {
    out[d] = result.empty ? 0.0f : result.sums[d] / result.total;
  }
}

// Attends to the task's spans; sums: [2][v_dim] of working memory.
void AttendQuery(const Query& query, float* sums) {
  const AttentionTask& task = query.task;
  Partial result{.sums = sums};
  std::fill_n(result.sums, task.v_dim, 0.0f);
  ForEachSpan(query, [&](int64_t number, int64_t begin, int64_t end) {
    Partial span{.sums = sums + task.v_dim};
    AttendSpan(query, begin, end, span);
    if (task.slice.partials != nullptr) {
      StorePartial(span, task.v_dim, PartialOf(query, number));
    } else if (!span.empty) {
      Merge(span, task.v_dim, result);
    }
  });
  if (task.slice.partials == nullptr) WriteResult(query, result);
}

void MergeQuery(const Query& query, float* sums) {
  const int64_t v_dim = query.task.v_dim;
  Partial result{.sums = sums};
  std::fill_n(result.sums, v_dim, 0.0f);
  ForEachSpan(query, [&](int64_t number, int64_t /*begin*/, int64_t /*end*/) {
    float* record = PartialOf(query, number);
    const Partial span{.max = record[0], .total = record[1], .sums = record + 16};
    if (span.total != 0.0f) Merge(span, v_dim, result);
  });
  WriteResult(query, result);
}

// Calls visit(query) for every query vector of a task.
template <class Visit>
void ForEachQuery(const AttentionTask& task, bool quantize, const Visit& visit) {
  for (int64_t row = 0; row < task.rows; ++row) {
    for (int64_t head = 0; head < task.heads_per_kv; ++head) {
      const float* latent = task.queries + row * task.query_row_stride + head * task.query_dim();
      const float* values = latent + task.query_dim() - task.k_dim;
      const bool codes = quantize && KvHasScales(task.k_type);
      const bool latent_codes =
          quantize && task.key_form == KeyForm::kValueFirst && KvHasScales(task.v_type);
      visit(Query{task, values, row, head,
                  QuantizedVector(values, codes ? task.k_dim : 0, kQueryCodeMax), latent,
                  QuantizedVector(latent, latent_codes ? task.v_dim : 0, kQueryCodeMax)});
    }
  }
}

}  // namespace

size_t AttentionScratchBytes(int64_t /*rows*/, int /*heads_per_kv*/, int /*k_dim*/, int v_dim,
                             KeyForm /*key_form*/) {
  return static_cast<size_t>(v_dim) * 2 * sizeof(float);
}

void Attention(const AttentionTask& task) {
  float* sums = reinterpret_cast<float*>(task.scratch.data());
  ForEachQuery(task, true, [&](const Query& query) { AttendQuery(query, sums); });
}

void AttentionMerge(const AttentionTask& task) {
  float* sums = reinterpret_cast<float*>(task.scratch.data());
  ForEachQuery(task, false, [&](const Query& query) { MergeQuery(query, sums); });
}

}  // namespace kvant::cpu::scalar
