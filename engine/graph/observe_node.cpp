// Shows an input of a matrix product to the plan's observer; the columns are split over the team.
#include <fmt/format.h>

#include "base/check.h"
#include "engine/graph/nodes.h"
#include "engine/graph/observer.h"

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

}  // namespace

std::unique_ptr<Node> MakeObserve(MatMulObserver& observer, std::string name,
                                  const Activations& in) {
  return std::make_unique<ObserveNode>(observer, std::move(name), in);
}

}  // namespace kvant::graph
