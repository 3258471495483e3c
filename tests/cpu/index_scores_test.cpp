// Scores of an indexer against sums in double precision, and equal bits on all instruction sets and
// however the positions are cut.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cpu/kernels/index_scores.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

class IndexScores : public IsaTest {};
KVANT_FOR_EACH_ISA(IndexScores);

struct Problem {
  int heads;
  int dim;
  int64_t positions;
  KvType type;
  bool weighted;
};

// Keys in runs of some lengths, with everything that a task points to.
class Keys {
 public:
  Keys(const Problem& problem, uint32_t seed) : problem_(problem) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int64_t count) {
      values.resize(static_cast<size_t>(count));
      for (float& value : values) value = normal(random);
    };
    fill(queries, int64_t{problem.heads} * problem.dim);
    fill(weights, problem.heads);
    fill(keys, problem.positions * problem.dim);
    const KernelTable& plain = *ChooseKernels("scalar").value();
    for (int64_t begin = 0; begin < problem.positions;) {
      const int64_t length = 32 * (1 + static_cast<int64_t>(random() % 5));
      const int64_t count = std::min(length, problem.positions - begin);
      const auto tokens =
          static_cast<size_t>((count + kKeyTileTokens - 1) / kKeyTileTokens * kKeyTileTokens);
      auto& tiles = tiles_.emplace_back(KeyTileOffset(problem.type, problem.dim, tokens));
      auto& scales = scales_.emplace_back(tokens);
      for (int64_t i = 0; i < count; ++i) {
        const auto token = static_cast<size_t>(i);
        plain.store_key(keys.data() + (begin + i) * problem.dim, problem.dim, problem.type,
                        static_cast<int>(token % kKeyTileTokens),
                        tiles.data() + KeyTileOffset(problem.type, problem.dim, token),
                        scales.data() + token);
      }
      KvRun run = {tiles.data(), nullptr, begin, count};
      run.key_scales = scales.data();
      runs.push_back(run);
      begin += length;
    }
  }

  // The scores of [begin, end); -1 where none is written.
  std::vector<float> Scores(const KernelTable& kernels, int64_t begin, int64_t end,
                            int64_t row = 0) const {
    std::vector<std::byte> room(IndexScratchBytes(problem_.heads, problem_.dim) + 64);
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(room.data()) + 63) / 64 * 64);
    GuardedArray<float> scores(std::vector<float>(static_cast<size_t>(end - begin), -1.0f));
    IndexTask task;
    task.queries = queries.data();
    task.weights = problem_.weighted ? weights.data() : nullptr;
    task.heads = problem_.heads;
    task.dim = problem_.dim;
    task.type = problem_.type;
    task.runs = runs;
    task.row = row;
    task.begin = begin;
    task.end = end;
    task.scores = scores.data();
    task.scratch = {aligned, IndexScratchBytes(problem_.heads, problem_.dim)};
    kernels.index_scores(task);
    return scores.ToVector();
  }

  // The exact score of the keys as they were given, and what roundings may change.
  std::pair<double, double> Exact(int64_t position) const {
    double score = 0;
    double size = 0;
    double largest = 0;
    for (int d = 0; d < problem_.dim; ++d) {
      largest = std::max(largest, std::abs(static_cast<double>(KeyAt(position, d))));
    }
    for (int h = 0; h < problem_.heads; ++h) {
      double product = 0;
      double sum = 0;
      double query_sum = 0;
      for (int d = 0; d < problem_.dim; ++d) {
        const auto query = static_cast<double>(queries[static_cast<size_t>(h * problem_.dim + d)]);
        product += query * static_cast<double>(KeyAt(position, d));
        sum += std::abs(query * static_cast<double>(KeyAt(position, d)));
        query_sum += std::abs(query);
      }
      const double weight =
          problem_.weighted ? static_cast<double>(weights[static_cast<size_t>(h)]) : 1.0;
      score += problem_.weighted ? weight * std::max(0.0, product) : product;
      const double stored = problem_.type == KvType::kF16  ? sum * 0x1p-11
                            : problem_.type == KvType::kQ8 ? query_sum * largest / 254
                                                           : 0;
      size += std::abs(weight) * (stored + sum * kRounding * (problem_.dim + problem_.heads + 2));
    }
    return {score, size};
  }

  std::vector<float> queries;
  std::vector<float> weights;
  std::vector<float> keys;
  std::vector<KvRun> runs;

 private:
  float KeyAt(int64_t position, int d) const {
    return keys[static_cast<size_t>(position * problem_.dim + d)];
  }

  Problem problem_;
  std::vector<std::vector<std::byte>> tiles_;
  std::vector<std::vector<float>> scales_;
};

std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    for (const int heads : {1, 2, 3, 7, 8, 13, 64}) {
      problems.push_back({heads, heads == 64 ? 128 : 24, 333, type, true});
    }
    problems.push_back({1, 40, 200, type, false});
  }
  return problems;
}

TEST_P(IndexScores, AreWithinTheirRoundings) {
  for (const Problem& problem : Problems()) {
    const Keys keys(problem, 3);
    const std::vector<float> scores = keys.Scores(kernels(), 0, problem.positions);
    for (int64_t p = 0; p < problem.positions; ++p) {
      const auto [exact, bound] = keys.Exact(p);
      ASSERT_NEAR(static_cast<double>(scores[static_cast<size_t>(p)]), exact, bound)
          << problem.heads << " heads, position " << p;
    }
  }
}

TEST_P(IndexScores, HaveTheBitsOfTheReferenceHoweverTheyAreCut) {
  for (const Problem& problem : Problems()) {
    const Keys keys(problem, 4);
    const std::vector<float> expected = keys.Scores(reference(), 0, problem.positions);
    ExpectSameBits(keys.Scores(kernels(), 0, problem.positions), expected, "whole");
    for (const auto& [begin, end] : {std::pair{0, 1}, {5, 90}, {64, 65}, {100, 199}}) {
      const std::vector<float> part(expected.begin() + begin, expected.begin() + end);
      ExpectSameBits(keys.Scores(kernels(), begin, end), part, "part");
    }
  }
}

// Runs of other rows, and positions in no run, keep their scores.
TEST_P(IndexScores, LeaveWhatARowDoesNotSee) {
  Keys keys({4, 16, 200, KvType::kF16, true}, 5);
  const std::vector<float> all = keys.Scores(kernels(), 0, 200);
  keys.runs[0].rows = 0b101;
  const std::vector<float> without = keys.Scores(kernels(), 0, 200, 1);
  const std::vector<float> with = keys.Scores(kernels(), 0, 200, 66);
  const auto first = static_cast<size_t>(keys.runs[0].count);
  for (size_t p = 0; p < 200; ++p) {
    EXPECT_EQ(without[p], p < first ? -1.0f : all[p]);
    EXPECT_EQ(with[p], all[p]);
  }
}

}  // namespace
}  // namespace kvant::cpu::test
