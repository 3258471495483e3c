// Loops that show what a processor can do at most: read memory, multiply and accumulate. Results of
// a benchmark are told as a share of these limits.
//
// Each does nothing but the operation in question on independent data, so that no kernel of the
// same instruction set can be faster. Thread-safety: pure functions over their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvant::cpu {

struct PeakLoop {
  const char* instruction;  // "vpdpbusd zmm"
  int64_t macs;             // multiply-accumulates of a round
  // Multiplies and accumulates ones in registers for `rounds` rounds, at most kPeakRoundsMax, and
  // returns the sum of all accumulators: macs * rounds.
  int64_t (*run)(int64_t rounds);
};

// Accumulators of 32 bits are still exact after this many rounds.
inline constexpr int64_t kPeakRoundsMax = int64_t{1} << 18;

// `Read` below takes whole pieces of this size.
inline constexpr size_t kReadPieceBytes = 256;

struct PeakLoops {
  // The exclusive or of all 64-bit words; data aligned to 64 bytes, bytes a multiple of
  // kReadPieceBytes. A few long ascending streams, which the processor's prefetchers serve best.
  uint64_t (*read)(const std::byte* data, size_t bytes);
  PeakLoop int8;
  PeakLoop int16;
  PeakLoop float32;
};

// A chain of dependent operations of one cycle each, to tell the clock: returns how many, about
// rounds * 64.
int64_t RunClock(int64_t rounds);

}  // namespace kvant::cpu
