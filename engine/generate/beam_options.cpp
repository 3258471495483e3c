#include "kvant/beam_options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/result.h"
#include "engine/generate/logit_stages/beam_processors.h"

namespace kvant {
namespace {

// The history of a search is indexed by 32 bits and takes up to two entries a beam and step.
constexpr int64_t kEntriesMax = std::numeric_limits<int32_t>::max();

Status CheckCount(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return MakeError(ErrorCode::kInvalid, "{}: expected {} to {}, found {}", name, low, high, value);
}

Status CheckNumber(const char* name, float value, bool valid, const char* expected) {
  if (std::isfinite(value) && valid) return {};
  return MakeError(ErrorCode::kInvalid, "{}: expected {}, found {}", name, expected, value);
}

Status CheckTokens(const char* name, const std::vector<TokenId>& tokens, int32_t vocab_size) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab_size) {
      return MakeError(ErrorCode::kInvalid, "{}: token {} is outside the vocabulary of {}", name,
                       token, vocab_size);
    }
  }
  return {};
}

Status CheckHfOnly(const char* name, bool used, const BeamOptions& options) {
  if (!used || options.scoring == BeamScoring::kHf) return {};
  return MakeError(ErrorCode::kInvalid, "{}: expected beam-scoring hf, found another", name);
}

Status CheckProcessors(const BeamOptions& options, int32_t vocab_size) {
  for (const BeamProcessor& processor : AllBeamProcessors()) {
    const bool hf = processor.scorings == BeamProcessor::Scorings::kHf;
    KVANT_TRY(CheckHfOnly(processor.name, hf && processor.used(options), options));
  }
  KVANT_TRY(CheckNumber("repetition-penalty", options.repetition_penalty,
                        options.repetition_penalty > 0, "a number above 0"));
  KVANT_TRY(CheckCount("no-repeat-ngram", options.no_repeat_ngram, 0, kEntriesMax));
  for (const std::vector<TokenId>& word : options.bad_words) {
    KVANT_TRY(CheckTokens("bad-words", word, vocab_size));
    if (!word.empty()) continue;
    return MakeError(ErrorCode::kInvalid, "bad-words: expected a token at least, found none");
  }
  if (options.forced_bos.has_value()) {
    KVANT_TRY(CheckTokens("forced-bos", {*options.forced_bos}, vocab_size));
  }
  KVANT_TRY(CheckTokens("forced-eos", options.forced_eos, vocab_size));
  KVANT_TRY(CheckTokens("suppress", options.suppress, vocab_size));
  return CheckTokens("begin-suppress", options.begin_suppress, vocab_size);
}

// Tokens that are forced can be chosen.
Status CheckForced(const BeamOptions& options) {
  const auto suppressed = [&](TokenId token) {
    const auto& tokens = options.suppress;
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  const auto& ends = options.forced_eos;
  const bool no_end = !ends.empty() && std::all_of(ends.begin(), ends.end(), suppressed);
  const bool no_begin = options.forced_bos.has_value() && suppressed(*options.forced_bos);
  if (!no_begin && !no_end) return {};
  return MakeError(ErrorCode::kInvalid,
                   "suppress: expected tokens that are not forced, found {}, which {} forces",
                   no_begin ? *options.forced_bos : ends[0],
                   no_begin ? "forced-bos" : "forced-eos");
}

// All beams together keep at most kEntriesMax / 2 tokens, and no least length is beyond the
// greatest.
Status CheckLengths(const BeamOptions& options) {
  const int64_t most = kEntriesMax / 2 / int64_t{options.beams};
  KVANT_TRY(CheckCount("max-length", options.max_length, 0, most));
  if (options.max_length > 0) {
    KVANT_TRY(CheckCount("min-length", options.min_length, 0, options.max_length));
    return CheckCount("min-new-tokens", options.min_new_tokens, 0, options.max_length);
  }
  KVANT_TRY(CheckCount("max-new-tokens", options.max_new_tokens, 1, most));
  KVANT_TRY(CheckCount("min-length", options.min_length, 0, kEntriesMax));
  return CheckCount("min-new-tokens", options.min_new_tokens, 0, options.max_new_tokens);
}

Status CheckScoring(const BeamOptions& options) {
  KVANT_TRY(CheckNumber("length-penalty", options.length_penalty.value_or(0), true, "a number"));
  KVANT_TRY(CheckHfOnly("early-stopping never", options.early_stopping == EarlyStopping::kNever,
                        options));
  KVANT_TRY(CheckHfOnly("beam-groups", options.groups != 1, options));
  KVANT_TRY(CheckHfOnly("sampling with beams", options.sample, options));
  KVANT_TRY(CheckHfOnly("renormalize", options.renormalize, options));
  const bool patient =
      options.scoring == BeamScoring::kCt2 || options.scoring == BeamScoring::kWhisper;
  if (options.patience != 1.0f && !patient) {
    return MakeError(ErrorCode::kInvalid,
                     "patience: expected 1 without beam-scoring ct2 or whisper, found {}",
                     options.patience);
  }
  const float least = 1.0f / static_cast<float>(options.beams);
  return CheckNumber("patience", options.patience,
                     options.patience >= least && options.patience <= 1024.0f, "1 / beams to 1024");
}

Status CheckGroups(const BeamOptions& options) {
  KVANT_TRY(CheckCount("beam-groups", options.groups, 1, options.beams));
  if (options.beams % options.groups != 0) {
    return MakeError(ErrorCode::kInvalid, "beam-groups: expected a divisor of {} beams, found {}",
                     options.beams, options.groups);
  }
  if (options.groups > 1 && options.sample) {
    return MakeError(ErrorCode::kInvalid, "beam-groups: expected 1 with sampling, found {}",
                     options.groups);
  }
  const bool grouped = options.groups > 1;
  return CheckNumber("diversity-penalty", options.diversity_penalty,
                     grouped ? options.diversity_penalty > 0 : options.diversity_penalty == 0,
                     grouped ? "a number above 0 with groups" : "0 without groups");
}

template <class Value>
struct Name {
  std::string_view name;
  Value value;
};

template <class Value, size_t kCount>
Result<Value> Parse(const char* option, const Name<Value> (&names)[kCount], std::string_view name,
                    const char* expected) {
  for (const Name<Value>& entry : names) {
    if (entry.name == name) return entry.value;
  }
  return MakeError(ErrorCode::kInvalid, "{}: expected {}, found '{}'", option, expected, name);
}

}  // namespace

