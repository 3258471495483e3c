// Guesses the tokens behind the next one with the layers of a model that predict further tokens
// (arch::Predictors), one token a pass of their plans (graph::kDraftPlans).
//
// The keys and values of these layers up to the last token are those that the passes of the model
// have stored. What a guess stores behind them lies in blocks that are given back before it ends,
// so that it leaves no trace. Thread-safety: none; it runs on the thread of the passes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/graph/plan.h"
#include "engine/kv/pass_view.h"
#include "engine/run/core.h"
#include "engine/run/executor.h"
#include "engine/run/hidden_rows.h"
#include "kvant/token_id.h"

namespace kvant::run {

class Predictor {
 public:
  Predictor(Core& core, Executor& executor) : core_(core), executor_(executor) {}
  // Allocates the memory of a guess. kOutOfMemory.
  Status Prepare();

  // At most `count` tokens that may follow `next`, which follows the tokens of a sequence; none
  // where the row of its last token is not known or there is no room. Valid until the next call.
  Result<std::span<const TokenId>> Guess(kv::Sequence& sequence, const HiddenRows& hidden,
                                         TokenId next, int64_t count);
  // The logits of the last token that Guess has returned, [vocab].
  std::span<const float> logits() const { return logits_; }

 private:
  // A plan, and where its values lie.
  struct Head {
    const graph::Plan* plan;
    graph::ArenaLayout layout;
  };

  Status RunHead(const Head& head, const kv::Sequence& sequence, int64_t first, int64_t rows);

  Core& core_;
  Executor& executor_;
  std::vector<Head> heads_;
  AlignedBuffer arena_;
  AlignedBuffer scratch_;
  AlignedBuffer shared_;
  std::vector<std::atomic<int32_t>> arrivals_;
  std::optional<kv::PassView> view_;
  kv::Sequence reader_;  // the sequence under way, at the position of a pass
  graph::PassContext pass_;
  uint64_t weight_bytes_ = 0;

  std::vector<TokenId> tokens_;     // `next` and the guesses
  std::vector<int64_t> positions_;  // of these
  std::vector<float> rows_;         // of the positions before these
  std::span<const float> logits_;
};

}  // namespace kvant::run
