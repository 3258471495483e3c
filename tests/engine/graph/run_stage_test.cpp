// Running a stage: every node in order, wide ones share by share, narrow ones once and between
// phases, on teams of any size; and what a plan says of phases and work.
#include "engine/graph/run_stage.h"
#include "base/interrupt.h"
#include "base/result.h"
#include "cpu/activations.h"
#include "cpu/kv_format_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "kvant/model.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"

namespace kvant::graph {
namespace {

// The work that nodes have done, without atomics: the thread sanitizer sees accesses that are not
// ordered.
struct Journal {
  std::vector<int> finished;   // narrow nodes, by number
  std::vector<int64_t> units;  // work of the newest wide node that is done
  int64_t wide = 0;            // wide nodes that have begun
};

constexpr int64_t kUnits = 300;

// Adds one to every unit; its team sees what all nodes before have done.
class WideNode final : public Node {
 public:
  WideNode(Journal& journal, ValueId value, int64_t before, size_t narrow_before)
      : Node("wide", {}, {value}),
        journal_(journal),
        before_(before),
        narrow_before_(narrow_before) {}
  void Run(const PassContext&, const ThreadPool::Member& member) const override {
    EXPECT_EQ(journal_.finished.size(), narrow_before_);
    const Range range = OwnedRange(kUnits, 1, member.index, member.count);
    for (int64_t unit = range.begin; unit < range.end; ++unit) {
      EXPECT_EQ(journal_.units[static_cast<size_t>(unit)]++, before_);
    }
  }
  std::string Describe() const override { return ""; }

 private:
  Journal& journal_;
  int64_t before_;  // wide nodes
  size_t narrow_before_;
};

class NarrowNode final : public Node {
 public:
  NarrowNode(Journal& journal, ValueId value, int64_t before)
      : Node("narrow", {}, {value}), journal_(journal), before_(before) {}
  void Run(const PassContext&, const ThreadPool::Member& member) const override {
    EXPECT_EQ(member.index, 0);
    EXPECT_EQ(member.count, 1);
    for (const int64_t unit : journal_.units) EXPECT_EQ(unit, before_);
    journal_.finished.push_back(number());
  }
  Width WidthOf(const RowCounts& counts) const override { return WidthOfRows(counts[rows()], 100); }
  std::string Describe() const override { return ""; }

 private:
  Journal& journal_;
  int64_t before_;
};

class RunStageTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, RunStageTest, testing::Values(1, 2, 3, 8, 64));

TEST_P(RunStageTest, NarrowNodesRunBetweenPhases) {
  ThreadPool pool(GetParam());
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    Journal journal;
    Plan plan;
    const ValueId value = plan.AddValue("v", RowSpace::kPass, 1, cpu::ActivationKind::kFloat32);
    int64_t wide = 0;
    size_t narrow = 0;
    const int nodes = trial < 4 ? trial : 30;
    for (int i = 0; i < nodes; ++i) {
      if (random() % 2 == 0) {
        plan.AddNode(Stage::kBody, std::make_unique<WideNode>(journal, value, wide++, narrow));
      } else {
        plan.AddNode(Stage::kBody, std::make_unique<NarrowNode>(journal, value, wide));
        ++narrow;
      }
    }
    PassContext pass;
    pass.rows.Set(RowSpace::kPass, 1);
    EXPECT_EQ(plan.CountPhases(Stage::kBody, pass.rows), wide);
    for (const Team team : {Team::kAll, Team::kCallerAlone}) {
      journal.units.assign(kUnits, 0);
      journal.finished.clear();
      ASSERT_TRUE(RunStage(plan, Stage::kBody, pass, pool, {team}).ok());
      EXPECT_EQ(journal.finished.size(), narrow);
      EXPECT_TRUE(std::is_sorted(journal.finished.begin(), journal.finished.end()));
      for (const int64_t unit : journal.units) ASSERT_EQ(unit, wide);
    }
  }
}

// Sets the flag, as a caller might at any time.
class CancellingNode final : public Node {
 public:
  CancellingNode(std::atomic<bool>& cancel, std::atomic<int>& runs, ValueId value)
      : Node("cancel", {}, {value}), cancel_(cancel), runs_(runs) {}
  void Run(const PassContext&, const ThreadPool::Member& member) const override {
    if (member.index == 0) ++runs_;
    if (number() == 2) cancel_ = true;
  }
  Width WidthOf(const RowCounts& counts) const override {
    return number() % 3 == 2 ? WidthOfRows(counts[rows()], 100) : Width::kTeam;
  }
  std::string Describe() const override { return ""; }

