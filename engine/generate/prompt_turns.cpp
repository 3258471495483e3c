#include "engine/generate/prompt_turns.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvant {
namespace {

// A shorter beginning is computed twice rather than waited for: it takes no longer than a round.
constexpr int64_t kSharedTokensMin = 64;

// The weight of the last measurement in a mean of all.
constexpr double kNewest = 0.25;

double Mean(double mean, double newest) {
  return mean == 0 ? newest : mean + kNewest * (newest - mean);
}

}  // namespace

int64_t PromptTurns::Budget(const PromptCut& cut, int64_t texts) const {
  const int64_t slice = slice_ > 0 ? slice_ : kUnlimited;
  if (stall_ <= 0) return slice;
  if (texts == 0) return std::min(slice, cut.chunk);  // a request that comes in waits for a chunk
  const int64_t least = cut.few_rows + 1;
  if (token_seconds_ <= 0) return std::min(slice, least);
  const double tokens = stall_ / token_seconds_;
  const int64_t limit =
      tokens >= static_cast<double>(cut.chunk) ? cut.chunk : static_cast<int64_t>(tokens);
  return std::min(slice, std::max(limit, least));
}

void PromptTurns::Learn(int64_t prompt_tokens, int64_t other_tokens, double seconds) {
  if (has_choice_) (shortest_first_ ? shortest_tokens_ : begun_tokens_) += prompt_tokens;
  if (prompt_tokens == 0) {
    text_seconds_ = Mean(text_seconds_, seconds);
    return;
  }
  const double texts = other_tokens > 0 ? text_seconds_ : 0;
  const double each = std::max(0.0, seconds - texts) / static_cast<double>(prompt_tokens);
  token_seconds_ = Mean(token_seconds_, each);
}

int64_t PromptTurns::Left(const Request& request) {
  return std::ssize(request.prompt()) + std::ssize(request.recompute()) - request.progress_.done;
}

std::span<Request* const> PromptTurns::InTurn(std::span<Request* const> running) {
  order_.clear();
  for (Request* const request : running) {
    if (request->state_ == Request::State::kPrompt) order_.push_back(request);
  }
  const bool limited = stall_ > 0 || (slice_ > 0 && slice_ != kUnlimited);
  has_choice_ = limited && order_.size() > 1;
  if (!has_choice_) begun_tokens_ = shortest_tokens_ = 0;
  shortest_first_ = shortest_tokens_ < begun_tokens_;
  if (shortest_first_) {
    std::stable_sort(order_.begin(), order_.end(),
                     [](const Request* a, const Request* b) { return Left(*a) < Left(*b); });
  }
  return order_;
}

bool PromptTurns::Waits(const Request& request, std::span<Request* const> running,
                        int64_t prefix_block) {
  if (prefix_block == 0 || request.has_begun_ || request.service_.sequence.has_value() ||
      !request.source().empty() || !request.frames().empty()) {
    return false;
  }
  const std::span<const TokenId> prompt = request.prompt();
  for (const Request* const other : running) {
    const Request::Progress& progress = other->progress_;
    const bool computes = other != &request && other->state_ == Request::State::kPrompt &&
                          progress.sequence >= 0 && other->source().empty() &&
                          other->frames().empty() &&
                          std::ranges::equal(other->adapters(), request.adapters());
    if (!computes) continue;
    const std::span<const TokenId> first = other->prompt();
    const auto common = std::mismatch(prompt.begin(), prompt.end(), first.begin(), first.end());
    const int64_t same = std::min(common.first - prompt.begin(), std::ssize(prompt) - 1);
    if (same >= kSharedTokensMin && progress.done < same) return true;
  }
  return false;
}

}  // namespace kvant
