// The largest numbers that sessions, model files and the program's options may ask for. No real
// model and no machine comes near them. They keep products of sizes inside 64 bits and refuse what
// can only be a mistake; memory sets the limits that are reached in practice.
#pragma once

#include <cstdint>

namespace kvant {

// Positions of a sequence. Models are trained for up to ten million.
inline constexpr int64_t kContextMax = int64_t{1} << 30;

// Threads of one team: more than the cores of any machine of today.
inline constexpr int64_t kThreadsMax = 1024;

// Sequences of one runner, and in one file.
inline constexpr int64_t kSequencesMax = 4096;

// Sizes of a model: layers, the width of rows and of feed-forwards, heads of a layer, dimensions of
// a head.
inline constexpr uint32_t kLayersMax = 4096;
inline constexpr uint32_t kDimMax = 1u << 20;
inline constexpr uint32_t kHeadsMax = 1u << 16;
inline constexpr uint32_t kHeadDimMax = 4096;

// Rows that a convolution over the last rows sees. Models have 3 to 7.
inline constexpr uint32_t kConvTapsMax = 64;

// Experts of a layer, and experts that one token uses. Models have up to 512, and use up to 32.
inline constexpr uint32_t kExpertsMax = 4096;
inline constexpr uint32_t kExpertsUsedMax = 256;

// Rows of a pass at most where a device attends.
inline constexpr int64_t kOffloadChunkMax = 65536;

}  // namespace kvant
