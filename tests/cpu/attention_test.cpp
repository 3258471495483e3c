// Attention against a double-precision softmax over the visible positions, exact counts of what is
// visible, and equal bits however the same work is cut into rows, runs and threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "tests/cpu/attention_reference.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

class Attention : public IsaTest {
 protected:
  void ExpectNearExact(const Shape& shape, const Cache& cache, const Rows& rows) const {
    const std::vector<float> out = Attend(kernels(), shape, cache, rows);
    size_t vector = 0;
    for (const int64_t position : rows.positions) {
      for (int head = 0; head < shape.heads_per_kv; ++head, ++vector) {
        const float* query = rows.queries.data() + vector * static_cast<size_t>(shape.k_dim);
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

template <class T>
T OneOf(std::mt19937& generator, std::initializer_list<T> choices) {
  return choices.begin()[generator() % choices.size()];
}

Shape RandomShape(std::mt19937& generator) {
  Shape shape;
  shape.k_dim = OneOf(generator, {6, 8, 48, 64, 80, 96});
  shape.v_dim = OneOf(generator, {8, 48, 64, 72, 128});
  shape.heads_per_kv = OneOf(generator, {1, 2, 3, 4, 7, 8});
  shape.k_element = OneOf(generator, {KvElement::kF32, KvElement::kF16, KvElement::kQ8});
  shape.v_element = OneOf(generator, {KvElement::kF32, KvElement::kF16, KvElement::kQ8});
  shape.window = OneOf<int64_t>(generator, {0, 0, 1, 7, 32, 33, 600});
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
  return shape;
}

std::string Describe(const Shape& shape) {
  return fmt::format("k_dim {} v_dim {} heads {} window {} cache [{}, {}) cap {}{}{}", shape.k_dim,
                     shape.v_dim, shape.heads_per_kv, shape.window, shape.cache_begin,
                     shape.cache_end, shape.score_cap, shape.bias_slopes.empty() ? "" : " bias",
                     shape.sinks.empty() ? "" : " sinks");
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
  for (const KvElement element : {KvElement::kF32, KvElement::kF16, KvElement::kQ8}) {
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
    for (const KvElement element : {KvElement::kF32, KvElement::kF16, KvElement::kQ8}) {
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

// Calls for some of the chunks each, last ones first, and their merge.
TEST_P(Attention, PartsOfTheChunksMergeToTheSameBits) {
  for (uint32_t seed = 500; seed < 516; ++seed) {
    std::mt19937 generator(seed);
    Shape shape = RandomShape(generator);
    shape.cache_end += 2000;
    SCOPED_TRACE(fmt::format("seed {} {}", seed, Describe(shape)));
    Cache cache(shape, {32, 96, 1024});
    FillRandom(shape, cache, seed);
    const int64_t count = 1 + static_cast<int64_t>(generator() % 40);
    const Rows rows = RandomRows(shape, LastPositions(shape, count), seed + 1);
    const std::vector<float> whole = Attend(kernels(), shape, cache, rows);
    std::vector<float> out(whole.size());
    std::vector<std::byte> scratch(
        kernels().attention_scratch_bytes(count, shape.heads_per_kv, shape.k_dim, shape.v_dim));
    AttentionTask task =
        MakeTask(shape, cache.runs(), {}, rows.positions, rows.queries.data(), out.data(), scratch);
    task.part.first = FirstVisible(shape, rows.positions.front()) / kAttentionChunk;
    const int64_t chunks = rows.positions.back() / kAttentionChunk + 1 - task.part.first;
    std::vector<float> partials(static_cast<size_t>(chunks * count * shape.heads_per_kv *
                                                    AttentionPartialFloats(shape.v_dim)),
                                std::numeric_limits<float>::quiet_NaN());
    task.part.partials = partials.data();
    for (int64_t end = chunks; end > 0; end = task.part.begin - task.part.first) {
      const int64_t length = 1 + static_cast<int64_t>(generator()) % end;
      task.part.begin = task.part.first + end - length;
      task.part.end = task.part.first + end;
      kernels().attention(task);
    }
    task.part.end = task.part.first + chunks;
    kernels().attention_merge(task);
    ExpectSameBits(out, whole, "parts");
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

// Sequences that begin alike: shared positions are in runs for all rows, then each row has runs of
// its own, some two by two, and some rows have hidden positions.
struct SharedPrefix {
  SharedPrefix(const Shape& shape_in, size_t sequences, bool pairs, std::mt19937& generator)
      : shape(shape_in), prefix(shape, {320, 32}) {
    FillRandom(shape, prefix, 1);
    runs.assign(prefix.runs().begin(), prefix.runs().end());
    for (size_t i = 0; i < sequences; ++i) {
      const uint64_t bit = uint64_t{1} << i;
      if (pairs && i % 2 == 1) {
        for (KvRun& run : runs) run.rows |= run.rows == bit >> 1 ? bit : 0;
        rows.positions.push_back(rows.positions.back());
      } else {
        AddTail(bit, generator);
      }
      tail_of.push_back(tails.size() - 1);
      if (generator() % 3 == 0) Hide(bit, generator);
    }
    std::stable_sort(runs.begin(), runs.end(), [](const KvRun& a, const KvRun& b) {
      return a.first_position < b.first_position;
    });
    rows.queries =
        RandomVector(static_cast<int64_t>(sequences) * shape.heads_per_kv * shape.k_dim, generator);
  }

  void AddTail(uint64_t bit, std::mt19937& generator) {
    Shape tail = shape;
    tail.cache_begin = shape.cache_end;
    tail.cache_end = tail.cache_begin + 1 + static_cast<int64_t>(generator() % 600);
    tails.push_back(std::make_unique<Cache>(tail, std::vector<int64_t>{32, 64, 512}));
    FillRandom(tail, *tails.back(), static_cast<uint32_t>(generator()));
    rows.positions.push_back(tail.cache_end - 1);
    for (KvRun run : tails.back()->runs()) {
      run.rows = bit;
      runs.push_back(run);
    }
  }

  void Hide(uint64_t bit, std::mt19937& generator) {
    const int64_t begin = static_cast<int64_t>(generator()) % (shape.cache_end + 20);
    const int64_t end = begin + 1 + static_cast<int64_t>(generator() % 700);
    hidden.push_back({begin, std::min(end, rows.positions.back()), bit});
  }

  // Row i over its own positions alone.
  std::vector<float> Alone(const KernelTable& kernels, size_t i) const {
    std::vector<KvRun> own(prefix.runs().begin(), prefix.runs().end());
    const std::span<const KvRun> tail = tails[tail_of[i]]->runs();
    own.insert(own.end(), tail.begin(), tail.end());
    std::vector<HiddenPositions> own_hidden;
    for (HiddenPositions positions : hidden) {
      if (positions.rows != uint64_t{1} << i) continue;
      positions.rows = 1;
      own_hidden.push_back(positions);
    }
    const std::ptrdiff_t floats = std::ptrdiff_t{shape.heads_per_kv} * shape.k_dim;
    const auto begin = rows.queries.begin() + static_cast<std::ptrdiff_t>(i) * floats;
    return Attend(kernels, shape, own, own_hidden, {{rows.positions[i]}, {begin, begin + floats}});
  }

  Shape shape;
  Cache prefix;
  std::vector<std::unique_ptr<Cache>> tails;
  std::vector<size_t> tail_of;  // by row
  std::vector<KvRun> runs;
  std::vector<HiddenPositions> hidden;
  Rows rows;
};

TEST_P(Attention, RowsOfSequencesThatShareAPrefixGetTheirOwnBits) {
  for (uint32_t seed = 400; seed < 424; ++seed) {
    std::mt19937 generator(seed);
    Shape shape = RandomShape(generator);
    shape.cache_begin = 0;
    shape.cache_end = 32 * (1 + static_cast<int64_t>(generator() % 40));
    const size_t sequences = 1 + generator() % 9;
    SCOPED_TRACE(fmt::format("seed {} {} {} sequences", seed, Describe(shape), sequences));
    const SharedPrefix shared(shape, sequences, generator() % 2 == 1, generator);
    std::vector<float> alone;
    for (size_t i = 0; i < sequences; ++i) {
      const std::vector<float> row = shared.Alone(reference(), i);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    ExpectSameBits(Attend(kernels(), shape, shared.runs, shared.hidden, shared.rows), alone,
                   "rows together and alone");
  }
}

// A hidden position counts as if it were not there.
TEST_P(Attention, HiddenPositionsWeighNothing) {
  Shape shape;
  shape.k_dim = shape.v_dim = 16;
  shape.heads_per_kv = 2;
  shape.cache_end = 1300;
  Cache cache(shape, {96});
  const std::vector<float> key(16, 0.0f);
  for (int64_t p = 0; p < shape.cache_end; ++p) {
    cache.Put(p, key.data(), std::vector<float>(16, static_cast<float>(p)).data());
  }
  const std::vector<HiddenPositions> hidden = {{3, 40}, {500, 1040}, {1044, 1299}};
  Rows rows = RandomRows(shape, {1299}, 1);
  int64_t sum = 0;
  int64_t count = 0;
  for (int64_t p = 0; p < shape.cache_end; ++p) {
    if (std::any_of(hidden.begin(), hidden.end(),
                    [p](const HiddenPositions& h) { return h.begin <= p && p < h.end; })) {
      continue;
    }
    sum += p;
    ++count;
  }
  const float mean = static_cast<float>(sum) / static_cast<float>(count);
  for (const float value : Attend(kernels(), shape, cache.runs(), hidden, rows)) {
    EXPECT_EQ(value, mean);
  }
}

// Scratch is per tile of rows, not per prompt.
TEST_P(Attention, ScratchDoesNotGrowWithThePrompt) {
  const auto bytes = kernels().attention_scratch_bytes;
  EXPECT_EQ(bytes(64, 4, 128, 128), bytes(4096, 4, 128, 128));
}

}  // namespace
}  // namespace kvant::cpu::test
