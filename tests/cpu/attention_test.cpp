// Attention against a double-precision softmax over the visible positions, exact counts of what is
// visible, and equal bits however the same work is cut into rows, runs and threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "base/half.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

struct Shape {
  int k_dim = 64;
  int v_dim = 64;
  int heads_per_kv = 4;
  KvElement k_element = KvElement::kF32;
  KvElement v_element = KvElement::kF32;
  int64_t window = 0;
  int64_t cache_begin = 0;  // first cached position, a multiple of 16
  int64_t cache_end = 0;
};

// The cache of one kv head in runs of the given lengths (multiples of 16, repeated in turn), each
// run in memory of its own that ends with the run.
class Cache {
 public:
  Cache(const Shape& shape, std::vector<int64_t> run_lengths) : shape_(shape) {
    for (int64_t begin = shape.cache_begin; begin < shape.cache_end;) {
      const int64_t length = run_lengths[blocks_.size() % run_lengths.size()];
      const int64_t count = std::min(length, shape.cache_end - begin);
      const int64_t tiles = (count + kKeyTileTokens - 1) / kKeyTileTokens;
      Block& block = blocks_.emplace_back();
      block.keys = std::make_unique<GuardedArray<std::byte>>(
          static_cast<size_t>(tiles * kKeyTileTokens * shape.k_dim) *
          KvElementBytes(shape.k_element));
      block.values = std::make_unique<GuardedArray<std::byte>>(
          static_cast<size_t>(count * shape.v_dim) * KvElementBytes(shape.v_element));
      runs_.push_back({block.keys->data(), block.values->data(), begin, count});
      begin += count;
    }
  }

  // Through the scalar kernels, so that what is stored does not depend on the tested ones.
  void Put(int64_t position, const float* key, const float* value) {
    static const KernelTable& scalar = *ChooseKernels("scalar").value();
    const auto [tile, row] = Places(position);
    const int slot = static_cast<int>(position % kKeyTileTokens);
    scalar.store_key(key, shape_.k_dim, shape_.k_element, slot, tile);
    scalar.store_value(value, shape_.v_dim, shape_.v_element, row);
  }

  // What was stored, as numbers.
  double Key(int64_t position, int d) const {
    const int64_t slot = position % kKeyTileTokens;
    return Element(Places(position).tile, shape_.k_element, d * kKeyTileTokens + slot);
  }
  double Value(int64_t position, int d) const {
    return Element(Places(position).row, shape_.v_element, d);
  }

  std::span<const KvRun> runs() const { return runs_; }

 private:
  struct Block {
    std::unique_ptr<GuardedArray<std::byte>> keys;
    std::unique_ptr<GuardedArray<std::byte>> values;
  };
  struct Place {
    std::byte* tile;
    std::byte* row;
  };

  Place Places(int64_t position) const {
    size_t i = 0;
    while (position >= runs_[i].first_position + runs_[i].count) ++i;
    const int64_t token = position - runs_[i].first_position;
    const size_t tile = static_cast<size_t>(token / kKeyTileTokens * kKeyTileTokens);
    return {blocks_[i].keys->data() +
                tile * static_cast<size_t>(shape_.k_dim) * KvElementBytes(shape_.k_element),
            blocks_[i].values->data() +
                static_cast<size_t>(token * shape_.v_dim) * KvElementBytes(shape_.v_element)};
  }

  static double Element(const std::byte* elements, KvElement type, int64_t i) {
    if (type == KvElement::kF32) return reinterpret_cast<const float*>(elements)[i];
    return F16ToF32(reinterpret_cast<const uint16_t*>(elements)[i]);
  }

  Shape shape_;
  std::vector<Block> blocks_;
  std::vector<KvRun> runs_;
};

struct Rows {
  std::vector<int64_t> positions;
  std::vector<float> queries;  // [rows][heads_per_kv][k_dim]
};

// Uniform with the given deviation.
std::vector<float> RandomVector(int64_t count, std::mt19937& generator, float deviation = 1.0f) {
  const float limit = deviation * std::sqrt(3.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = limit * (static_cast<float>(generator()) * 0x1p-31f - 1.0f);
  }
  return values;
}

void FillRandom(const Shape& shape, Cache& cache, uint32_t seed) {
  std::mt19937 generator(seed);
  for (int64_t p = shape.cache_begin; p < shape.cache_end; ++p) {
    const std::vector<float> key = RandomVector(shape.k_dim, generator, 1.5f);
    const std::vector<float> value = RandomVector(shape.v_dim, generator);
    cache.Put(p, key.data(), value.data());
  }
}

