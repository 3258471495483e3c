// Random bits from the system, for a seed where the user gives none. The generator of these bits is
// the kernel's, so two calls never repeat each other; for numbers that a seed repeats see
// include/kvant/random.h. Own code instead of std::random_device, because that of Debian 12 needs
// glibc 2.36. Thread-safety: any thread.
#pragma once

#include <cstdint>

namespace kvant {

uint32_t SystemRandom();

}  // namespace kvant
