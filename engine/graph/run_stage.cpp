#include "engine/graph/run_stage.h"

namespace kvant::graph {

Status RunStage(const Plan& plan, Stage stage, StepContext& step, ThreadPool& pool,
                const StageOptions& options) {
  const NodeList& nodes = plan.nodes(stage);
  std::atomic<bool> cancelled = false;
  ++step.run;
  const auto run = [&](int64_t phase, const ThreadPool::Member& member) {
    if (options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed)) {
      cancelled.store(true, std::memory_order_relaxed);
    }
    if (cancelled.load(std::memory_order_relaxed)) return;
    nodes[static_cast<size_t>(phase)]->Run(step, member);
  };
  const int64_t phases = std::ssize(nodes);
  options.team == Team::kAll ? pool.RunPhases(phases, run) : pool.RunPhasesAlone(phases, run);
  if (!cancelled) return {};
  for (std::atomic<int32_t>& arrived : step.arrivals) arrived.store(0, std::memory_order_relaxed);
  return MakeError(ErrorCode::kCancelled, "cancelled");
}

}  // namespace kvant::graph
