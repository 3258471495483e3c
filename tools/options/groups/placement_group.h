// The options of where threads run and memory lies: --pin and --numa.
#pragma once

#include "kvant/runner.h"
#include "kvant/thread_placement.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

struct PlacementGroup {
  ThreadPlacement placement;

  void Add(OptionList& list);
  // A line on stderr, of the program's first runner: where --numa has nothing to do, on a machine
  // with one node, and where the system has left pages of weights where they were.
  void NoteRest(const Runner& runner) const;
};

}  // namespace kvant::tools
