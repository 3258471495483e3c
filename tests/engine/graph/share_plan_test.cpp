// Cuts of phases into shares: that the pieces of all shares are the whole work, each once, by brute
// force; and how even the shares of large teams are, for shapes of real models. Also which weights
// a thread owns.
#include "engine/graph/share_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/cut.h"
#include "engine/run/memory_places.h"
#include "formats/gguf.h"
#include "tests/engine/shape_file.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using graph::Measure;
using graph::PassShape;
using graph::RowSpace;
using graph::ShareNumber;

TEST(Cuts, WeightedSharesAreAllTilesOnceAndNearlyEqual) {
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> works = {
      // tiles, cost of each
      {{192, 1}},
      {{128, 9}, {32, 9}, {32, 15}},
      {{1, 1}},
      {{0, 5}, {7, 3}, {0, 1}},
      {{5, 0}, {9, 2}}};
  for (const auto& work : works) {
    const auto tiles = [&](int64_t i) { return work[static_cast<size_t>(i)].first; };
    const auto cost = [&](int64_t i) { return work[static_cast<size_t>(i)].second; };
    int64_t total = 0;
    int64_t dearest = 0;
    for (const auto& [count, each] : work) {
      total += count * each;
      dearest = std::max(dearest, each);
    }
    for (const int64_t shares : {1, 2, 8, 12, 244, 256, 4096}) {
      std::map<std::pair<int64_t, int64_t>, int> times;
      for (int64_t share = 0; share < shares; ++share) {
        int64_t taken = 0;
        graph::ForWeightedShare(std::ssize(work), tiles, cost, ShareNumber{share, shares},
                                [&](int64_t piece, const Range& range) {
                                  ASSERT_LT(range.begin, range.end);
                                  taken += cost(piece) * (range.end - range.begin);
                                  for (int64_t i = range.begin; i < range.end; ++i) {
                                    ++times[{piece, i}];
                                  }
                                });
        EXPECT_LE(taken, total / shares + 2 * dearest);
      }
      for (int64_t piece = 0; piece < std::ssize(work); ++piece) {
        for (int64_t i = 0; i < tiles(piece); ++i) {
          const int wanted = cost(piece) == 0 ? 0 : 1;
          EXPECT_EQ((times[{piece, i}]), wanted) << shares << " " << piece << " " << i;
        }
      }
    }
  }
}

TEST(Cuts, TilesAndPiecesOfTokensMeetOnce) {
  for (const int64_t tokens : {64, 95, 96, 191, 192, 200, 512, 513, 2048}) {
    for (const int64_t tiles : {1, 5, 64, 96, 300}) {
      for (const int64_t shares : {1, 8, 12, 244, 256}) {
        const int64_t pieces = graph::TokenPieces(tiles, tokens, shares);
        ASSERT_GE(pieces, 1);
        if (pieces > 1) {
          EXPECT_LE(pieces * graph::kPieceTokens, tokens);
          int64_t next = 0;
          for (int64_t piece = 0; piece < pieces; ++piece) {
            const Range range = graph::TokenPiece(tokens, piece, pieces);
            EXPECT_EQ(range.begin, next);
            EXPECT_LT(range.begin, range.end);
            next = range.end;
          }
          EXPECT_EQ(next, tokens);
        }
        std::map<std::pair<int64_t, int64_t>, int> times;
        for (int64_t share = 0; share < shares; ++share) {
          graph::ForTilesAndPieces(tiles, pieces, ShareNumber{share, shares},
                                   [&](int64_t tile, const Range& range) {
                                     for (int64_t i = range.begin; i < range.end; ++i) {
                                       ++times[{tile, i}];
                                     }
                                   });
        }
        EXPECT_EQ(std::ssize(times), tiles * pieces);
        for (const auto& [place, count] : times) ASSERT_EQ(count, 1);
      }
    }
  }
}

