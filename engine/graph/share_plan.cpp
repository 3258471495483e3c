#include "engine/graph/share_plan.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/thread_pool.h"

namespace kvant::graph {
namespace {

// "blk.*.qkv" for "blk.7.qkv".
std::string WithoutLayer(const std::string& name) {
  std::string text;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
    const bool number =
        end > i && i > 0 && name[i - 1] == '.' && (end == name.size() || name[end] == '.');
    text += number ? "*" : std::string(1, name[i]);
    i = number ? end : i + 1;
  }
  return text;
}

double In(Measure measure, const ShareWork& share) {
  switch (measure) {
    case Measure::kBytes: return share.work.bytes();
    case Measure::kMacs: return share.work.macs();
    case Measure::kUnits: break;
  }
  return share.units;
}

Measure MeasureOf(const Node& node, const PassShape& pass, const std::vector<ShareWork>& shares) {
  const bool few = pass.rows.tokens(node.rows()) == cpu::TokenCount::kFew;
  const Measure measure = few ? Measure::kBytes : Measure::kMacs;
  const bool any = std::ranges::any_of(
      shares, [measure](const ShareWork& share) { return In(measure, share) > 0; });
  return any ? measure : Measure::kUnits;
}

PhaseShares SharesOfThreads(const Node& node, const PassShape& pass, int64_t threads) {
  const auto count = int64_t{ThreadPool::SharesOf(static_cast<int>(threads))};
  const std::vector<ShareWork> shares = node.SharesOf(pass, count);
  PhaseShares phase = {.name = WithoutLayer(node.name()), .count = 1};
  phase.measure = MeasureOf(node, pass, shares);
  for (int64_t thread = 0; thread < threads; ++thread) {
    double own = 0;
    for (int64_t i = thread * count / threads; i < (thread + 1) * count / threads; ++i) {
      own += In(phase.measure, shares[static_cast<size_t>(i)]);
    }
    phase.total += own;
    phase.most = std::max(phase.most, own);
    phase.busy += own > 0 ? 1 : 0;
  }
  return phase;
}

}  // namespace

double SharePlan::Most(Measure measure) const {
  double sum = 0;
  for (const PhaseShares& phase : phases) {
    if (phase.measure == measure) sum += phase.most * static_cast<double>(phase.count);
  }
  return sum;
}

double SharePlan::Total(Measure measure) const {
  double sum = 0;
  for (const PhaseShares& phase : phases) {
    if (phase.measure == measure) sum += phase.total * static_cast<double>(phase.count);
  }
  return sum;
}

SharePlan PlanShares(const Plan& plan, const PassShape& pass, int64_t threads) {
  SharePlan result;
  for (size_t stage = 0; stage < kStageCount; ++stage) {
    for (const auto& node : plan.nodes(static_cast<Stage>(stage))) {
      if (node->WidthOf(pass.rows) == Width::kOne) {
        ++result.alone;
        continue;
      }
      ++result.barriers;
      PhaseShares phase = SharesOfThreads(*node, pass, threads);
      const auto same = std::ranges::find_if(result.phases, [&phase](const PhaseShares& other) {
        return other.name == phase.name && other.measure == phase.measure &&
               other.total == phase.total && other.most == phase.most && other.busy == phase.busy;
      });
      if (same == result.phases.end()) {
        result.phases.push_back(std::move(phase));
      } else {
        ++same->count;
      }
    }
  }
  return result;
}

}  // namespace kvant::graph
