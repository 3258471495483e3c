// The options of beam search, under the names and with the meanings of Hugging Face's
// GenerationConfig, and the check that they can be run.
//
// Thread-safety: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvant/result.h"
#include "kvant/tokenizer.h"

namespace kvant {

// How hypotheses are scored, and when a search ends. `sum` is the sum of log-probabilities, the end
// token's included; `generated` counts tokens after the prompt, the end token included.
//
//   hf       sum / generated^a. The default; Hugging Face transformers 4.50 and later.
//   ct2      sum / generated^a, with the prompt where it is a part of the result, see below.
//            CTranslate2 4.0 to 4.8 (src/decoding.cc).
//   whisper  the same length; the divisor is the length, or ((5 + length) / 6)^a where a penalty is
//            given. OpenAI Whisper (whisper/decoding.py).
//   oga      sum / (prompt + generated without the end token)^a. ONNX Runtime GenAI
//            (src/beam_search_scorer.cpp).
enum class BeamScoring : uint8_t { kHf, kCt2, kWhisper, kOga };

// When a full list of finished hypotheses ends the search (hf and oga; ct2 and whisper go by
// `patience`): kTrue at once; kFalse when the best open beam, at its present length, cannot beat
// the worst of the list; kNever when it cannot at any length (hf only).
enum class EarlyStopping : uint8_t { kFalse, kTrue, kNever };

struct BeamOptions {
  int32_t beams = 1;
  int32_t num_return = 1;               // hypotheses to return, at most `beams`
  std::optional<float> length_penalty;  // a above; absent: 1, and the plain length for whisper
  EarlyStopping early_stopping = EarlyStopping::kFalse;
  BeamScoring scoring = BeamScoring::kHf;
  float patience = 1.0f;              // ct2, whisper: end at round(beams * patience) hypotheses
  bool ct2_length_counts_end = true;  // ct2: the length includes the end token
  // ct2: searches as its Translator does, and its Generator with include_prompt_in_result. The
  // tokens of the prompt behind the first one then are part of the text, for processors that read
  // tokens and for the length; without this flag they read generated tokens alone. Right behind
  // such a prefix, no text but the best may end. GenerateBeams sets this flag where there are
  // sources.
  bool ct2_prompt_in_result = false;

  // hf: how many beam groups the beams are divided into. A beam pays the penalty for every beam of
  // an earlier group that has just chosen the same token (Vijayakumar et al., 2018, Hamming
  // diversity).
  int32_t groups = 1;
  float diversity_penalty = 0.0f;

  std::vector<TokenId> end_tokens;
  int64_t max_new_tokens = 20;
  int64_t max_length = 0;  // above 0: instead of max_new_tokens; counts the prompt, too

  // Processors change the probabilities of the next token, in the order of the fields below, which
  // is Hugging Face's. For hf with several beams they act on log-probabilities, which are not
  // normalized again. For hf with one beam, which is its greedy search, and for the other programs
  // they act on logits before the softmax, as each program does.
  float repetition_penalty = 1.0f;  // of tokens of the prompt or the beam: values above 0 are
                                    // divided by it, others multiplied
  int32_t no_repeat_ngram = 0;      // no n-gram of this length occurs twice; 0: off
  // Sequences that no token may complete. As in Hugging Face, hf leaves out a sequence of one token
  // that is an end token, and a sequence that is longer than prompt and beam.
  std::vector<std::vector<TokenId>> bad_words;
  int64_t min_length = 0;               // no end token before so many, the prompt's included
  int64_t min_new_tokens = 0;           // above 0, instead of min_length: without the prompt's
  std::optional<TokenId> forced_bos;    // hf: the token after a prompt of one token
  std::vector<TokenId> forced_eos;      // hf: the last token that there is room for is one of these
  std::vector<TokenId> suppress;        // tokens that are never chosen
  std::vector<TokenId> begin_suppress;  // nor first; second instead, if the first is forced
  bool renormalize = false;  // hf: log-softmax again, after the filters of sampling below

  // hf: candidates are drawn without replacement instead of taken from the top. The filters act on
  // each beam's log-probabilities in this order, and keep at least max(2, 1 + end tokens), or one
  // token for a single beam.
  bool sample = false;
  float temperature = 1.0f;
  int32_t top_k = 0;   // keep the k likeliest; 0: all
  float top_p = 1.0f;  // keep the fewest whose probabilities reach p; 1: all
  uint64_t seed = 0;
};

// kInvalid, naming the option, what was expected and what was found. Every combination that passes
// can be run.
Status CheckBeamOptions(const BeamOptions& options, int32_t vocab_size);

// How many tokens may be generated after a prompt of prompt_tokens tokens; below 1 if max_length
// has no room.
int64_t NewTokensMax(const BeamOptions& options, size_t prompt_tokens);

// How many candidates of a step are looked at, for `beams` beams: enough for all beams to go on
// even if the best candidates are all end tokens. Hugging Face takes this number. CTranslate2 and
// ONNX Runtime GenAI take 2 * beams, which is equal for one end token and too few for more.
int64_t BeamCandidateCount(const BeamOptions& options, int64_t beams);

// "hf", "ct2", "whisper", "oga"; "true", "false", "never".
Result<BeamScoring> ParseBeamScoring(std::string_view name);
Result<EarlyStopping> ParseEarlyStopping(std::string_view name);

}  // namespace kvant