 private:
  std::atomic<bool>& cancel_;
  std::atomic<int>& runs_;
};

TEST_P(RunStageTest, NothingRunsAfterACancellation) {
  ThreadPool pool(GetParam());
  for (const int64_t rows : {1, 1000}) {  // node 2 is narrow, or wide
    std::atomic<bool> cancel = false;
    std::atomic<int> runs = 0;
    Plan plan;
    const ValueId value = plan.AddValue("v", RowSpace::kPass, 1, cpu::ActivationKind::kFloat32);
    for (int i = 0; i < 9; ++i)
      plan.AddNode(Stage::kBody, std::make_unique<CancellingNode>(cancel, runs, value));
    PassContext pass;
    pass.rows.Set(RowSpace::kPass, rows);
    const Status status = RunStage(plan, Stage::kBody, pass, pool, {Team::kAll, &cancel});
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
    EXPECT_LE(runs, 3);
    cancel = false;
    runs = 0;
    EXPECT_FALSE(RunStage(plan, Stage::kBody, pass, pool, {Team::kAll, &cancel}).ok());
  }
}

// A share takes a while, so that a stage takes longer than the calling thread goes unasked.
class SlowNode final : public Node {
 public:
  SlowNode(std::atomic<int>& runs, ValueId value) : Node("slow", {}, {value}), runs_(runs) {}
  void Run(const PassContext&, const ThreadPool::Member& member) const override {
    std::this_thread::sleep_for(kInterruptEvery / 3);
    if (member.index == 0) ++runs_;
  }
  std::string Describe() const override { return ""; }

 private:
  std::atomic<int>& runs_;
};

struct Asked {
  std::thread::id thread = std::this_thread::get_id();
  int times = 0;
  int ends_at = 0;  // 0: never
};

int32_t Ask(void* user) {
  auto& asked = *static_cast<Asked*>(user);
  EXPECT_EQ(std::this_thread::get_id(), asked.thread);
  return ++asked.times == asked.ends_at ? 1 : 0;
}

TEST_P(RunStageTest, TheCallingThreadIsAskedAllAlong) {
  ThreadPool pool(GetParam());
  for (const int ends_at : {0, 1, 3}) {
    for (const Team team : {Team::kAll, Team::kCallerAlone}) {
      constexpr int kNodes = 15;
      std::atomic<int> runs = 0;
      Plan plan;
      const ValueId value = plan.AddValue("v", RowSpace::kPass, 1, cpu::ActivationKind::kFloat32);
      for (int i = 0; i < kNodes; ++i) {
        plan.AddNode(Stage::kBody, std::make_unique<SlowNode>(runs, value));
      }
      PassContext pass;
      pass.rows.Set(RowSpace::kPass, 1);
      Asked asked{.ends_at = ends_at};
      SetInterrupt(Ask, &asked);
      const Status status = RunStage(plan, Stage::kBody, pass, pool, {team});
      SetInterrupt(nullptr, nullptr);
      EXPECT_EQ(status.ok(), ends_at == 0);
      EXPECT_EQ(asked.times >= 4, ends_at == 0);  // a stage of 150 ms and more, once in 30 ms
      EXPECT_EQ(runs == kNodes, ends_at == 0);
      if (ends_at > 0) {
        EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
        EXPECT_EQ(asked.times, ends_at);
      }
      if (ends_at == 1) {
        EXPECT_EQ(runs, 0);
      }
    }
  }
}

RowCounts Rows(int64_t pass, int64_t head) {
  RowCounts rows;
  rows.Set(RowSpace::kPass, pass);
  rows.Set(RowSpace::kHead, head);
  return rows;
}

