#include "engine/graph/run_stage.h"

#include <algorithm>
#include <span>

#include "base/interrupt.h"
#include "base/result.h"

namespace kvant::graph {
namespace {

// The run of a stage: which node is next, and whether a flag or the caller has cancelled it.
class StageRun {
 public:
  StageRun(const NodeList& nodes, const PassContext& pass, const StageOptions& options)
      : nodes_(Wanted(nodes, options)), pass_(pass), options_(options), due_(InterruptDue()) {}

  // Runs the narrow nodes before the next wide one. False at the end of the stage, and where the
  // calling thread has slept while others worked, and is to be asked.
  bool Next(const ThreadPool::Member& member) {
    for (; next_ < nodes_.size(); ++next_) {
      if (IsCancelled() || IsDue()) return false;
      if (nodes_[next_]->WidthOf(pass_.rows) == Width::kTeam) break;
      nodes_[next_]->Run(pass_, member);
    }
    if (next_ == nodes_.size()) return false;
    wide_ = nodes_[next_++].get();
    return true;
  }

  // A share of the wide node.
  void RunShare(const ThreadPool::Member& member) {
    if (member.thread == 0) AskCaller();
    if (!IsCancelled()) wide_->Run(pass_, member);
  }

  void RunAlone(const ThreadPool::Member& member) {
    for (const auto& node : nodes_) {
      AskCaller();
      if (!IsCancelled()) node->Run(pass_, member);
    }
  }

  // On the calling thread, between phases: whether there are more of them.
  bool GoesOn() {
    AskCaller();
    return !IsCancelled() && next_ < nodes_.size();
  }

  bool cancelled() const { return cancelled_; }

 private:
  static std::span<const std::unique_ptr<Node>> Wanted(const NodeList& nodes,
                                                       const StageOptions& options) {
    const size_t end = std::min(options.end, nodes.size());
    const size_t first = std::min(options.first, end);
    return std::span(nodes).subspan(first, end - first);
  }

  // A cancelled run stays cancelled, even where the caller takes the flag back.
  bool IsCancelled() {
    for (const std::atomic<bool>* flag : {options_.cancel, options_.cancel_too}) {
      if (flag != nullptr && flag->load(std::memory_order_relaxed)) {
        cancelled_.store(true, std::memory_order_relaxed);
      }
    }
    return cancelled_.load(std::memory_order_relaxed);
  }

  // Any thread may ask whether the calling thread is to be asked; only that one asks.
  bool IsDue() const {
    const InterruptClock::time_point due = due_.load(std::memory_order_relaxed);
    return due != InterruptClock::time_point::max() && InterruptClock::now() >= due;
  }
  void AskCaller() {
    if (IsCancelled() || !IsDue()) return;
    if (IsInterrupted()) cancelled_.store(true, std::memory_order_relaxed);
    due_.store(InterruptDue(), std::memory_order_relaxed);
  }

  const std::span<const std::unique_ptr<Node>> nodes_;
  const PassContext& pass_;
  const StageOptions& options_;
  std::atomic<InterruptClock::time_point> due_;  // when the calling thread is to be asked
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
    while (run.GoesOn()) {
      pool.RunPhases([&](const ThreadPool::Member& member) { return run.Next(member); },
                     [&](const ThreadPool::Member& member) { run.RunShare(member); });
    }
  }
  if (!run.cancelled()) return {};
  for (std::atomic<int32_t>& arrived : pass.arrivals) arrived.store(0, std::memory_order_relaxed);
  return MakeError(ErrorCode::kCancelled, "cancelled");
}

}  // namespace kvant::graph
