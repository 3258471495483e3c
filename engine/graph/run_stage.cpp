#include "engine/graph/run_stage.h"

#include "base/result.h"

namespace kvant::graph {
namespace {

// The run of a stage: which node is next, and whether a flag has cancelled it.
class StageRun {
 public:
  StageRun(const NodeList& nodes, const PassContext& pass, const StageOptions& options)
      : nodes_(nodes), pass_(pass), options_(options) {}

  // Runs the narrow nodes before the next wide one. False at the end of the stage.
  bool Next(const ThreadPool::Member& member) {
    for (; next_ < nodes_.size(); ++next_) {
      if (IsCancelled()) return false;
      if (nodes_[next_]->WidthOf(pass_.rows) == Width::kTeam) break;
      nodes_[next_]->Run(pass_, member);
    }
    if (next_ == nodes_.size()) return false;
    wide_ = nodes_[next_++].get();
    return true;
  }

  // A share of the wide node.
  void RunShare(const ThreadPool::Member& member) {
    if (!IsCancelled()) wide_->Run(pass_, member);
  }

  void RunAlone(const ThreadPool::Member& member) {
    for (const auto& node : nodes_) {
      if (!IsCancelled()) node->Run(pass_, member);
    }
  }

  bool cancelled() const { return cancelled_; }

 private:
  // A cancelled run stays cancelled, even where the caller takes the flag back.
  bool IsCancelled() {
    for (const std::atomic<bool>* flag : {options_.cancel, options_.cancel_too}) {
      if (flag != nullptr && flag->load(std::memory_order_relaxed)) {
        cancelled_.store(true, std::memory_order_relaxed);
      }
    }
    return cancelled_.load(std::memory_order_relaxed);
  }

  const NodeList& nodes_;
  const PassContext& pass_;
  const StageOptions& options_;
  std::atomic<bool> cancelled_ = false;
  size_t next_ = 0;
  const Node* wide_ = nullptr;
};

}  // namespace

Status RunStage(const Plan& plan, Stage stage, PassContext& pass, ThreadPool& pool,
                const StageOptions& options) {
  ++pass.run;
  StageRun run(plan.nodes(stage), pass, options);
  if (options.team == Team::kCallerAlone || pool.size() == 1) {
    run.RunAlone({&pool, 0, 1, 0});
  } else {
    pool.RunPhases([&](const ThreadPool::Member& member) { return run.Next(member); },
                   [&](const ThreadPool::Member& member) { run.RunShare(member); });
  }
  if (!run.cancelled()) return {};
  for (std::atomic<int32_t>& arrived : pass.arrivals) arrived.store(0, std::memory_order_relaxed);
  return MakeError(ErrorCode::kCancelled, "cancelled");
}

}  // namespace kvant::graph