TEST(Cuts, PlacesInTurnAreAllPlacesAndGoThroughTheThreads) {
  for (const int threads : {1, 2, 3, 61, 64, 1024}) {
    const int64_t shares = ThreadPool::SharesOf(threads);
    std::set<int64_t> places;
    std::set<int64_t> first_threads;
    for (int64_t share = 0; share < shares; ++share) {
      const int64_t place = graph::PlaceInTurn({share, shares});
      places.insert(place);
      if (place < threads) first_threads.insert(share * threads / shares);
    }
    EXPECT_EQ(std::ssize(places), shares);
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), shares - 1);
    EXPECT_EQ(std::ssize(first_threads), threads);
  }
}

// A pass over the tokens of one sequence, which outlives it.
PassShape PassOf(const PassShape::Part& part) {
  PassShape pass;
  pass.rows.Set(RowSpace::kPass, part.rows);
  pass.rows.Set(RowSpace::kHead, 1);
  pass.parts = {&part, 1};
  pass.cache = {KvType::kF16, KvType::kF16};
  return pass;
}

// A pass over `rows` tokens of one sequence, which then has `end`.
graph::SharePlan SharesOf(const Model& model, int64_t rows, int64_t end, int64_t threads) {
  const PassShape::Part part = {.rows = rows, .end = end};
  return graph::PlanShares(model.plan(), PassOf(part), threads);
}

double Imbalance(const graph::SharePlan& plan, Measure measure, int64_t threads) {
  return plan.Most(measure) * static_cast<double>(threads) / plan.Total(measure);
}

// The sums over all phases are the plan's own, whatever the team.
TEST(SharePlan, SharesAddUpToTheWorkOfThePlan) {
  TinyShape shape;
  shape.type = "Q4_0";
  for (const bool experts : {false, true}) {
    if (experts) shape.experts.count = 8;
    const auto model = OpenTiny(shape);
    for (const auto& [rows, end] : {std::pair<int64_t, int64_t>{1, 500}, {7, 40}, {100, 300}}) {
      const PassShape::Part part = {.rows = rows, .end = end};
      const PassShape pass = PassOf(part);
      const graph::Work all = model->plan().WorkOf(pass);
      for (const int threads : {1, 2, 5, 64}) {
        graph::Work sum;
        for (const graph::Stage stage : {graph::Stage::kBody, graph::Stage::kHead}) {
          for (const auto& node : model->plan().nodes(stage)) {
            for (const auto& share : node->SharesOf(pass, ThreadPool::SharesOf(threads))) {
              sum += share.work;
            }
          }
        }
        EXPECT_NEAR(sum.bytes(), all.bytes(), 1e-9 * all.bytes()) << threads;
        EXPECT_NEAR(sum.macs(), all.macs(), 1e-9 * all.macs()) << threads;
      }
    }
  }
}

struct Bound {
  ModelShape shape;
  const char* name;
};

// 64 threads: no phase that takes time is longer than a tenth more than with equal shares, but for
// what cannot be cut finer, and all together are within a few percent.
TEST(SharePlan, SixtyFourThreadsHaveEqualShares) {
  ModelShape mix = Shape1b();
  mix.type = "Q4_K";
  mix.value_type = "Q6_K";
  for (const auto& [shape, name] :
       {Bound{Shape1b(), "1b"}, Bound{Shape8b(), "8b"}, Bound{mix, "mix"}}) {
    const auto model = OpenShape(shape);
    ASSERT_NE(model, nullptr);
    const graph::SharePlan decode = SharesOf(*model, 1, 8192, 64);
    EXPECT_LE(Imbalance(decode, Measure::kBytes, 64), 1.05) << name;
    const graph::SharePlan prompt = SharesOf(*model, 512, 512, 64);
    EXPECT_LE(Imbalance(prompt, Measure::kMacs, 64), 1.05) << name;
    for (const graph::SharePlan* plan : {&decode, &prompt}) {
      for (const graph::PhaseShares& phase : plan->phases) {
        if (phase.measure == Measure::kUnits) continue;
        // The mix's tiles of 16 rows are of two sizes; a thread has three.
        EXPECT_LE(phase.Imbalance(64), name == std::string("mix") ? 1.36 : 1.1)
            << name << " " << phase.name;
        EXPECT_EQ(phase.busy, 64) << name << " " << phase.name;
      }
      // Five phases a layer and the head: what comes between them is one thread's, or shared rows.
      EXPECT_LE(plan->barriers, (plan == &decode ? 5 : 8) * shape.layers + 3) << name;
    }
    EXPECT_GE(decode.barriers, 5 * shape.layers + 1) << name;
  }
}

