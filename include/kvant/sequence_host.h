// The operations on sequences that text generation needs. Runner implements them, and so do scripts
// in tests. The scheduler (include/kvant/scheduler.h) and its requests use nothing else of a
// runner.
//
// Errors and thread-safety are those of Runner (include/kvant/runner.h), which says what each call
// does.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "kvant/adapter.h"
#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

using SequenceId = int;

// The new tokens of an input for which a step computes logits.
enum class Logits : uint8_t {
  kNone,
  kLast,  // the sequence keeps them
  kAll,   // StepOptions::rows gets them; the sequence keeps those of the last token
};

// New tokens of one sequence.
struct StepInput {
  SequenceId sequence;
  std::span<const TokenId> tokens;
  Logits logits = Logits::kLast;
  // Whether an empty sequence may get known blocks (SessionOptions::prefix_cache). With kAll it
  // gets none.
  bool reuses_prefix = true;
};

struct StepOptions {
  // Read between the phases of every pass; once it is set, the step ends with kCancelled.
  const std::atomic<bool>* cancel = nullptr;
  // Called with the logits, [vocab], of every token of the inputs that want all, in order for each
  // input. They are valid only during the call. An error undoes the pass and is returned.
  std::function<Status(size_t input, int64_t token, std::span<const float> logits)> rows = {};
  // [inputs], or empty. Where the step is refused because of single inputs, each gets its error.
  std::span<Status> statuses = {};
};

// The behaviour of Rewind where a window has dropped positions that the next token sees.
enum class Replay : uint8_t {
  kAllowed,    // computes them again from the tokens
  kForbidden,  // returns kNotSupported
};

enum class PrunePositions : uint8_t {
  kKept,   // the remaining tokens keep their positions; no data is touched
  kMoved,  // later tokens move to earlier positions, and their keys are rotated back
};

// Blocks of a cache, of all its groups together.
struct BlockCounts {
  int64_t used = 0;
  int64_t shared = 0;  // of those used: referred to more than once
  int64_t free = 0;    // that may still be used
};

// How a prompt is cut into pieces so that its rows have the same bits whatever else is served.
struct PromptCut {
  int64_t chunk = 0;     // tokens of the chunks that a prompt alone is cut into
  int64_t few_rows = 0;  // the most rows that share one arithmetic, see kSharedRowsMax

  // How many of a prompt's `total` tokens the next step may take after the first `done`: never
  // beyond the end of a chunk, and at most `limit` where that is possible. A chunk of more than
  // few_rows tokens is cut into pieces of more than few_rows tokens, which have the same
  // arithmetic.
  int64_t Next(int64_t total, int64_t done, int64_t limit) const;
};

class SequenceHost {
 public:
  virtual ~SequenceHost() = default;

  // The name of what computes the logits, for messages: the file of a model. May be empty.
  virtual std::string_view name() const { return {}; }
  virtual int64_t context() const = 0;        // positions of a sequence
  virtual int64_t sequences_max() const = 0;  // most sequences at the same time
  virtual PromptCut prompt_cut() const = 0;
  // Prefixes are kept in blocks of so many tokens, as soon as a step has computed them; 0: they are
  // not kept.
  virtual int64_t prefix_block() const { return 0; }
  virtual BlockCounts block_counts() const { return {}; }
  // How many of a sequence's last tokens Rewind takes back without computing others again.
  virtual int64_t free_rewind() const { return INT64_MAX; }

  virtual Result<SequenceId> NewSequence() = 0;
  // Creates a sequence of a source with these tokens, which is encoded unless it is known. kInvalid
  // where there is no encoder.
  virtual Result<SequenceId> NewSequenceOf(std::span<const TokenId> source);
  // Creates a sequence of a source of frames of features.
  virtual Result<SequenceId> NewSequenceOfFrames(std::span<const float> frames);
  // Sets the adapters that an empty sequence uses. kNotSupported where there are none.
  virtual Status SetAdapters(SequenceId sequence, std::span<const AdapterUse> uses);
  virtual Status FreeSequence(SequenceId sequence) = 0;
  virtual Result<SequenceId> Fork(SequenceId sequence) = 0;
  virtual Status Reorder(std::span<const SequenceId> sequences, std::span<const int> parents) = 0;
  virtual Status Rewind(SequenceId sequence, int64_t length, Replay replay = Replay::kAllowed) = 0;
  virtual Status Prune(SequenceId sequence, int64_t keep_first, int64_t keep_last,
                       PrunePositions positions) = 0;

  // Gives an empty sequence the cached beginning of a prompt; returns how many tokens that has.
  virtual Result<int64_t> ReusePrefix(SequenceId sequence, std::span<const TokenId> prompt) = 0;
  virtual Status Step(std::span<const StepInput> inputs, const StepOptions& options = {}) = 0;

  // Runs task(i) for each i, 0 <= i < count, each once, on any thread of the host's, several at a
  // time. Returns when all have ended. No step may be under way.
  virtual void RunApart(size_t count, const std::function<void(size_t i)>& task);
  // At most `count` tokens that may follow `next`, which may follow the tokens of a sequence, as
  // layers of the model predict them; none where there are no such layers. Valid until the next
  // call.
  virtual Result<std::span<const TokenId>> Predict(SequenceId sequence, TokenId next,
                                                   int64_t count);

  virtual int64_t length(SequenceId sequence) const = 0;
  virtual std::span<const float> logits(SequenceId sequence) const = 0;
};

}  // namespace kvant
