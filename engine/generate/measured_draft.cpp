// When guesses are made: as long as a token costs less time with them.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/result.h"
#include "kvant/draft.h"

namespace kvant {
namespace {

constexpr double kFade = 0.9;             // what an earlier pass counts, beside the one after it
constexpr int64_t kPlainEvery = 4;        // while the speed without guesses is not known
constexpr int64_t kPlainCheckEvery = 64;  // passes; speeds change as a text grows
constexpr int64_t kFirstPause = 64;       // tokens
constexpr int64_t kLongestPause = 2048;

double MachineSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

MeasuredDraft::MeasuredDraft(std::shared_ptr<Draft> draft, Clock clock)
    : draft_(std::move(draft)),
      clock_(clock ? std::move(clock) : Clock(MachineSeconds)),
      next_pause_(kFirstPause) {}

void MeasuredDraft::Speed::Add(double seconds_of_pass, double tokens_of_pass) {
  seconds = seconds * kFade + seconds_of_pass;
  tokens = tokens * kFade + tokens_of_pass;
  passes = std::min(passes + 1, kPassesEnough);
}

void MeasuredDraft::Begin() {
  length_ = 0;
  draft_->Begin();
}

// Counts the pass that has ended, which made `length` tokens of length_.
void MeasuredDraft::TakeLast(size_t length, double now) {
  if (length_ == 0 || length <= length_) return;
  const auto tokens = static_cast<int64_t>(length - length_);
  // In the first pass of an attempt a model that guesses reads what it has missed.
  if (has_guesses_ && asked_ == 1) return;
  (has_guesses_ ? guessed_ : plain_).Add(now - began_, static_cast<double>(tokens));
  if (pause_ == 0) return;
  pause_ = std::max<int64_t>(0, pause_ - tokens);
  if (pause_ > 0) return;
  guessed_ = {};
  asked_ = 0;
}

// Whether the next pass shall have guesses.
bool MeasuredDraft::Guesses() {
  if (pause_ > 0) return false;
  const bool known = guessed_.passes == kPassesEnough && plain_.passes > 1;
  if (known && guessed_.per_token() > plain_.per_token()) {
    pause_ = next_pause_;
    next_pause_ = std::min(next_pause_ * 2, kLongestPause);
    return false;
  }
  if (known) next_pause_ = kFirstPause;
  const int64_t every = plain_.passes > 1 ? kPlainCheckEvery : kPlainEvery;
  return ++asked_ % every != 0;
}

Result<std::span<const TokenId>> MeasuredDraft::Propose(std::span<const TokenId> text,
                                                        int64_t count) {
  return Measure(text.size(), [&] { return draft_->Propose(text, count); });
}

Result<std::span<const TokenId>> MeasuredDraft::ProposeIn(SequenceHost& host, SequenceId sequence,
                                                          std::span<const TokenId> text,
                                                          int64_t count) {
  return Measure(text.size(), [&] { return draft_->ProposeIn(host, sequence, text, count); });
}

// Has the other draft asked for a text of `length` tokens, unless guesses lose time.
Result<std::span<const TokenId>> MeasuredDraft::Measure(size_t length, const Ask& ask) {
  const double now = clock_();
  TakeLast(length, now);
  std::span<const TokenId> proposal;
  if (Guesses()) {
    KVANT_ASSIGN(proposal, ask());
  }
  began_ = now;
  length_ = length;
  has_guesses_ = !proposal.empty();
  return proposal;
}

}  // namespace kvant
