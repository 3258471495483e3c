#include "engine/generate/logit_stages/beam_processors.h"

#include <algorithm>

#include "engine/evaluate/distribution.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

float& BeamValue(const BeamProcessing& step, TokenId token) {
  return step.row[static_cast<size_t>(token)];
}

// A text may have ids of rows, which have no logits.
bool HasLogit(const BeamProcessing& step, TokenId token) {
  return static_cast<size_t>(token) < step.row.size();
}

// The tokens that processors look at. CTranslate2 looks at no token of the prompt but those that
// are a part of its result, which are not the first one.
std::span<const TokenId> TokensOf(const BeamProcessing& step) {
  if (step.options.scoring != BeamScoring::kCt2) return step.text.tokens;
  const int64_t unseen = step.options.ct2_prompt_in_result ? 1 : step.text.prompt;
  return step.text.tokens.subspan(static_cast<size_t>(unseen));
}

void Ban(const BeamProcessing& step, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (HasLogit(step, token)) BeamValue(step, token) = kLogitNone;
  }
}

// Forces one of `tokens`: all others get no probability.
void ForceToken(const BeamProcessing& step, std::span<const TokenId> tokens) {
  std::fill(step.row.begin(), step.row.end(), kLogitNone);
  for (const TokenId token : tokens) BeamValue(step, token) = 0;
}

// A token pays for each beam of an earlier group that has it.
void PenalizeShared(const BeamProcessing& step) {
  for (const TokenId token : step.text.shared) {
    BeamValue(step, token) -= step.options.diversity_penalty;
  }
}

// Penalizes each token once, however often it occurs.
void PenalizeRepetition(const BeamProcessing& step) {
  const float penalty = step.options.repetition_penalty;
  for (const TokenId token : TokensOf(step)) {
    if (!HasLogit(step, token)) continue;
    uint32_t& seen = step.seen[static_cast<size_t>(token)];
    if (seen == step.call) continue;
    seen = step.call;
    float& value = BeamValue(step, token);
    value = Sanitize(value < 0 ? value * penalty : value / penalty);
  }
}

// Whatever followed an earlier occurrence of the last n - 1 tokens.
void BanRepeatedNgrams(const BeamProcessing& step) {
  const std::span<const TokenId> text = TokensOf(step);
  const size_t prefix = static_cast<size_t>(step.options.no_repeat_ngram) - 1;
  if (text.size() <= prefix) return;
  const auto last = text.last(prefix);
  for (size_t begin = 0; begin + prefix < text.size(); ++begin) {
    const auto earlier = text.subspan(begin, prefix);
    if (!std::equal(last.begin(), last.end(), earlier.begin())) continue;
    Ban(step, text.subspan(begin + prefix, 1));
  }
}

// Hugging Face leaves out words that are longer than the text, though all but their last token may
// be there already, and single end tokens.
void BanBadWords(const BeamProcessing& step) {
  const std::span<const TokenId> text = TokensOf(step);
  const auto& ends = step.options.end_tokens;
  const bool hf = step.options.scoring == BeamScoring::kHf;
  for (const std::vector<TokenId>& word : step.options.bad_words) {
    const size_t prefix = word.size() - 1;
    if (text.size() < (hf && prefix > 0 ? word.size() : prefix)) continue;
    if (hf && prefix == 0 && std::count(ends.begin(), ends.end(), word[0]) > 0) continue;
    const auto last = text.last(prefix);
    if (std::equal(last.begin(), last.end(), word.begin())) Ban(step, std::span(word).last(1));
  }
}

void BanEarlyEnds(const BeamProcessing& step) {
  const int64_t after_prompt = step.options.min_new_tokens;
  const int64_t missing = after_prompt > 0
                              ? after_prompt - step.text.generated
                              : step.options.min_length - step.text.prompt - step.text.generated;
  if (missing > 0) Ban(step, step.options.end_tokens);
}

void ForceFirstToken(const BeamProcessing& step) {
  if (step.text.prompt + step.text.generated == 1) ForceToken(step, {&*step.options.forced_bos, 1});
}

void ForceLastToken(const BeamProcessing& step) {
  if (step.text.generated + 1 == step.text.generated_max) ForceToken(step, step.options.forced_eos);
}

void SuppressAlways(const BeamProcessing& step) { Ban(step, step.options.suppress); }

// The first token that is not forced.
void SuppressAtBegin(const BeamProcessing& step) {
  const bool forced = step.text.prompt == 1 && step.options.forced_bos.has_value();
  if (step.text.generated == (forced ? 1 : 0)) Ban(step, step.options.begin_suppress);
}

constexpr auto kAnyScoring = BeamProcessor::Scorings::kAll;
constexpr auto kHfScoring = BeamProcessor::Scorings::kHf;
constexpr auto kReadsTokens = BeamProcessor::Reads::kTokens;
constexpr auto kReadsLengths = BeamProcessor::Reads::kLengths;

constexpr BeamProcessor kBeamProcessors[] = {
    {"diversity-penalty", kHfScoring, kReadsLengths,
     [](const BeamOptions& o) { return o.groups > 1; }, PenalizeShared},
    {"repetition-penalty", kAnyScoring, kReadsTokens,
     [](const BeamOptions& o) { return o.repetition_penalty != 1.0f; }, PenalizeRepetition},
    {"no-repeat-ngram", kAnyScoring, kReadsTokens,
     [](const BeamOptions& o) { return o.no_repeat_ngram > 0; }, BanRepeatedNgrams},
    {"bad-words", kAnyScoring, kReadsTokens,
     [](const BeamOptions& o) { return !o.bad_words.empty(); }, BanBadWords},
    {"min-length", kAnyScoring, kReadsLengths,
     [](const BeamOptions& o) { return o.min_length > 0 || o.min_new_tokens > 0; }, BanEarlyEnds},
    {"forced-bos", kHfScoring, kReadsLengths,
     [](const BeamOptions& o) { return o.forced_bos.has_value(); }, ForceFirstToken},
    {"forced-eos", kHfScoring, kReadsLengths,
     [](const BeamOptions& o) { return !o.forced_eos.empty(); }, ForceLastToken},
    {"suppress", kAnyScoring, kReadsLengths,
     [](const BeamOptions& o) { return !o.suppress.empty(); }, SuppressAlways},
    {"begin-suppress", kAnyScoring, kReadsLengths,
     [](const BeamOptions& o) { return !o.begin_suppress.empty(); }, SuppressAtBegin},
};

}  // namespace

std::span<const BeamProcessor> AllBeamProcessors() { return kBeamProcessors; }

bool ProcessesLogits(const BeamOptions& options) {
  return options.scoring != BeamScoring::kHf || options.beams == 1;
}

void ToLogProbs(std::span<float> row) {
  const evaluate::Distribution distribution = evaluate::Normalize(row);
  if (row[static_cast<size_t>(distribution.top)] == kLogitNone) return;
  const double log_sum = distribution.log_sum;
  for (float& value : row) value = static_cast<float>(double{value} - log_sum);
}

}  // namespace kvant
