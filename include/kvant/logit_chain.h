// The stages that a row of logits passes in front of samplers, in the order of logit_stage.h.
//
// Thread-safety: one thread at a time per object; copies share nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kvant/logit_stage.h"
#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

struct LogitStageSources;

class LogitChain {
 public:
  LogitChain();
  LogitChain(const LogitChain& other);
  LogitChain(LogitChain&&) noexcept = default;
  LogitChain& operator=(const LogitChain& other);
  LogitChain& operator=(LogitChain&&) noexcept = default;

  // Adds the stages that the sources ask for, each at its place.
  Status Add(const LogitStageSources& sources);
  // Takes off the stages that belong to a request and leaves a sampler's own.
  void DropRequest();

  bool reads_tokens() const;
  bool keeps_state() const;
  // Whether a stage runs code of the caller's, which may expect one thread alone.
  bool has_callers_code() const;
  void Accept(TokenId token, TokenFrom from);

  // Adds the guesses of the first stage that has any, see LogitStage::Guess.
  void Guess(size_t most, Guesses which, std::vector<TokenId>& tokens) const;
  // Whether some stage says that the text is complete.
  bool IsOver() const;

  // Sends the row, [vocab], of the token after `text` through all stages. False if a stage that
  // ends texts has left no token. No value is NaN or +infinity before or after.
  Result<bool> Apply(const LogitText& text, std::span<float> row);

 private:
  // By place in logit_stage_list.inl.
  std::vector<std::vector<std::unique_ptr<LogitStage>>> places_;
};

}  // namespace kvant