Rows RandomRows(const Shape& shape, std::vector<int64_t> positions, uint32_t seed) {
  std::mt19937 generator(seed);
  const int64_t count = static_cast<int64_t>(positions.size()) * shape.heads_per_kv * shape.k_dim;
  return {std::move(positions), RandomVector(count, generator)};
}

// The last `count` cached positions, as in a prefill.
std::vector<int64_t> LastPositions(const Shape& shape, int64_t count) {
  std::vector<int64_t> positions;
  for (int64_t p = shape.cache_end - count; p < shape.cache_end; ++p) positions.push_back(p);
  return positions;
}

float ScaleOf(const Shape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.k_dim)); }

// Rows [begin, end) of `rows`, computed in one call.
std::vector<float> Attend(const KernelTable& kernels, const Shape& shape, const Cache& cache,
                          const Rows& rows, size_t begin, size_t end) {
  const size_t query_floats = static_cast<size_t>(shape.heads_per_kv * shape.k_dim);
  const size_t out_floats = static_cast<size_t>(shape.heads_per_kv * shape.v_dim);
  const auto offset = [](const std::vector<float>& v, size_t i) {
    return v.begin() + static_cast<std::ptrdiff_t>(i);
  };
  const GuardedArray<float> queries(std::vector<float>(offset(rows.queries, begin * query_floats),
                                                       offset(rows.queries, end * query_floats)));
  const GuardedArray<float> out((end - begin) * out_floats);
  const int64_t count = static_cast<int64_t>(end - begin);
  const GuardedArray<std::byte> scratch(
      kernels.attention_scratch_bytes(count, shape.heads_per_kv, shape.k_dim, shape.v_dim));
  std::fill(scratch.begin(), scratch.end(), std::byte{0xff});  // NaN
  kernels.attention({.queries = queries.data(),
                     .query_row_stride = static_cast<int64_t>(query_floats),
                     .out = out.data(),
                     .out_row_stride = static_cast<int64_t>(out_floats),
                     .rows = count,
                     .positions = rows.positions.data() + begin,
                     .heads_per_kv = shape.heads_per_kv,
                     .k_dim = shape.k_dim,
                     .v_dim = shape.v_dim,
                     .k_element = shape.k_element,
                     .v_element = shape.v_element,
                     .scale = ScaleOf(shape),
                     .window = shape.window,
                     .runs = cache.runs(),
                     .scratch = {scratch.data(), scratch.size()}});
  return out.ToVector();
}

std::vector<float> Attend(const KernelTable& kernels, const Shape& shape, const Cache& cache,
                          const Rows& rows) {
  return Attend(kernels, shape, cache, rows, 0, rows.positions.size());
}

int64_t FirstVisible(const Shape& shape, int64_t position) {
  const int64_t oldest = shape.window > 0 ? position - shape.window + 1 : 0;
  return std::max({int64_t{0}, shape.cache_begin, oldest});
}

// One query vector in double precision, and how far a float computation may be from it.
//
// Let u be the relative error of a rounding. A score is a chain of k_dim fused operations and one
// product, so it is off by at most (k_dim + 2) u scale sum|q k|. A weight e^(score - max) has that
// as a relative error, and u |score - max| from the subtraction, 2 ulp = 4 u from the exponential;
// merging a chunk adds the same two for its factor, and 2 u for the products. Weights enter
// numerator and denominator. A numerator's sum has at most 512 roundings in its chunk and 2 for
// each merge, a denominator's fewer, the division one.
struct Exact {
  std::vector<double> out;    // [v_dim]
  std::vector<double> bound;  // [v_dim]
};

Exact ExactAttention(const Shape& shape, const Cache& cache, const float* query, int64_t position) {
  const int64_t begin = FirstVisible(shape, position);
  std::vector<double> scores;
  double score_error = 0.0;
  for (int64_t p = begin; p <= position; ++p) {
    double dot = 0.0;
    double magnitude = 0.0;
    for (int d = 0; d < shape.k_dim; ++d) {
      const double product = query[d] * cache.Key(p, d);
      dot += product;
      magnitude += std::abs(product);
    }
    const double scale = ScaleOf(shape);
    scores.push_back(scale * dot);
    score_error = std::max(score_error, (shape.k_dim + 2) * kRounding * scale * magnitude);
  }
  const auto [min, max] = std::minmax_element(scores.begin(), scores.end());
  const double spread = *max - *min;
  const double weight_error = score_error + kRounding * (2 * spread + 4 + 4 + 2);
  const double chunks =
      static_cast<double>(position / kAttentionChunk - begin / kAttentionChunk + 1);
  const double visible = static_cast<double>(scores.size());
  const double sum_error =
      kRounding * (std::min(visible, double{kAttentionChunk}) + 2 * chunks + 1);

  Exact exact;
  for (int d = 0; d < shape.v_dim; ++d) {
    double total = 0.0;
    double sum = 0.0;
    double magnitude = 0.0;
    for (size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - *max);
      const double value = cache.Value(begin + static_cast<int64_t>(i), d);
      total += weight;
      sum += weight * value;
      magnitude += weight * std::abs(value);
    }
    exact.out.push_back(sum / total);
    exact.bound.push_back(1.01 * 2 * (weight_error + sum_error) * magnitude / total);
  }
  return exact;
}

