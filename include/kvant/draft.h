// Guesses at the tokens that come next, which the model then checks in one pass (speculative
// decoding): a right guess saves a pass, a wrong one costs little.
//
// The text does not depend on the guesses: every token is chosen from the model's own logits, as
// without them. Source: Leviathan et al. 2023 (arXiv 2211.17192), here with the choice of the
// sampler itself in place of their acceptance rule, so that a seed gives the same text with any
// draft.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kvant/result.h"
#include "kvant/sequence_host.h"
#include "kvant/session.h"

namespace kvant {

class Draft {
 public:
  virtual ~Draft() = default;

  // Returns at most `count` tokens that may follow `text`, which is all tokens so far; fewer or
  // none where it has no guess. Valid until the next call. Errors are those of Session.
  virtual Result<std::span<const TokenId>> Propose(std::span<const TokenId> text,
                                                   int64_t count) = 0;

  // As Propose, for a text whose last token comes next in a sequence of `host`, which holds the
  // tokens before it.
  virtual Result<std::span<const TokenId>> ProposeIn(SequenceHost& host, SequenceId sequence,
                                                     std::span<const TokenId> text, int64_t count);

  // A text begins, or goes on after a pause: the time since the last call was spent elsewhere.
  virtual void Begin() {}
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

// Guesses with the layers of the text's own model that predict further tokens
// (ModelOptions::predictors); none where there are no such layers. Any number of texts may share
// one.
class PredictedDraft final : public Draft {
 public:
  Result<std::span<const TokenId>> Propose(std::span<const TokenId> text, int64_t count) override;
  Result<std::span<const TokenId>> ProposeIn(SequenceHost& host, SequenceId sequence,
                                             std::span<const TokenId> text, int64_t count) override;
};

// Asks another draft as long as that saves time. It measures the seconds for each token of the
// text, in passes with guesses and in passes without, the other draft's own time included. While
// guesses lose, it makes none, and tries again after a pause that grows with each failure. So the
// number of guesses depends on the machine; the text does not.
class MeasuredDraft final : public Draft {
 public:
  using Clock = std::function<double()>;  // seconds

  // `clock`: empty for that of the machine.
  explicit MeasuredDraft(std::shared_ptr<Draft> draft, Clock clock = {});

  Result<std::span<const TokenId>> Propose(std::span<const TokenId> text, int64_t count) override;
  Result<std::span<const TokenId>> ProposeIn(SequenceHost& host, SequenceId sequence,
                                             std::span<const TokenId> text, int64_t count) override;
  void Begin() override;

 private:
  // Seconds and tokens of passes, of which later ones count more.
  struct Speed {
    double seconds = 0;
    double tokens = 0;
    int passes = 0;  // at most kPassesEnough

    void Add(double seconds_of_pass, double tokens_of_pass);
    double per_token() const { return seconds / tokens; }
  };
  static constexpr int kPassesEnough = 6;

  using Ask = std::function<Result<std::span<const TokenId>>()>;
  Result<std::span<const TokenId>> Measure(size_t length, const Ask& ask);
  void TakeLast(size_t length, double now);
  bool Guesses();

  std::shared_ptr<Draft> draft_;
  Clock clock_;
  Speed guessed_;
  Speed plain_;
  // The pass that is under way: when it began, the text's length then, and whether it has guesses.
  double began_ = 0;
  size_t length_ = 0;  // 0: there is none
  bool has_guesses_ = false;
  int64_t asked_ = 0;  // passes since the beginning of this attempt
  int64_t pause_ = 0;  // tokens to pass over before the next attempt; 0: guesses are made
  int64_t next_pause_ = 0;
};

}  // namespace kvant
