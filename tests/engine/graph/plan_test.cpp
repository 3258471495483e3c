// Slots of a plan: values that live at the same time never share memory, whatever the graph.
#include "engine/graph/plan.h"
#include "cpu/activations.h"

#include <gtest/gtest.h>

#include <random>

namespace kvant::graph {
namespace {

class EmptyNode final : public Node {
 public:
  using Node::Node;
  void Run(const PassContext&, const ThreadPool::Member&) const override {}
  std::string Describe() const override { return "nothing"; }
};

TEST(Plan, LiveValuesNeverOverlapAndDeadOnesAreReused) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    Plan plan;
    const int n_values = 12;
    for (int i = 0; i < n_values; ++i) {
      plan.AddValue("v" + std::to_string(i), i < 9 ? RowSpace::kPass : RowSpace::kHead,
                    1 + static_cast<int64_t>(random() % 300), cpu::ActivationKind::kFloat32);
    }
    // A chain in which every value is written from one or two earlier ones.
    for (int i = 0; i < n_values; ++i) {
      std::vector<ValueId> reads;
      for (int r = 0; i > 0 && r < 2; ++r)
        reads.push_back(static_cast<ValueId>(random() % static_cast<uint32_t>(i)));
      auto node = std::make_unique<EmptyNode>("n", reads, std::vector<ValueId>{ValueId{i}});
      plan.AddNode(i < 9 ? Stage::kBody : Stage::kHead, std::move(node));
    }
    plan.SetLogits(ValueId{n_values - 1});
    plan.Finish();
    const int64_t chunk = 5;
    const ArenaLayout layout = plan.Layout(chunk);
    size_t sum = 0;
    for (size_t a = 0; a < n_values; ++a) {
      const Value& first = plan.values()[a];
      const auto bytes = [&](const Value& value) {
        return value.row_bytes *
               static_cast<size_t>(value.rows == RowSpace::kPass ? chunk : kHeadRows);
      };
      sum += bytes(first);
      ASSERT_LE(layout.value_offsets[a] + bytes(first), layout.bytes);
      for (size_t b = a + 1; b < n_values; ++b) {
        const Value& second = plan.values()[b];
        const bool alive_together =
            first.first_node <= second.last_node && second.first_node <= first.last_node;
        const bool overlap = layout.value_offsets[a] < layout.value_offsets[b] + bytes(second) &&
                             layout.value_offsets[b] < layout.value_offsets[a] + bytes(first);
        ASSERT_FALSE(alive_together && overlap) << first.name << " and " << second.name;
      }
    }
    ASSERT_LE(layout.bytes, sum);
  }
}

TEST(Plan, AChainNeedsTwoSlots) {
  Plan plan;
  for (int i = 0; i < 10; ++i) {
    plan.AddValue("v", RowSpace::kPass, 16, cpu::ActivationKind::kFloat32);
    plan.AddNode(Stage::kBody,
                 std::make_unique<EmptyNode>(
                     "n", i == 0 ? std::vector<ValueId>{} : std::vector<ValueId>{ValueId{i - 1}},
                     std::vector<ValueId>{ValueId{i}}));
  }
  plan.Finish();
  EXPECT_EQ(plan.Layout(3).bytes, 2u * 3u * 64u);
}

}  // namespace
}  // namespace kvant::graph