class Attention : public IsaTest {
 protected:
  void ExpectNearExact(const Shape& shape, const Cache& cache, const Rows& rows) const {
    const std::vector<float> out = Attend(kernels(), shape, cache, rows);
    size_t vector = 0;
    for (const int64_t position : rows.positions) {
      for (int head = 0; head < shape.heads_per_kv; ++head, ++vector) {
        const float* query = rows.queries.data() + vector * static_cast<size_t>(shape.k_dim);
        const Exact exact = ExactAttention(shape, cache, query, position);
        for (size_t d = 0; d < exact.out.size(); ++d) {
          ASSERT_NEAR(out[vector * exact.out.size() + d], exact.out[d], exact.bound[d])
              << "position " << position << ", head " << head << ", element " << d;
        }
      }
    }
  }
};
KVANT_FOR_EACH_ISA(Attention);

template <class T>
T OneOf(std::mt19937& generator, std::initializer_list<T> choices) {
  return choices.begin()[generator() % choices.size()];
}

Shape RandomShape(std::mt19937& generator) {
  Shape shape;
  shape.k_dim = OneOf(generator, {8, 48, 64, 80, 96});
  shape.v_dim = OneOf(generator, {8, 48, 64, 72, 128});
  shape.heads_per_kv = OneOf(generator, {1, 2, 3, 4, 7, 8});
  shape.k_element = OneOf(generator, {KvElement::kF32, KvElement::kF16});
  shape.v_element = OneOf(generator, {KvElement::kF32, KvElement::kF16});
  shape.window = OneOf<int64_t>(generator, {0, 0, 1, 7, 32, 33, 600});
  shape.cache_end = 1 + static_cast<int64_t>(generator() % 700);
  if (shape.window > 0 && generator() % 2 == 0) {  // far from 0, older positions dropped
    const int64_t moved = 16 * static_cast<int64_t>(generator() % 100'000);
    shape.cache_begin += moved;
    shape.cache_end += moved;
  }
  return shape;
}

std::string Describe(const Shape& shape) {
  return fmt::format("k_dim {} v_dim {} heads {} window {} cache [{}, {})", shape.k_dim,
                     shape.v_dim, shape.heads_per_kv, shape.window, shape.cache_begin,
                     shape.cache_end);
}

TEST_P(Attention, IsWithinItsRoundingsForRandomShapes) {
  for (uint32_t seed = 0; seed < 24; ++seed) {
    std::mt19937 generator(seed);
    const Shape shape = RandomShape(generator);
    SCOPED_TRACE(Describe(shape));
    Cache cache(shape, {32, 16, 160});
    FillRandom(shape, cache, seed);
    const int64_t cached = shape.cache_end - shape.cache_begin;
    const int64_t count = std::min<int64_t>(cached, 1 + static_cast<int64_t>(generator() % 12));
    ExpectNearExact(shape, cache, RandomRows(shape, LastPositions(shape, count), seed + 1));
  }
}

TEST_P(Attention, IsWithinItsRoundingsOverManyChunks) {
  Shape shape;
  shape.cache_end = 1301;
  for (const KvElement element : {KvElement::kF32, KvElement::kF16}) {
    shape.k_element = shape.v_element = element;
    Cache cache(shape, {4096});
    FillRandom(shape, cache, 5);
    ExpectNearExact(shape, cache, RandomRows(shape, {0, 511, 512, 1023, 1024, 1300}, 6));
  }
}

// Scores far apart: the first chunk's weights vanish beside the last one's, and the other way.
TEST_P(Attention, IsWithinItsRoundingsForPeakedScores) {
  Shape shape;
  shape.heads_per_kv = 2;
  shape.cache_end = 1100;
  Cache cache(shape, {4096});
  FillRandom(shape, cache, 7);
  Rows rows = RandomRows(shape, {1098, 1099}, 8);
  for (float& value : rows.queries) value *= 12.0f;
  ExpectNearExact(shape, cache, rows);
}

TEST_P(Attention, TakesMoreHeadsThanOneTileHolds) {
  Shape shape;
  shape.k_dim = shape.v_dim = 16;
  shape.heads_per_kv = 71;
  shape.cache_end = 50;
  Cache cache(shape, {4096});
  FillRandom(shape, cache, 9);
  ExpectNearExact(shape, cache, RandomRows(shape, LastPositions(shape, 3), 10));
}

// With queries of zero every visible position weighs exactly one, so the result counts them: values
// hold 1 and the position relative to the cache's begin, whose sums are exact. Everything that no
// row sees is NaN, and so is all that a row's neighbours alone may see.
TEST_P(Attention, SeesExactlyTheVisiblePositions) {
  for (const int64_t window : {0, 1, 7, 16, 32, 33, 513}) {
    for (const int64_t cache_begin : {int64_t{0}, int64_t{16 * 12345}}) {
      if (window == 0 && cache_begin > 0) continue;
      Shape shape;
      shape.k_dim = 8;
      shape.v_dim = 3;
      shape.heads_per_kv = 3;
      shape.window = window;
      shape.cache_begin = cache_begin;
      shape.cache_end = cache_begin + 1205;
      SCOPED_TRACE(Describe(shape));
      Cache cache(shape, {32, 48, 512});
      const std::vector<float> zero_key(8, 0.0f);
      for (int64_t p = shape.cache_begin; p < shape.cache_end; ++p) {
        const float value[] = {1.0f, static_cast<float>(p - cache_begin), -1.0f};
        cache.Put(p, zero_key.data(), value);
      }
      Rows rows;
      for (int64_t p = shape.cache_begin + 5; p < shape.cache_end; p += 97) {
        for (const int64_t near : {p, p + 1, p + 3}) {
          if (near < shape.cache_end) rows.positions.push_back(near);
        }
      }
      rows.queries.assign(rows.positions.size() * 3 * 8, 0.0f);
      const std::vector<float> out = Attend(kernels(), shape, cache, rows);
      for (size_t row = 0; row < rows.positions.size(); ++row) {
        const int64_t position = rows.positions[row];
        int64_t sum = 0;
        const int64_t first = FirstVisible(shape, position);
        for (int64_t p = first; p <= position; ++p) sum += p - cache_begin;
        const float count = static_cast<float>(position - first + 1);
        for (size_t head = 0; head < 3; ++head) {
          const float* got = out.data() + (row * 3 + head) * 3;
          ASSERT_EQ(got[0], 1.0f) << position;
          ASSERT_EQ(got[1], static_cast<float>(sum) / count) << position;
          ASSERT_EQ(got[2], -1.0f) << position;
        }
      }
    }
  }
}

// Not-a-number in the key and value of one position reaches exactly the rows that see it, also when
// other rows of the same call do.
TEST_P(Attention, APositionThatIsNotSeenContributesNothing) {
  for (const int64_t window : {0, 9}) {
    for (const KvElement element : {KvElement::kF32, KvElement::kF16}) {
      Shape shape;
      shape.k_dim = 24;
      shape.v_dim = 40;
      shape.heads_per_kv = 2;
      shape.window = window;
      shape.k_element = shape.v_element = element;
      shape.cache_end = 75;
      Cache cache(shape, {32});
      FillRandom(shape, cache, 11);
      const Rows rows = RandomRows(shape, LastPositions(shape, 40), 12);
      const std::vector<float> clean = Attend(kernels(), shape, cache, rows);
      constexpr int64_t kPoisoned = 57;
      const std::vector<float> poison(64, std::numeric_limits<float>::quiet_NaN());
      cache.Put(kPoisoned, poison.data(), poison.data());
      const std::vector<float> out = Attend(kernels(), shape, cache, rows);
      const size_t row_floats = 2 * 40;
      for (size_t row = 0; row < rows.positions.size(); ++row) {
        const int64_t position = rows.positions[row];
        const bool sees = position >= kPoisoned && FirstVisible(shape, position) <= kPoisoned;
        for (size_t i = row * row_floats; i < (row + 1) * row_floats; ++i) {
          if (sees) {
            ASSERT_TRUE(std::isnan(out[i])) << "position " << position;
          } else {
            ASSERT_TRUE(SameBits(out[i], clean[i])) << "position " << position;
          }
        }
      }
    }
  }
}

TEST_P(Attention, BitsDoNotDependOnTheRowsComputedTogether) {
  for (uint32_t seed = 100; seed < 108; ++seed) {
    std::mt19937 generator(seed);
    const Shape shape = RandomShape(generator);
    SCOPED_TRACE(Describe(shape));
    Cache cache(shape, {64});
    FillRandom(shape, cache, seed);
    const int64_t cached = shape.cache_end - shape.cache_begin;
    const int64_t count = std::min<int64_t>(cached, 45);
    const Rows rows = RandomRows(shape, LastPositions(shape, count), seed + 1);
    const std::vector<float> together = Attend(kernels(), shape, cache, rows);
    for (const size_t piece : {size_t{1}, size_t{5}, size_t{33}}) {
      std::vector<float> pieces;
      for (size_t begin = 0; begin < rows.positions.size(); begin += piece) {
        const size_t end = std::min(begin + piece, rows.positions.size());
        const std::vector<float> part = Attend(kernels(), shape, cache, rows, begin, end);
        pieces.insert(pieces.end(), part.begin(), part.end());
      }
      ExpectSameBits(pieces, together, fmt::format("pieces of {} rows", piece));
    }
  }
}

TEST_P(Attention, BitsDoNotDependOnTheRuns) {
  for (uint32_t seed = 200; seed < 206; ++seed) {
    std::mt19937 generator(seed);
    Shape shape = RandomShape(generator);
    shape.cache_end += 600;
    SCOPED_TRACE(Describe(shape));
    Cache whole(shape, {1 << 20});
    FillRandom(shape, whole, seed);
    const Rows rows = RandomRows(shape, LastPositions(shape, 9), seed + 1);
    const std::vector<float> expected = Attend(kernels(), shape, whole, rows);
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{16}, {32}, {48, 512}, {1024}, {496, 32}}) {
      Cache split(shape, lengths);
      FillRandom(shape, split, seed);
      ExpectSameBits(Attend(kernels(), shape, split, rows), expected, "runs");
    }
  }
}

