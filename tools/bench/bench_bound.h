// How fast a test could be at most on this machine: the bytes it must read and the products it must
// compute, over the limits that were measured.
//
// Counted is what the nodes of the plan say of their work (engine/graph/work.h) in every pass over
// a chunk of tokens; of beams, which are one text and its branches, a cached position once for all
// of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/graph/work.h"
#include "engine/run/memory_plan.h"
#include "kvant/model.h"

namespace kvant::tools {

// One repetition: a source that is read, or a prompt of n_prompt tokens, then n_gen tokens one at a
// time, after `depth` tokens that are there already.
struct SpeedCase {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  int64_t depth = 0;
  int64_t sequences = 1;  // side by side, each with tokens of its own
  int64_t beams = 1;      // if more than 1: one sequence, one text
  int64_t guesses = 0;    // most tokens that the model's own layers guess at once; 0: no draft
  int64_t source = 0;     // tokens of the source behind which encoder-decoders write
  bool encodes = false;   // the test is reading the source

  // The speed of the test is this number of tokens over its seconds.
  int64_t tokens() const { return encodes ? source : (n_prompt + n_gen) * sequences; }
};

graph::Work CountWork(const Model& model, const SessionOptions& options, const SpeedCase& test);

// The pieces of memory that a decode step reads: the matrices that the plan multiplies with.
std::vector<std::span<const std::byte>> DecodeWeights(const Model& model);

// Cached bytes of one sequence with this number of positions.
double KvBytes(const MemoryPlan& plan, int64_t positions);

struct SpeedLimits {
  double weights_per_second = 0;  // bytes
  double kv_per_second = 0;       // bytes
  double int8 = 0;                // multiply-accumulates per second
  double int16 = 0;
  double float32 = 0;
};

struct SpeedBound {
  const char* kind = "none";  // "memory" or "compute": what takes longer
  double seconds = 0;         // 0 if nothing was measured
};

// The slower of reading everything and computing everything, both at full speed at once. Weights of
// 16 bits are computed as floats or in 16 bits, whichever is faster.
SpeedBound BoundOf(const graph::Work& work, const SpeedLimits& limits);

}  // namespace kvant::tools
