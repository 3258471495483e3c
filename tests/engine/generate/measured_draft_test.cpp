// A draft that is asked only while it saves time, on a clock that the test sets: passes cost what
// the test says, and texts grow as it says.
#include <gtest/gtest.h>

#include "kvant/draft.h"

namespace kvant::test {
namespace {

// Guesses as many tokens as it is asked for, or none for every `rest`-th call.
class CountedDraft final : public Draft {
 public:
  Result<std::span<const TokenId>> Propose(std::span<const TokenId> /*text*/,
                                           int64_t count) override {
    ++calls;
    proposal_.assign(static_cast<size_t>(count), 7);
    return std::span<const TokenId>(proposal_);
  }
  void Begin() override { ++begun; }

  int64_t calls = 0;
  int begun = 0;

 private:
  std::vector<TokenId> proposal_;
};

// The costs of a text: a pass without guesses takes one second and makes one token.
struct Costs {
  double guessed_seconds;  // of a pass with guesses
  int64_t guessed_tokens;  // that it makes
};

class MeasuredDrafts : public testing::Test {
 protected:
  // Writes until the text has `tokens` tokens. Returns the seconds.
  double Write(int64_t tokens, const Costs& costs) {
    const double begin = now_;
    while (std::ssize(text_) < tokens) {
      const auto proposal = draft_.Propose(text_, 8);
      EXPECT_TRUE(proposal.ok());
      const bool guesses = proposal.ok() && !proposal->empty();
      now_ += guesses ? costs.guessed_seconds : 1.0;
      text_.resize(text_.size() + static_cast<size_t>(guesses ? costs.guessed_tokens : 1), 7);
    }
    return now_ - begin;
  }

  std::shared_ptr<CountedDraft> counted_ = std::make_shared<CountedDraft>();
  double now_ = 100;
  std::vector<TokenId> text_ = {1};
  MeasuredDraft draft_{counted_, [this] { return now_; }};
};

TEST_F(MeasuredDrafts, IsAskedWhileItSavesTime) {
  // Four tokens for one and a half passes: 2.7 times as fast, less a plain pass now and then.
  EXPECT_LT(Write(4000, {.guessed_seconds = 1.5, .guessed_tokens = 4}), 4000 / 2.5);
  EXPECT_GT(counted_->calls, 900);
}

TEST_F(MeasuredDrafts, IsNotAskedWhereItLoses) {
  // A wrong guess each time: without the measure this would take 1.6 times as long.
  const double seconds = Write(4000, {.guessed_seconds = 1.6, .guessed_tokens = 1});
  EXPECT_LT(seconds, 4000 * 1.02);
  EXPECT_LT(counted_->calls, 80);
  EXPECT_GT(counted_->calls, 20);  // it was tried again
}

TEST_F(MeasuredDrafts, IsAskedAgainWhereTheTextChanges) {
  Write(1000, {.guessed_seconds = 1.6, .guessed_tokens = 1});
  const int64_t before = counted_->calls;
  const double seconds = Write(9000, {.guessed_seconds = 1.6, .guessed_tokens = 8});
  EXPECT_LT(seconds, 8000 / 2.0);
  EXPECT_GT(counted_->calls, before + 300);
}

// Equal speeds on either side of the border.
TEST_F(MeasuredDrafts, KnowsTheBorder) {
  Write(2000, {.guessed_seconds = 1.9, .guessed_tokens = 2});
  EXPECT_GT(counted_->calls, 800);
  counted_->calls = 0;
  text_.resize(1);
  draft_.Begin();
  Write(2000, {.guessed_seconds = 2.1, .guessed_tokens = 2});
  EXPECT_LT(counted_->calls, 100);
}

// The time between two texts is nobody's.
TEST_F(MeasuredDrafts, DoesNotCountPauses) {
  const Costs costs = {.guessed_seconds = 1.5, .guessed_tokens = 4};
  for (int answer = 0; answer < 50; ++answer) {
    draft_.Begin();
    Write(std::ssize(text_) + 40, costs);
    now_ += 1000;
    text_.resize(text_.size() + 2, 7);
  }
  EXPECT_EQ(counted_->begun, 50);
  EXPECT_GT(counted_->calls, 50 * 8);
}

}  // namespace
}  // namespace kvant::test
