// Attention against a double-precision softmax over the visible positions, exact counts of what is
// visible, and equal bits however the same work is cut into rows and runs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "cpu/activations.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"
#include "tests/cpu/attention_reference.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

class Attention : public IsaTest {
 protected:
  void ExpectNearExact(Shape shape, const Cache& cache, const Rows& rows) const {
    const std::vector<float> out = Attend(kernels(), shape, cache, rows);
    shape.in_parts =
        kernels().many_form != ActivationForm::kInt8 && shape.count == TokenCount::kMany;
    size_t vector = 0;
    for (const int64_t position : rows.positions) {
      for (int head = 0; head < shape.heads_per_kv; ++head, ++vector) {
        const float* query = rows.queries.data() + vector * static_cast<size_t>(shape.query_dim());
        const Exact exact = ExactAttention(shape, cache, query, head, position);
        for (size_t d = 0; d < exact.out.size(); ++d) {
          ASSERT_NEAR(out[vector * exact.out.size() + d], exact.out[d], exact.bound[d])
              << "position " << position << ", head " << head << ", element " << d;
        }
      }
    }
  }
};
KVANT_FOR_EACH_ISA(Attention);

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

TEST_P(Attention, IsWithinItsRoundingsOverManySpans) {
  Shape shape;
  shape.cache_end = 1301;
  for (const KvType element : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (const TokenCount count : {TokenCount::kFew, TokenCount::kMany}) {
      shape.k_type = shape.v_type = element;
      shape.count = count;
      Cache cache(shape, {4096});
      FillRandom(shape, cache, 5);
      ExpectNearExact(shape, cache, RandomRows(shape, {0, 511, 512, 1023, 1024, 1300}, 6));
    }
  }
}

// Chunks of a prompt: more rows than a tile has, of which some see a span that others do not.
TEST_P(Attention, IsWithinItsRoundingsForManyRows) {
  for (uint32_t seed = 40; seed < 44; ++seed) {
    std::mt19937 generator(seed);
    Shape shape = RandomShape(generator);
    shape.key_form = KeyForm::kStored;
    shape.count = TokenCount::kMany;
    shape.cache_end += 450;
    SCOPED_TRACE(Describe(shape));
    Cache cache(shape, {32, 16, 160});
    FillRandom(shape, cache, seed);
    const int64_t cached = shape.cache_end - shape.cache_begin;
    ExpectNearExact(shape, cache,
                    RandomRows(shape, LastPositions(shape, std::min<int64_t>(cached, 70)), seed));
  }
}

// Scores far apart: the first span's weights vanish beside the last one's, and the other way.
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

// Every 37th value is up to 2^10 times as large as the others, and the last value is zero.
TEST_P(Attention, IsWithinItsRoundingsForValuesOfDifferentSizes) {
  Shape shape;
  shape.cache_end = 1100;
  for (const KvType element : {KvType::kF16, KvType::kQ8}) {
    for (const TokenCount count : {TokenCount::kFew, TokenCount::kMany}) {
      shape.v_type = element;
      shape.count = count;
      Cache cache(shape, {4096});
      std::mt19937 generator(11);
      for (int64_t p = 0; p < shape.cache_end; ++p) {
        const std::vector<float> key = RandomVector(shape.k_dim, generator, 1.5f);
        std::vector<float> value = RandomVector(shape.v_dim, generator);
        const float size = p % 37 == 0 ? std::ldexp(1.0f, static_cast<int>(p % 11)) : 1.0f;
        for (float& number : value) number *= p + 1 == shape.cache_end ? 0.0f : size;
        cache.Put(p, key.data(), value.data());
      }
      ExpectNearExact(shape, cache, RandomRows(shape, {0, 36, 37, 600, 1098, 1099}, 12));
    }
  }
}

// Scores that a float holds are reached by factors that would overflow or vanish on the way.
TEST_P(Attention, TakesQueriesOfAnySize) {
  Shape shape;
  shape.heads_per_kv = 2;
  shape.cache_end = 600;
  for (const KvType element : {KvType::kF32, KvType::kQ8}) {
    shape.k_type = element;
    Cache cache(shape, {4096});
    std::mt19937 generator(13);
    for (int64_t p = 0; p < shape.cache_end; ++p) {
      std::vector<float> key = RandomVector(shape.k_dim, generator);
      for (float& number : key) number *= 0x1p-110f;
      cache.Put(p, key.data(), RandomVector(shape.v_dim, generator).data());
    }
    Rows rows = RandomRows(shape, {0, 599}, 14);
    for (float& value : rows.queries) value *= 0x1p110f;
    ExpectNearExact(shape, cache, rows);
    std::fill(rows.queries.begin(), rows.queries.end(), 0.0f);
    if (element == KvType::kF32) ExpectNearExact(shape, cache, rows);
  }
}

TEST_P(Attention, TakesMoreHeadsThanOneTileHolds) {
  Shape shape;
  shape.k_dim = shape.v_dim = 16;
  shape.heads_per_kv = 71;
  shape.cache_end = 50;
  Cache cache(shape, {4096});
  FillRandom(shape, cache, 9);
  for (const TokenCount count : {TokenCount::kFew, TokenCount::kMany}) {
    shape.count = count;
    ExpectNearExact(shape, cache, RandomRows(shape, LastPositions(shape, 3), 10));
  }
}

