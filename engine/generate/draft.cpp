#include "kvant/draft.h"

#include <algorithm>

#include "base/result.h"

namespace kvant {
namespace {

constexpr size_t kNgramMax = 4;
constexpr size_t kNgramMin = 2;

// The end of the last earlier occurrence of the last n tokens, or 0.
size_t LastOccurrence(std::span<const TokenId> text, size_t n) {
  const std::span<const TokenId> pattern = text.last(n);
  for (size_t end = text.size() - 1; end >= n; --end) {
    if (std::equal(pattern.begin(), pattern.end(),
                   text.begin() + static_cast<std::ptrdiff_t>(end - n))) {
      return end;
    }
  }
  return 0;
}

}  // namespace

Result<std::span<const TokenId>> Draft::ProposeIn(SequenceHost& /*host*/, SequenceId /*sequence*/,
                                                  std::span<const TokenId> text, int64_t count) {
  return Propose(text, count);
}

Result<std::span<const TokenId>> PredictedDraft::Propose(std::span<const TokenId> /*text*/,
                                                         int64_t /*count*/) {
  return std::span<const TokenId>();
}

Result<std::span<const TokenId>> PredictedDraft::ProposeIn(SequenceHost& host, SequenceId sequence,
                                                           std::span<const TokenId> text,
                                                           int64_t count) {
  return host.Predict(sequence, text.back(), count);
}

Result<std::span<const TokenId>> NgramDraft::Propose(std::span<const TokenId> text, int64_t count) {
  proposal_.clear();
  for (size_t n = kNgramMax; n >= kNgramMin && proposal_.empty(); --n) {
    if (text.size() <= n) continue;
    const size_t end = LastOccurrence(text, n);
    if (end == 0) continue;
    const auto next = text.subspan(end, std::min(static_cast<size_t>(count), text.size() - end));
    proposal_.assign(next.begin(), next.end());
  }
  return std::span<const TokenId>(proposal_);
}

Result<std::unique_ptr<ModelDraft>> ModelDraft::Create(std::unique_ptr<Session> session,
                                                       int32_t vocab_size) {
  if (session->vocab_size() != vocab_size) {
    return MakeError(ErrorCode::kInvalid,
                     "draft: expected a model of {} tokens, as the one it is for, found {}",
                     vocab_size, session->vocab_size());
  }
  return std::unique_ptr<ModelDraft>(new ModelDraft(std::move(session)));
}

Result<std::span<const TokenId>> ModelDraft::Propose(std::span<const TokenId> text, int64_t count) {
  proposal_.clear();
  const int64_t room = session_->context() - static_cast<int64_t>(text.size());
  count = std::min(count, room);
  if (count <= 0) return std::span<const TokenId>();
  // Rewinds to the tokens that both have in common, less one if that is all of the text: processing
  // it again gives the logits.
  const std::span<const TokenId> known = session_->tokens();
  const auto common = std::mismatch(known.begin(), known.end(), text.begin(), text.end()).first;
  const size_t kept = std::min(static_cast<size_t>(common - known.begin()), text.size() - 1);
  const auto is_row = [this](TokenId id) { return id >= session_->vocab_size(); };
  if (std::ranges::any_of(text.subspan(kept), is_row)) return std::span<const TokenId>();
  KVANT_TRY(session_->Rewind(static_cast<int64_t>(kept)));
  KVANT_TRY(session_->Append(text.subspan(kept)));
  while (true) {
    const std::span<const float> logits = session_->logits();
    const auto likeliest = std::max_element(logits.begin(), logits.end());
    proposal_.push_back(static_cast<TokenId>(likeliest - logits.begin()));
    if (static_cast<int64_t>(proposal_.size()) == count) return std::span<const TokenId>(proposal_);
    KVANT_TRY(session_->Append({&proposal_.back(), 1}));
  }
}

}  // namespace kvant