TEST_P(Attention, BitsAreThoseOfTheReference) {
  for (uint32_t seed = 300; seed < 310; ++seed) {
    std::mt19937 generator(seed);
    const Shape shape = RandomShape(generator);
    SCOPED_TRACE(Describe(shape));
    Cache cache(shape, {32, 96});
    FillRandom(shape, cache, seed);
    const int64_t cached = shape.cache_end - shape.cache_begin;
    const int64_t count = std::min<int64_t>(cached, 10);
    const Rows rows = RandomRows(shape, LastPositions(shape, count), seed + 1);
    ExpectSameBits(Attend(kernels(), shape, cache, rows), Attend(reference(), shape, cache, rows),
                   "reference");
  }
}

// Positions that the cache has dropped between two runs are not seen.
TEST_P(Attention, AHoleBetweenRunsIsNotSeen) {
  Shape shape;
  shape.k_dim = shape.v_dim = 16;
  shape.heads_per_kv = 1;
  shape.cache_end = 160;
  Cache cache(shape, {32});
  const std::vector<float> key(16, 0.0f);
  for (int64_t p = 0; p < shape.cache_end; ++p) {
    cache.Put(p, key.data(), std::vector<float>(16, static_cast<float>(p)).data());
  }
  const std::vector<KvRun> runs = {cache.runs()[0], cache.runs()[3], cache.runs()[4]};
  const std::vector<float> query(16, 0.0f);
  const int64_t position = 130;
  std::vector<float> out(16);
  std::vector<std::byte> scratch(kernels().attention_scratch_bytes(1, 1, 16, 16));
  kernels().attention({.queries = query.data(),
                       .query_row_stride = 16,
                       .out = out.data(),
                       .out_row_stride = 16,
                       .rows = 1,
                       .positions = &position,
                       .heads_per_kv = 1,
                       .k_dim = 16,
                       .v_dim = 16,
                       .k_element = KvElement::kF32,
                       .v_element = KvElement::kF32,
                       .scale = 1.0f,
                       .window = 0,
                       .runs = runs,
                       .scratch = scratch});
  int64_t sum = 0;
  int64_t count = 0;
  for (int64_t p = 0; p <= position; ++p) {
    if (p >= 32 && p < 96) continue;
    sum += p;
    ++count;
  }
  EXPECT_EQ(out, std::vector<float>(16, static_cast<float>(sum) / static_cast<float>(count)));
}

// Scratch is per tile of rows, not per prompt.
TEST_P(Attention, ScratchDoesNotGrowWithThePrompt) {
  const auto bytes = kernels().attention_scratch_bytes;
  EXPECT_EQ(bytes(64, 4, 128, 128), bytes(4096, 4, 128, 128));
}

}  // namespace
}  // namespace kvant::cpu::test
