// Time that has passed.
#pragma once

#include <chrono>

namespace kvant::tools {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace kvant::tools