// In decode, norms, rotary tables and cache writes cost no phase: what remains of a layer are the
// products (query, key and value; output; gate and up; down) and the attention.
TEST(PlanOfAModel, PhasesOfADecodedToken) {
  test::TinyShape shape;
  for (const int64_t layers : {1, 2, 5}) {
    shape.layers = layers;
    const auto model = test::OpenTiny(shape);
    EXPECT_EQ(model->plan().CountPhases(Stage::kBody, Rows(1, 1)), 5 * layers);
    EXPECT_EQ(model->plan().CountPhases(Stage::kHead, Rows(1, 1)), 1);
    // Embedding, rotary table, and two norms and the cache write of each layer; head: rows, norm.
    EXPECT_EQ(model->plan().CountPhases(Stage::kBody, Rows(500, 1)), 2 + 8 * layers);
    EXPECT_EQ(model->plan().CountPhases(Stage::kHead, Rows(500, 1)), 1);
  }
}

// Six layers with norms before and after both halves and over heads, and two rotary tables.
TEST(PlanOfAModel, PhasesOfADecodedTokenOfShakespeare) {
  const auto model = Model::Open(test::SourcePath("models/shakespeare/shakespeare.gguf"));
  ASSERT_TRUE(model.ok());
  const Plan& plan = (*model)->plan();
  EXPECT_EQ(plan.nodes(Stage::kBody).size() + plan.nodes(Stage::kHead).size(), 66u);
  EXPECT_EQ(plan.CountPhases(Stage::kBody, Rows(1, 1)), 30);
  EXPECT_EQ(plan.CountPhases(Stage::kHead, Rows(1, 1)), 1);
}

// Against the sums over the tiny model's shapes.
TEST(PlanOfAModel, WorkOfAPass) {
  test::TinyShape shape;
  shape.type = "Q8_0";
  shape.ffn = 128;
  shape.window = 20;
  const auto model = test::OpenTiny(shape);
  const double layer = 64.0 * (4 + 2 * 2) * 16 + 64.0 * 64 + 3 * 64.0 * 128;
  const double head = 64.0 * test::kTinyVocab;
  const Work products = model->plan().WorkOf({.rows = Rows(7, 3)});
  EXPECT_EQ(products.weight_bytes, (2 * layer + head) * 34 / 32);
  EXPECT_EQ(products.int8_macs, 7 * 2 * layer + 3 * head);
  EXPECT_EQ(products.float_macs, 0.0);
  EXPECT_EQ(products.cache_bytes, 0.0);
  EXPECT_EQ(model->plan().WorkOf({.rows = Rows(7, 0)}).weight_bytes, 2 * layer * 34 / 32);
  EXPECT_EQ(model->plan().WorkOf({}).weight_bytes, 0.0);

  // Rows at 98 and 99 see 20 positions each, 21 together; those at 3 and 4 see 4 and 5.
  const PassShape::Part parts[] = {{2, 100}, {2, 5}, {1, 5, true}};
  const PassShape::CacheTypes types = {KvType::kF16, KvType::kQ8};
  const Work cached = model->plan().WorkOf({.rows = {}, .parts = parts, .cache = types});
  EXPECT_EQ(cached.cache_bytes, 2 * (21 + 5) * 2 * (16 * 2 + 16 + 4));  // with the values' scales
  const double seen = 20 + 20 + 4 + 5 + 5;
  EXPECT_EQ(cached.float_macs, 2 * seen * 4 * 16);
  EXPECT_EQ(cached.int8_macs, 2 * seen * 4 * 16);
  const Work uncached = model->plan().WorkOf({.rows = {}, .parts = parts});
  EXPECT_EQ(uncached.cache_bytes, 0.0);
  EXPECT_EQ(uncached.float_macs, 2 * cached.float_macs);
}

// A rewritten list of row spaces or a slot too many shows here.
TEST(PlanOfAModel, ArenaAndNodesAreDescribed) {
  const auto model = test::OpenTiny({});
  const ArenaLayout layout = model->plan().Layout(100);
  EXPECT_EQ(layout.bytes, layout.bytes_of[RowSpace::kPass] + layout.bytes_of[RowSpace::kHead]);
  EXPECT_EQ(layout.bytes_of[RowSpace::kHead], model->plan().Layout(1).bytes_of[RowSpace::kHead]);
  EXPECT_EQ(layout.bytes_of[RowSpace::kPass],
            100 * model->plan().Layout(1).bytes_of[RowSpace::kPass]);
  const std::string text = model->DescribePlan();
  for (const char* part :
       {"plan decode\n", "N = tokens of the pass", "R = rows with logits",
        "body, phases for one row: 10", "head, phases for one row: 1", " layer.0.attention "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

}  // namespace
}  // namespace kvant::graph
