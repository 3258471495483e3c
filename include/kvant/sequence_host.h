// Where sequences live that somebody generates with: a Runner, or what stands for one in a test.
// The scheduler (include/kvant/scheduler.h) and the requests that it serves know no more than this.
//
// Errors and thread-safety are those of Runner (include/kvant/runner.h), which says what each call
// does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>

#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

using SequenceId = int;

// For which of its new tokens a step computes logits.
enum class Logits : uint8_t {
  kNone,
  kLast,  // which the sequence keeps
  kAll,   // which StepOptions::rows is shown; the sequence keeps the last
};

// New tokens of one sequence.
struct StepInput {
  SequenceId sequence;
  std::span<const TokenId> tokens;
  Logits logits = Logits::kLast;
};

struct StepOptions {
  // Looked at between the phases of every pass; set = kCancelled.
  const std::atomic<bool>* cancel = nullptr;
  // Sees the logits, [vocab], of every token of the inputs that want all: in order for each input.
  // They are only there during the call. An error undoes the pass and is returned.
  std::function<Status(size_t input, int64_t token, std::span<const float> logits)> rows = {};
  // [inputs], or empty: set for each input that alone is why the step was refused.
  std::span<Status> statuses = {};
};

// What a rewind may do where a window has dropped positions that are needed.
enum class Replay : uint8_t {
  kAllowed,    // compute them again from the tokens
  kForbidden,  // kNotSupported
};

enum class PrunePositions : uint8_t {
  kKept,   // the remaining tokens keep their positions; no data is touched
  kMoved,  // tokens after the hole move to earlier positions: their keys are turned back
};

// How a prompt is cut so that the rows have the same bits whoever else is served.
struct PromptCut {
  int64_t chunk = 0;     // a prompt alone is cut into chunks of so many tokens
  int64_t few_rows = 0;  // up to so many rows share one arithmetic, see kSharedRowsMax

  // How many of the tokens from number `done` on the next step may take: at most `limit` where that
  // is possible, and never some of a long chunk together with some of a short one. Long chunks (of
  // more than few_rows) are cut into pieces that are long themselves.
  int64_t Next(int64_t total, int64_t done, int64_t limit) const;
};

class SequenceHost {
 public:
  virtual ~SequenceHost() = default;

  virtual int64_t context() const = 0;        // positions of a sequence
  virtual int64_t sequences_max() const = 0;  // at the same time
  virtual PromptCut prompt_cut() const = 0;

  virtual Result<SequenceId> NewSequence() = 0;
  virtual Status FreeSequence(SequenceId sequence) = 0;
  virtual Result<SequenceId> Fork(SequenceId sequence) = 0;
  virtual Status Reorder(std::span<const SequenceId> sequences, std::span<const int> parents) = 0;
  virtual Status Rewind(SequenceId sequence, int64_t length, Replay replay = Replay::kAllowed) = 0;
  virtual Status Prune(SequenceId sequence, int64_t keep_first, int64_t keep_last,
                       PrunePositions positions) = 0;

  // Gives an empty sequence what is known of a prompt's beginning; returns of how many tokens.
  virtual Result<int64_t> ReusePrefix(SequenceId sequence, std::span<const TokenId> prompt) = 0;
  virtual Status Step(std::span<const StepInput> inputs, const StepOptions& options = {}) = 0;

  virtual int64_t length(SequenceId sequence) const = 0;
  virtual std::span<const float> logits(SequenceId sequence) const = 0;
};

}  // namespace kvant
