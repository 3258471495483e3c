// Lets a thread that has begun long work be asked, in the midst of it, whether the work shall end:
// an interpreter runs its signal handlers then, which it may do on that thread alone.
//
// Thread-safety: everything here is of the calling thread; other threads are never asked.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvant {

using InterruptClock = std::chrono::steady_clock;

// A tenth of a second is what a person takes for at once; a share of work takes a part of that.
constexpr std::chrono::milliseconds kInterruptEvery{30};

// Other than 0: the work that the thread is doing shall end.
using InterruptFunction = int32_t (*)(void* user);

// The function that the calling thread asks from now on; null: none.
void SetInterrupt(InterruptFunction function, void* user);

// When the function of the calling thread is to be asked next; never (max()) where there is none.
InterruptClock::time_point InterruptDue();

// Asks the function of the calling thread if that is due. True: the work shall end.
bool IsInterrupted();

}  // namespace kvant
