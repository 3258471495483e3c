#include "base/interrupt.h"

namespace kvant {
namespace {

struct Interrupt {
  InterruptFunction function = nullptr;
  void* user = nullptr;
  InterruptClock::time_point due = {};
};

thread_local Interrupt of_thread;

}  // namespace

void SetInterrupt(InterruptFunction function, void* user) { of_thread = {function, user, {}}; }

InterruptClock::time_point InterruptDue() {
  return of_thread.function == nullptr ? InterruptClock::time_point::max() : of_thread.due;
}

bool IsInterrupted() {
  Interrupt& interrupt = of_thread;
  if (interrupt.function == nullptr || InterruptClock::now() < interrupt.due) return false;
  const bool ends = interrupt.function(interrupt.user) != 0;
  // A thread that was told to end asks at once again: what it does next shall end as well.
  interrupt.due = ends ? InterruptClock::time_point() : InterruptClock::now() + kInterruptEvery;
  return ends;
}

}  // namespace kvant
