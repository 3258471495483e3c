// A step: new tokens of several sequences, cut into chunks and put together into passes.
//
// A long chunk of a prompt is a pass of its own. All short ones share passes of few rows, which
// have one arithmetic, so that a sequence gets the same bits in any company. Thread-safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/run/executor.h"
#include "engine/run/sequences.h"

namespace kvant::run {

// kInvalid for no tokens and for ids outside the vocabulary; kContextFull if they do not fit after
// `length` others.
Status CheckTokens(const Core& core, int64_t length, std::span<const TokenId> tokens);

class Stepper {
 public:
  Stepper(Core& core, Sequences& sequences, Executor& executor);

  // See Runner::Step.
  Status Step(std::span<const StepInput> inputs, const StepOptions& options);

  // Tokens of one sequence, without help from the prefix index. Logits of those from number `first`
  // on are shown as the executor shows them, with the number of the first one of the call.
  using Rows = std::function<Status(int64_t index, std::span<const LogitRow> rows)>;
  Status Score(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
               const Rows& rows);

 private:
  // What a step has still to do for one of its inputs.
  struct Work {
    SequenceState* state;
    std::span<const TokenId> left;
    size_t done;         // tokens of the input before these
    size_t logits_from;  // number of the first token of the input that wants logits
    size_t input;
  };
  using Shown = std::function<Status(const Work& work, std::span<const LogitRow> rows)>;

  Status Validate(std::span<const StepInput> inputs, std::span<Status> statuses) const;
  Status CheckRoom(std::span<const Work> works);
  Status RunPasses(std::span<Work> works, const std::atomic<bool>* cancel, const Shown& shown);
  void ChoosePass(std::span<const Work> works);
  Status RunPass(std::span<Work> works, const std::atomic<bool>* cancel, const Shown& shown);

  Core& core_;
  Sequences& sequences_;
  Executor& executor_;
  std::vector<Work> works_;
  std::vector<kv::Growth> growths_;
  // The next pass: its parts, which work each belongs to, and the row that keeps its last logits.
  std::vector<PassPart> parts_;
  std::vector<size_t> work_of_part_;
  std::vector<LogitRows::Row> kept_;
};

}  // namespace kvant::run
