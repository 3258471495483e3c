// Shows an input of a matrix product to the plan's observer; the columns are split over the team.
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/observer.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::graph {
namespace {

// Floats of a cache line, so that members do not share one.
constexpr int64_t kObservedTile = 16;

class ObserveNode final : public Node {
 public:
  ObserveNode(MatMulObserver& observer, std::string name, const Activations& in)
      : Node(std::move(name), {in.floats}, {}), observer_(observer), in_(in) {
    KVANT_CHECK(in.floats != kNoValue && in.observed.has_value());
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range columns = OwnedRange(in_.cols, kObservedTile, member.index, member.count);
    if (columns.begin == columns.end) return;
    observer_.Observe(*in_.observed, pass.Floats(in_.floats), pass.RowFloats(in_.floats),
                      pass.RowCount(in_.floats), columns);
  }

  std::string Describe() const override { return fmt::format("observe [{}]", in_.cols); }

 private:
  MatMulObserver& observer_;
  Activations in_;
};

// Each row of a value holds a vector for each head, which are inputs of matrices of their own.
class ObserveHeadsNode final : public Node {
 public:
  ObserveHeadsNode(MatMulObserver& observer, std::string name, const HeadColumns& in, int64_t heads,
                   int64_t cols, int observed)
      : Node(std::move(name), {in.value}, {}),
        observer_(observer),
        in_(in),
        cols_(cols),
        observed_(observed) {
    for (int64_t head = 0; head <= heads; ++head) offsets_.push_back(static_cast<int32_t>(head));
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range columns = OwnedRange(cols_, kObservedTile, member.index, member.count);
    if (columns.begin == columns.end) return;
    for (int64_t row = 0; row < pass.RowCount(in_.value); ++row) {
      observer_.ObserveExperts(observed_, pass.FloatRow(in_.value, row) + in_.first, in_.stride,
                               offsets_, columns);
    }
  }

  std::string Describe() const override {
    return fmt::format("observe [{} x {}]", cols_, offsets_.size() - 1);
  }

 private:
  MatMulObserver& observer_;
  HeadColumns in_;
  int64_t cols_;
  int observed_;
  std::vector<int32_t> offsets_;
};

}  // namespace

std::unique_ptr<Node> MakeObserveHeads(MatMulObserver& observer, std::string name,
                                       const HeadColumns& in, int64_t heads, int64_t cols,
                                       int observed) {
  return std::make_unique<ObserveHeadsNode>(observer, std::move(name), in, heads, cols, observed);
}

std::unique_ptr<Node> MakeObserve(MatMulObserver& observer, std::string name,
                                  const Activations& in) {
  return std::make_unique<ObserveNode>(observer, std::move(name), in);
}

}  // namespace kvant::graph
