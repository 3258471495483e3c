#include "base/system_random.h"

#include <sys/random.h>

#include <chrono>

namespace kvant {

uint32_t SystemRandom() {
  uint32_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) == sizeof(bits)) return bits;
  // A kernel or a sandbox without the call: the clock differs from run to run.
  return static_cast<uint32_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace kvant