// With queries of zero every visible position weighs exactly one, so the result counts them: values
// hold 1 and the position relative to the cache's begin, whose sums are exact. Everything that no
// row sees is NaN, and so is all that a row's neighbours alone may see.
TEST_P(Attention, SeesExactlyTheVisiblePositions) {
  for (const int64_t window : {0, 1, 7, 16, 32, 33, 513}) {
    for (const auto& [moved, count] : {std::pair{0, TokenCount::kFew},
                                       {0, TokenCount::kMany},
                                       {12345, TokenCount::kFew},
                                       {12345, TokenCount::kMany}}) {
      const int64_t cache_begin = int64_t{16} * moved;
      if (window == 0 && cache_begin > 0) continue;
      Shape shape;
      shape.count = count;
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
        const float visible = static_cast<float>(position - first + 1);
        for (size_t head = 0; head < 3; ++head) {
          const float* got = out.data() + (row * 3 + head) * 3;
          ASSERT_EQ(got[0], 1.0f) << position;
          ASSERT_EQ(got[1], static_cast<float>(sum) / visible) << position;
          ASSERT_EQ(got[2], -1.0f) << position;
        }
      }
    }
  }
}

// Not-a-number in the key and value of one position reaches exactly the rows that see it, also when
// other rows of the same call do; the largest float reaches no other rows.
TEST_P(Attention, APositionThatIsNotSeenContributesNothing) {
  for (const auto& [window, count] : {std::pair{0, TokenCount::kFew},
                                      {9, TokenCount::kFew},
                                      {0, TokenCount::kMany},
                                      {9, TokenCount::kMany}}) {
    for (const KvType element : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
      Shape shape;
      shape.count = count;
      shape.k_dim = 24;
      shape.v_dim = 40;
      shape.heads_per_kv = 2;
      shape.window = window;
      shape.k_type = shape.v_type = element;
      shape.cache_end = 75;
      Cache cache(shape, {32});
      FillRandom(shape, cache, 11);
      const Rows rows = RandomRows(shape, LastPositions(shape, 40), 12);
      const std::vector<float> clean = Attend(kernels(), shape, cache, rows);
      constexpr int64_t kPoisoned = 57;
      for (const float number :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()}) {
        const std::vector<float> poison(64, number);
        cache.Put(kPoisoned, poison.data(), poison.data());
        const std::vector<float> out = Attend(kernels(), shape, cache, rows);
        const size_t row_floats = 2 * 40;
        for (size_t row = 0; row < rows.positions.size(); ++row) {
          const int64_t position = rows.positions[row];
          const bool sees = position >= kPoisoned && FirstVisible(shape, position) <= kPoisoned;
          for (size_t i = row * row_floats; i < (row + 1) * row_floats; ++i) {
            if (!sees) {
              ASSERT_TRUE(SameBits(out[i], clean[i])) << "position " << position;
            } else if (std::isnan(number)) {
              ASSERT_TRUE(std::isnan(out[i])) << "position " << position;
            }
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

// From scores near each other to such that weights are subnormal numbers, or zero.
TEST_P(Attention, BitsAreThoseOfTheReference) {
  for (uint32_t seed = 300; seed < 330; ++seed) {
    std::mt19937 generator(seed);
    const Shape shape = InCommonArithmetic(kernels(), RandomShape(generator));
    SCOPED_TRACE(Describe(shape));
    Cache cache(shape, {32, 96});
    FillRandom(shape, cache, seed);
    const int64_t cached = shape.cache_end - shape.cache_begin;
    const int64_t count = std::min<int64_t>(cached, 10);
    Rows rows = RandomRows(shape, LastPositions(shape, count), seed + 1);
    for (float& value : rows.queries) value *= static_cast<float>(1u << seed % 6);
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
  std::vector<std::byte> scratch(kernels().attention_scratch_bytes(1, 1, 16, 16, KeyForm::kStored));
  kernels().attention({.queries = query.data(),
                       .query_row_stride = 16,
                       .out = out.data(),
                       .out_row_stride = 16,
                       .rows = 1,
                       .positions = &position,
                       .heads_per_kv = 1,
                       .k_dim = 16,
                       .v_dim = 16,
                       .k_type = KvType::kF32,
                       .v_type = KvType::kF32,
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

// The largest sums of integers that q8 values have: all weights alike, all codes +-127.
TEST_P(Attention, TheLargestSumsOfQ8ValuesFit) {
  Shape shape;
  shape.k_dim = 8;
  shape.v_dim = 75;
  shape.heads_per_kv = 15;  // blocks of 8, 4, 2 and 1
  shape.v_type = KvType::kQ8;
  shape.cache_end = 2 * kAttentionSpan;
  Cache cache(shape, {96, 512});
  const std::vector<float> key(8, 0.0f);
  std::vector<float> value;
  for (int d = 0; d < shape.v_dim; ++d) value.push_back(d % 3 == 0 ? -127.0f : 127.0f);
  for (int64_t p = 0; p < shape.cache_end; ++p) cache.Put(p, key.data(), value.data());
  Rows rows{{shape.cache_end - 1}, std::vector<float>(15 * 8, 0.0f)};
  for (const TokenCount count : {TokenCount::kFew, TokenCount::kMany}) {
    shape.count = count;
    const std::vector<float> out = Attend(kernels(), shape, cache, rows);
    for (size_t i = 0; i < out.size(); ++i) {
      // Roundings of the sum, its scale and their product, in merging and of the quotient.
      ASSERT_NEAR(out[i], value[i % value.size()], 127 * 8 * kRounding) << "element " << i;
    }
  }
}

// Scratch is per tile of rows, not per prompt.
TEST_P(Attention, ScratchDoesNotGrowWithThePrompt) {
  const auto bytes = kernels().attention_scratch_bytes;
  EXPECT_EQ(bytes(64, 4, 128, 128, KeyForm::kValueFirst),
            bytes(4096, 4, 128, 128, KeyForm::kValueFirst));
}

}  // namespace
}  // namespace kvant::cpu::test
