#include "tools/serve/answer/slot_requests.h"

#include <chrono>
#include <utility>

#include "base/result.h"

namespace kvant::tools {
namespace {

using SlotClock = std::chrono::steady_clock;

double SecondsSince(SlotClock::time_point start) {
  return std::chrono::duration<double>(SlotClock::now() - start).count();
}

}  // namespace

Status SlotSave::Advance(SequenceHost&) {
  const auto start = SlotClock::now();
  done_ = true;
  saved_ = runner_.Save(path_, {&sequence_, 1});
  seconds_ = SecondsSince(start);
  return {};
}

void SlotSave::Release(SequenceHost& host, std::optional<SequenceId>) {
  (void)host.FreeSequence(std::exchange(sequence_, -1));  // it exists
}

Status SlotSave::End() {
  ended_(status().ok() ? saved_ : status(), tokens_, seconds_);
  return {};
}

Status SlotRestore::Prepare() {
  const auto start = SlotClock::now();
  restored_ = Restore();
  seconds_ = SecondsSince(start);
  return {};
}

Status SlotRestore::Restore() {
  KVANT_ASSIGN(const std::vector<SequenceId> loaded, runner_.Load(path_));
  if (loaded.size() == 1) {
    const auto tokens = runner_.tokens(loaded.front());
    tokens_.assign(tokens.begin(), tokens.end());
  }
  for (const SequenceId sequence : loaded) KVANT_TRY(runner_.FreeSequence(sequence));
  if (loaded.size() == 1) return {};
  return MakeError(ErrorCode::kInvalid, "{}: expected one sequence, found {}", path_,
                   loaded.size());
}

Status SlotRestore::End() {
  ended_(status().ok() ? restored_ : status(), tokens_, seconds_);
  return {};
}

}  // namespace kvant::tools