// Every byte of a matrix that is owned belongs to one thread, and the threads own about as much.
TEST(OwnedWeights, AreWholeMatricesAndEqualParts) {
  const auto model = OpenShape(Shape1b());
  for (const int64_t threads : {1, 3, 64}) {
    std::map<const std::byte*, size_t> ends;  // by begin
    std::vector<size_t> bytes(static_cast<size_t>(threads));
    for (const run::OwnedBytes& owned : run::OwnedWeights(model->plan(), threads)) {
      if (owned.bytes.empty()) continue;
      const auto [at, added] = ends.emplace(owned.bytes.data(), owned.bytes.size());
      EXPECT_TRUE(added);
      bytes[static_cast<size_t>(owned.thread)] += owned.bytes.size();
    }
    size_t matrices = 0;
    for (const formats::GgufTensor& tensor : model->file().tensors()) {
      if (tensor.n_dims != 2) continue;
      ++matrices;
      const std::byte* at = tensor.data;
      while (ends.contains(at) && at < tensor.data + tensor.size_bytes) at += ends[at];
      EXPECT_EQ(at, tensor.data + tensor.size_bytes) << tensor.name << ", " << threads;
    }
    EXPECT_EQ(matrices, 16u * 7 + 1);
    EXPECT_TRUE(run::SharedWeights(model->plan()).empty());
    const auto [least, most] = std::ranges::minmax(bytes);
    EXPECT_LE(static_cast<double>(most), 1.02 * static_cast<double>(least));
  }
}

// Each page of the matrices is asked for once, whoever of how many threads owns which rows of it.
TEST(PlacedWeights, EveryPageOnce) {
  for (const int experts : {0, 4}) {
    TinyShape shape;
    shape.dim = 256;
    shape.ffn = 512;
    shape.experts.count = experts;
    const auto model = OpenTiny(shape);
    std::map<const std::byte*, std::span<const std::byte>> matrices;
    for (const graph::Stage stage : {graph::Stage::kBody, graph::Stage::kHead}) {
      for (const auto& node : model->plan().nodes(stage)) {
        for (const formats::GgufTensor* matrix : node->Matrices()) {
          matrices[matrix->data] = {matrix->data, static_cast<size_t>(matrix->size_bytes)};
        }
      }
    }
    size_t bytes = 0;
    for (const auto& [at, matrix] : matrices) bytes += PagesBegunIn(matrix).size();
    for (const int threads : {1, 3, 16}) {
      const ThreadPlaces places = {.cpus = {},
                                   .nodes = std::vector<int64_t>(static_cast<size_t>(threads), 0)};
      ThreadPool team(threads);
      const PagesPlaced placed = run::PlaceWeights(model->plan(), places, team);
      EXPECT_EQ(static_cast<size_t>(placed.pages * sysconf(_SC_PAGESIZE)), bytes) << threads;
    }
  }
}

TEST(OwnedWeights, ExpertsBelongToAllThreads) {
  TinyShape shape;
  shape.experts.count = 4;
  const auto model = OpenTiny(shape);
  EXPECT_EQ(run::SharedWeights(model->plan()).size(), 2u * 3);
}

}  // namespace
}  // namespace kvant::test
