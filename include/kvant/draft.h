// Guesses at the tokens that come next, which the model then checks in one pass (speculative
// decoding): a right guess saves a pass, a wrong one costs little.
//
// The text does not depend on the guesses: every token is chosen from the model's own logits, as
// without them. Source: Leviathan et al. 2023 (arXiv 2211.17192), here with the choice of the
// sampler itself in place of their acceptance rule, so that a seed gives the same text with any
// draft.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvant/result.h"
#include "kvant/session.h"

namespace kvant {

class Draft {
 public:
  virtual ~Draft() = default;

  // Returns at most `count` tokens that may follow `text`, which is all tokens so far; fewer or
  // none where it has no guess. Valid until the next call. Errors are those of Session.
  virtual Result<std::span<const TokenId>> Propose(std::span<const TokenId> text,
                                                   int64_t count) = 0;
};

// Guesses the tokens that followed the last time that the text's last four tokens occurred, or,
// where they did not occur, its last three or two.
class NgramDraft final : public Draft {
 public:
  Result<std::span<const TokenId>> Propose(std::span<const TokenId> text, int64_t count) override;

 private:
  std::vector<TokenId> proposal_;
};

// Guesses the tokens that a smaller model with the same vocabulary finds likeliest; none where the
// text has ids of rows (Runner::AddRows), which the smaller model does not have.
class ModelDraft final : public Draft {
 public:
  // kInvalid where the numbers of tokens differ.
  static Result<std::unique_ptr<ModelDraft>> Create(std::unique_ptr<Session> session,
                                                    int32_t vocab_size);

  Result<std::span<const TokenId>> Propose(std::span<const TokenId> text, int64_t count) override;

 private:
  explicit ModelDraft(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  std::unique_ptr<Session> session_;
  std::vector<TokenId> proposal_;
};

}  // namespace kvant
