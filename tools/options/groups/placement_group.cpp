#include "tools/options/groups/placement_group.h"

#include <mutex>

#include <fmt/format.h>

#include "tools/terminal/console.h"

namespace kvant::tools {

void PlacementGroup::Add(OptionList& list) {
  list.Checked(
      "--pin", [this](const std::string& text) { return ParsePin(Visible(text), &placement); },
      "CPUS",
      "Keep each thread on a CPU of its own: cores (one thread on every core first), or a list, "
      "0-31,64, or a mask, 0xff; none leaves the choice to the system",
      "none");
  list.Checked(
      "--numa", [this](const std::string& text) { return ParseNuma(Visible(text), &placement); },
      "HOW",
      "For machines with several memory nodes. distribute: spread threads and weights over all "
      "nodes, each thread's weights on its own node; isolate: keep all on one node",
      "none");
}

void PlacementGroup::NoteRest(const Runner& runner) const {
  static std::once_flag noted;
  std::call_once(noted, [&] {
    if (placement.numa == Numa::kNone) return;
    if (CountNumaNodes() == 1) {
      return Note("--numa: this machine has one memory node, there is nothing to place");
    }
    const RunnerStats stats = runner.stats();
    if (stats.weight_pages_placed == stats.weight_pages) return;
    Note(fmt::format("--numa: {} of {} pages of weights stay where the system has put them",
                     stats.weight_pages - stats.weight_pages_placed, stats.weight_pages));
  });
}

}  // namespace kvant::tools
