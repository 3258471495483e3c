#include "engine/evaluate/token_scores.h"

#include <cmath>

#include "base/result.h"

namespace kvant::evaluate {

Result<std::vector<TokenScore>> ScoreTokens(Session& session, std::span<const TokenId> tokens,
                                            size_t top_count) {
  if (tokens.size() < 2) return std::vector<TokenScore>();
  std::vector<TokenScore> scores(tokens.size() - 1);
  KVANT_TRY(session.AppendScoring(
      tokens.first(scores.size()), 0, [&](int64_t index, std::span<const float> logits) {
        const size_t i = static_cast<size_t>(index);
        const Distribution distribution = Normalize(logits);
        const TokenId target = tokens[i + 1];
        scores[i] = {distribution.LogProb(target), Rank(distribution, target),
                     TopTokens(distribution, top_count)};
      }));
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!std::isnan(scores[i].log_prob)) continue;
    return MakeError(ErrorCode::kCorrupt, "token {}: the model's output is not a number", i + 1);
  }
  return scores;
}

}  // namespace kvant::evaluate
