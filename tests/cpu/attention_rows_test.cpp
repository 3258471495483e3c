// Tests attention of rows that see different positions, in masked runs and with hidden positions,
// and of tasks in parts: bits are equal however the work is cut.
#include <algorithm>
#include <limits>
#include <memory>
#include <random>

#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "tests/cpu/attention_reference.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

class AttentionRows : public IsaTest {};
KVANT_FOR_EACH_ISA(AttentionRows);

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
    rows.queries = RandomVector(
        static_cast<int64_t>(sequences) * shape.heads_per_kv * shape.query_dim(), generator);
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
    const std::ptrdiff_t floats = std::ptrdiff_t{shape.heads_per_kv} * shape.query_dim();
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

TEST_P(AttentionRows, RowsOfSequencesThatShareAPrefixGetTheirOwnBits) {
  for (uint32_t seed = 400; seed < 424; ++seed) {
    std::mt19937 generator(seed);
    Shape shape = InCommonArithmetic(kernels(), RandomShape(generator));
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

// The result of a task for some of the spans at a time, last ones first, and their merge. Rows lie
// further apart than their heads take; what is between them stays.
std::vector<float> AttendInParts(const KernelTable& kernels, const Shape& shape,
                                 std::span<const KvRun> runs,
                                 std::span<const HiddenPositions> hidden, const Rows& rows,
                                 std::mt19937& generator) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr size_t kGap = 5;
  const size_t count = rows.positions.size();
  const size_t query_floats = rows.queries.size() / count;
  const size_t out_floats = static_cast<size_t>(shape.heads_per_kv * shape.v_dim);
  const size_t query_stride = query_floats + kGap;
  const size_t out_stride = out_floats + kGap;
  const GuardedArray<float> queries(count * query_stride - kGap);
  const GuardedArray<float> out(count * out_stride - kGap);
  std::fill(queries.begin(), queries.end(), kNan);
  std::fill(out.begin(), out.end(), -5.0f);
  for (size_t row = 0; row < count; ++row) {
    std::copy_n(rows.queries.data() + row * query_floats, query_floats,
                queries.data() + row * query_stride);
  }
  const GuardedArray<std::byte> scratch(kernels.attention_scratch_bytes(
      std::ssize(rows.positions), shape.heads_per_kv, shape.k_dim, shape.v_dim, shape.key_form));
  AttentionTask task = MakeTask(shape, runs, hidden, rows.positions, queries.data(), out.data(),
                                {scratch.data(), scratch.size()});
  task.query_row_stride = static_cast<int64_t>(query_stride);
  task.out_row_stride = static_cast<int64_t>(out_stride);
  const auto [least, most] = std::minmax_element(rows.positions.begin(), rows.positions.end());
  task.slice.first = FirstVisible(shape, *least) / kAttentionSpan;
  const int64_t spans = *most / kAttentionSpan + 1 - task.slice.first;
  const GuardedArray<float> partials(static_cast<size_t>(spans * task.rows * shape.heads_per_kv *
                                                         AttentionPartialFloats(shape.v_dim)));
  std::fill(partials.begin(), partials.end(), kNan);
  task.slice.partials = partials.data();
  for (int64_t end = spans; end > 0; end = task.slice.begin - task.slice.first) {
    std::fill(scratch.begin(), scratch.end(), std::byte{0xff});
    task.slice.begin = task.slice.first + static_cast<int64_t>(generator()) % end;
    task.slice.end = task.slice.first + end;
    kernels.attention(task);
  }
  std::fill(scratch.begin(), scratch.end(), std::byte{0xff});
  task.slice.end = task.slice.first + spans;
  kernels.attention_merge(task);
  std::vector<float> result;
  for (size_t i = 0; i < out.size(); ++i) {
    if (i % out_stride < out_floats) {
      result.push_back(out[i]);
    } else {
      EXPECT_EQ(out[i], -5.0f) << "between rows, place " << i;
    }
  }
  return result;
}

TEST_P(AttentionRows, PartsOfTheSpansMergeToTheSameBits) {
  for (uint32_t seed = 500; seed < 516; ++seed) {
    std::mt19937 generator(seed);
    Shape shape = RandomShape(generator);
    shape.cache_end += 2000;
    SCOPED_TRACE(fmt::format("seed {} {}", seed, Describe(shape)));
    Cache cache(shape, {32, 96, 1024});
    FillRandom(shape, cache, seed);
    const int64_t count = 1 + static_cast<int64_t>(generator() % 40);
    const Rows rows = RandomRows(shape, LastPositions(shape, count), seed + 1);
    ExpectSameBits(AttendInParts(kernels(), shape, cache.runs(), {}, rows, generator),
                   Attend(kernels(), shape, cache, rows), "parts");
  }
}

TEST_P(AttentionRows, PartsOfSequencesThatShareAPrefixMergeToTheSameBits) {
  for (uint32_t seed = 600; seed < 616; ++seed) {
    std::mt19937 generator(seed);
    Shape shape = RandomShape(generator);
    shape.cache_begin = 0;
    shape.cache_end = 32 * (30 + static_cast<int64_t>(generator() % 40));
    const size_t sequences = 1 + generator() % 9;
    SCOPED_TRACE(fmt::format("seed {} {} {} sequences", seed, Describe(shape), sequences));
    const SharedPrefix shared(shape, sequences, generator() % 2 == 1, generator);
    ExpectSameBits(
        AttendInParts(kernels(), shape, shared.runs, shared.hidden, shared.rows, generator),
        Attend(kernels(), shape, shared.runs, shared.hidden, shared.rows), "parts");
  }
}

// A hidden position counts as if it were not there.
TEST_P(AttentionRows, HiddenPositionsWeighNothing) {
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
  for (const TokenCount tokens : {TokenCount::kFew, TokenCount::kMany}) {
    shape.count = tokens;
    for (const float value : Attend(kernels(), shape, cache.runs(), hidden, rows)) {
      EXPECT_EQ(value, mean);
    }
  }
}

}  // namespace
}  // namespace kvant::cpu::test
