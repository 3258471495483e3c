// The largest numbers that sessions, files and the program's options accept. They keep sums of
// bytes inside 64 bits and refuse what can only be a mistake; memory sets the limits that are
// reached in practice.
#pragma once

#include <cstdint>

namespace kvant {

// Positions of a sequence. Models are trained for up to ten million.
inline constexpr int64_t kContextMax = int64_t{1} << 30;

// Threads of one team: more than the cores of any machine of today.
inline constexpr int64_t kThreadsMax = 1024;

// Sequences of one runner, and in one file.
inline constexpr int64_t kSequencesMax = 4096;

}  // namespace kvant
