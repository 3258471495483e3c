// Which token may follow in a transcript: Whisper's rules, as a stage of logits, and a stage that
// adds up log-probabilities.
//
// Source: openai-whisper, decoding.py. The rules, in their order, by what was generated so far:
//   1. neither a space alone nor the end comes first
//   2. suppressed tokens never come
//   3. with times: the token for texts without times never comes; times stand in pairs, the end of
//      a segment and the beginning of the next one, but one at the end of the text; times never go
//      back, and a segment takes some time; a text begins with a time, which is not late; and where
//      all times together are likelier than each token of text, a time comes
// Thread-safety: one thread at a time per object.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/speech/speech_tokens.h"
#include "kvant/logit_stage.h"

namespace kvant::speech {

struct SpeechRules {
  SpeechTokens tokens;
  std::vector<TokenId> suppressed;
  bool times = true;
  std::optional<int64_t> first_time_max;  // the latest one that a text may begin with, by number
};

// Changes the logits of the token after `generated`.
void ApplySpeechRules(const SpeechRules& rules, std::span<const TokenId> generated,
                      std::span<float> logits);

// A stage that applies them and leaves log-probabilities, without a state of its own.
LogitStageMaker SpeechRulesStage(std::shared_ptr<const SpeechRules> rules);

// Adds the log-probability of each token of a text, the end included, to *sum, by the logits as
// earlier stages left them. For one text, not for beams.
LogitStageMaker LogProbSumStage(std::shared_ptr<double> sum);

}  // namespace kvant::speech