int64_t BeamCandidateCount(const BeamOptions& options, int64_t beams) {
  return std::max<int64_t>(2, 1 + static_cast<int64_t>(options.end_tokens.size())) * beams;
}

int64_t NewTokensMax(const BeamOptions& options, size_t prompt_tokens) {
  if (options.max_length == 0) return options.max_new_tokens;
  return options.max_length - static_cast<int64_t>(prompt_tokens);
}

Status CheckBeamOptions(const BeamOptions& options, int32_t vocab_size) {
  KVANT_TRY(CheckCount("vocabulary", vocab_size, 1, std::numeric_limits<int32_t>::max()));
  KVANT_TRY(CheckCount("beams", options.beams, 1, kEntriesMax / 2));
  KVANT_TRY(CheckLengths(options));
  KVANT_TRY(CheckCount("num-return", options.num_return, 1, options.beams));
  KVANT_TRY(CheckTokens("end tokens", options.end_tokens, vocab_size));
  const int64_t candidates = BeamCandidateCount(options, 1);
  if (candidates > vocab_size) {
    return MakeError(ErrorCode::kInvalid,
                     "beam search: expected a vocabulary of at least {}, found {} tokens",
                     candidates, vocab_size);
  }
  KVANT_TRY(CheckScoring(options));
  KVANT_TRY(CheckGroups(options));
  KVANT_TRY(CheckProcessors(options, vocab_size));
  KVANT_TRY(CheckForced(options));
  KVANT_TRY(
      CheckNumber("temperature", options.temperature, options.temperature > 0, "a number above 0"));
  KVANT_TRY(CheckCount("top-k", options.top_k, 0, std::numeric_limits<int32_t>::max()));
  return CheckNumber("top-p", options.top_p, options.top_p >= 0 && options.top_p <= 1, "0 to 1");
}

Result<BeamScoring> ParseBeamScoring(std::string_view name) {
  constexpr Name<BeamScoring> kNames[] = {{"hf", BeamScoring::kHf},
                                          {"ct2", BeamScoring::kCt2},
                                          {"whisper", BeamScoring::kWhisper},
                                          {"oga", BeamScoring::kOga}};
  return Parse("beam-scoring", kNames, name, "hf, ct2, whisper or oga");
}

Result<EarlyStopping> ParseEarlyStopping(std::string_view name) {
  constexpr Name<EarlyStopping> kNames[] = {{"true", EarlyStopping::kTrue},
                                            {"false", EarlyStopping::kFalse},
                                            {"never", EarlyStopping::kNever}};
  return Parse("early-stopping", kNames, name, "true, false or never");
}

}  // namespace kvant
