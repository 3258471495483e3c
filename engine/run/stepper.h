// Runs a step: new tokens of several sequences, cut into chunks, which are put together into
// passes.
//
// A chunk of more than kSharedRowsMax tokens is a pass of its own. Shorter ones share passes of at
// most kSharedRowsMax rows, which have one arithmetic, so that a sequence gets the same bits in any
// company. Thread-safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/run/executor.h"
#include "engine/run/sequences.h"

namespace kvant::run {

// kInvalid for no tokens and for ids that neither the vocabulary nor a row block has; kContextFull
// if they do not fit after `length` others.
Status CheckTokens(const Core& core, int64_t length, std::span<const TokenId> tokens);

class Stepper {
 public:
  Stepper(Core& core, Sequences& sequences, Executor& executor);

  // See Runner::Step.
  Status Step(std::span<const StepInput> inputs, const StepOptions& options);

  // Appends tokens to one sequence, without the prefix index. Calls `rows` with the logits of the
  // tokens from number `first` on, some at a time; `index` is the number of the first of them.
  using Rows = std::function<Status(int64_t index, std::span<const LogitRow> rows)>;
  Status Score(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
               const Rows& rows);

 private:
  // The rest of the work for one input of the step.
  struct Work {
    SequenceState* state;
    std::span<const TokenId> left;
    size_t done;         // how many of the input's tokens come before `left`
    size_t logits_from;  // the first token of the input whose logits are wanted
    size_t input;        // its number in the step
  };
  using Shown = std::function<Status(const Work& work, std::span<const LogitRow> rows)>;

  Status Validate(std::span<const StepInput> inputs, std::span<Status> statuses) const;
  Status CheckRoom(std::span<const Work> works);
  Status RunPasses(std::span<Work> works, const std::atomic<bool>* cancel, const Shown& shown);
  bool KeepsStates() const;
  int64_t ToCheckpoint(const Work& work) const;
  TailLog* TailOf(SequenceState& state) const;
  HiddenRows* HiddenOf(SequenceState& state) const;
  void ChoosePass(std::span<const Work> works);
  Status RunPass(std::span<Work> works, const std::atomic<bool>* cancel, const Shown& shown);

  Core& core_;
  Sequences& sequences_;
  Executor& executor_;
  std::vector<Work> works_;
  std::vector<kv::Growth> growths_;
  // The next pass: its parts, and for each its Work and the row for the logits of its last token.
  std::vector<PassPart> parts_;
  std::vector<size_t> work_of_part_;
  std::vector<LogitRows::Row> kept_;
};

}  // namespace kvant::run
