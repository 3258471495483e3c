// A part of kvant/kvant.h: the choice of tokens. Samplers draw from a row of logits; batches
// generate any number of texts side by side, each as it would be alone; beam searches look for the
// likeliest texts.
//
// A grammar, a sampler, a batch and a search may outlive the objects that they were made from.
#include "kvant/kvant.h"  // first: it includes all parts in their order

#ifndef KVANT_KVANT_GENERATE_H_INCLUDED
#define KVANT_KVANT_GENERATE_H_INCLUDED

#ifdef __cplusplus
extern "C" {
#endif

// ---- Grammars ----------------------------------------------------------------------------------

// docs/constrained.md describes the notations.
typedef enum kvant_grammar_kind {
  KVANT_GRAMMAR_GBNF = 0,         // llama.cpp's notation; the text has a rule `root`
  KVANT_GRAMMAR_REGEX = 1,        // a regular expression that the whole text matches
  KVANT_GRAMMAR_CHOICES = 2,      // one of `choices`
  KVANT_GRAMMAR_JSON_OBJECT = 3,  // any JSON object
  KVANT_GRAMMAR_JSON_SCHEMA = 4   // what a JSON schema allows
} kvant_grammar_kind;

typedef struct kvant_grammar_options {
  size_t struct_size;
  int32_t kind;  // kvant_grammar_kind
  const char* text;
  size_t text_size;
  const char* const* choices;
  size_t choice_count;
  int32_t json_compact;         // JSON_OBJECT, JSON_SCHEMA: no white space between the parts
  int32_t json_allows_unknown;  // JSON_SCHEMA: unknown keywords are annotations, else errors
  // A lazy grammar begins with one of these texts or tokens. Up to there a text is free, and it may
  // end there. None: the grammar begins with the text.
  const char* const* trigger_words;
  size_t trigger_word_count;
  const kvant_token* trigger_tokens;
  size_t trigger_token_count;
  // Regular expressions. The grammar begins where the first text begins that one of these matches;
  // with a full pattern, which all of the text so far matches, at its first group.
  const char* const* trigger_patterns;
  size_t trigger_pattern_count;
  const char* const* trigger_full_patterns;
  size_t trigger_full_pattern_count;
} kvant_grammar_options;

KVANT_API kvant_status kvant_grammar_options_default(kvant_grammar_options* options, size_t size);
// A grammar for texts in the vocabulary of the tokenizer. KVANT_INVALID, with line and column or a
// JSON pointer, for what is not understood.
KVANT_API kvant_status kvant_grammar_new(const kvant_tokenizer* tokenizer,
                                         const kvant_grammar_options* options,
                                         kvant_grammar** grammar);
KVANT_API void kvant_grammar_free(kvant_grammar* grammar);

// ---- Samplers ----------------------------------------------------------------------------------

typedef struct kvant_logit_bias {
  kvant_token token;
  float bias;  // -infinity forbids the token
} kvant_logit_bias;

// Names, defaults, order and interplay are those of llama.cpp; temperature 0 takes the likeliest.
typedef struct kvant_sampling_options {
  size_t struct_size;
  const char* samplers;  // "top_k;temperature"; NULL: the default chain
  uint64_t seed;         // with has_seed; else it is drawn from the system
  int32_t has_seed;
  int32_t repeat_last_n;  // accepted tokens that penalties look at; 0: off, -1: all
  float repeat_penalty, presence_penalty, frequency_penalty;
  float dry_multiplier, dry_base;
  int32_t dry_allowed_length, dry_penalty_last_n;
  float top_n_sigma;
  int32_t top_k;
  float typical, top_p, min_p;
  float xtc_probability, xtc_threshold;
  float temperature, dynatemp_range, dynatemp_exponent;
  int32_t min_keep;
  int32_t mirostat;
  float mirostat_tau, mirostat_eta;
  float adaptive_target, adaptive_decay;
  const kvant_logit_bias* logit_bias;
  size_t logit_bias_count;
  const char* const* dry_breakers;  // NULL: the usual four
  size_t dry_breaker_count;
} kvant_sampling_options;

KVANT_API kvant_status kvant_sampling_options_default(kvant_sampling_options* options, size_t size);
// The default options with the values that the model's file recommends. `samplers` is valid as long
// as the model.
KVANT_API kvant_status kvant_sampling_options_of_model(const kvant_model* model,
                                                       kvant_sampling_options* options,
                                                       size_t size);
// A sampler takes rows of vocab_size logits. The tokenizer is for DRY's breakers and for the tokens
// that it says are never to be generated; it may be NULL, and so may the options.
KVANT_API kvant_status kvant_sampler_new(const kvant_tokenizer* tokenizer, int32_t vocab_size,
                                         const kvant_sampling_options* options,
                                         kvant_sampler** sampler);
KVANT_API kvant_status kvant_sampler_clone(const kvant_sampler* sampler, kvant_sampler** copy);
KVANT_API void kvant_sampler_free(kvant_sampler* sampler);
// Draws a token; it is not accepted yet. NaN counts as -infinity.
KVANT_API kvant_status kvant_sampler_sample(kvant_sampler* sampler, const float* logits,
                                            size_t count, kvant_token* token);
// Tokens of the prompt or the text that have passed; those outside the vocabulary do not count.
KVANT_API kvant_status kvant_sampler_accept(kvant_sampler* sampler, const kvant_token* tokens,
                                            size_t count);
// Never to be drawn from now on.
KVANT_API kvant_status kvant_sampler_forbid(kvant_sampler* sampler, kvant_token token);
// From now on tokens are drawn with which the text behind those accepted so far can become what the
// grammar describes; NULL: any tokens. KVANT_INVALID where the grammar has more tokens than the
// sampler's rows. A token that breaks the grammar and is accepted is an error of the next draw.
KVANT_API kvant_status kvant_sampler_set_grammar(kvant_sampler* sampler,
                                                 const kvant_grammar* grammar);
KVANT_API uint64_t kvant_sampler_seed(const kvant_sampler* sampler);

// ---- Batches -----------------------------------------------------------------------------------

typedef enum kvant_finish_reason {
  KVANT_FINISH_STOP = 0,  // an end token
  KVANT_FINISH_STOP_TEXT = 1,
  KVANT_FINISH_LENGTH = 2,     // max_tokens
  KVANT_FINISH_CONTEXT = 3,    // the context is full
  KVANT_FINISH_MEMORY = 4,     // the cache's memory is full
  KVANT_FINISH_CANCELLED = 5,  // by a callback or a cancellation
  KVANT_FINISH_ERROR = 6,      // see kvant_text.status
  KVANT_FINISH_DEADLINE = 7,   // the time of kvant_request.seconds_max is over
  KVANT_FINISH_NO_TOKEN = 8    // on_logits or the grammar has left no token
} kvant_finish_reason;

// One text that has ended. All of it is valid during the callback.
typedef struct kvant_text {
  size_t struct_size;
  int64_t request;
  int32_t sample;
  int32_t finish_reason;  // kvant_finish_reason
  int32_t status;         // kvant_status: why it ended before it was done
  const char* error;      // in words
  uint64_t seed;
  const kvant_token* tokens;  // generated, the end token excluded
  size_t count;
  const char* text;
  size_t size;
  int64_t prompt_tokens;  // processed
  int64_t decode_tokens;
  int64_t drafted_tokens, accepted_tokens;
  double prompt_seconds, decode_seconds;
  // Where kvant_request.log_probs is not -1: the natural logarithms of the probabilities that the
  // model gave the tokens, [count], and the likeliest tokens at the place of each, the likeliest
  // first, [count][top_count]. Else NULL.
  const float* log_probs;
  const kvant_token* top_tokens;
  const float* top_log_probs;
  size_t top_count;
} kvant_text;

// A request. kvant_batch_add() copies everything that it points to, but for `user`. Callbacks run
// in kvant_batch_poll(); each may be NULL. A result other than 0 ends the request's text.
typedef struct kvant_request {
  size_t struct_size;
  const kvant_token* prompt;
  size_t prompt_count;
  const kvant_sampling_options* sampling;  // NULL: the defaults
  int32_t samples;     // texts for this prompt; the seed of each is one more than that before
  int32_t priority;    // higher ones begin first
  int64_t max_tokens;  // -1: until an end token or a full context
  const char* const* stop_texts;
  size_t stop_text_count;
  int32_t ignore_end;       // end tokens are never chosen
  int32_t show_special;     // the text of control tokens is part of the text
  int32_t echo;             // the prompt's text comes first
  kvant_sequence sequence;  // used and left there, in place of one of its own; -1: none
  int64_t held;             // tokens of the prompt that `sequence` has, not the last one
  int64_t shift_keep;       // full context: keep so many and the later half; -1: the text ends
  // Guess so many from what occurred before, or with kvant_model_options.predictors by layers of
  // the model; 0: no guesses.
  int64_t draft_tokens;
  void* user;
  int32_t (*on_text)(void* user, int64_t request, int32_t sample, const char* piece, size_t size);
  int32_t (*on_prompt)(void* user, int64_t request, int32_t sample, int64_t done);
  // May change the logits of the token after `tokens`, which are prompt and text. The text ends
  // with KVANT_FINISH_NO_TOKEN where no logit is left that is above -infinity.
  int32_t (*on_logits)(void* user, int64_t request, int32_t sample, const kvant_token* tokens,
                       size_t count, float* logits, size_t vocab);
  // After the last call of the others. Other than 0: kvant_batch_poll() returns KVANT_CANCELLED.
  int32_t (*on_end)(void* user, const kvant_text* text);
  int32_t log_probs;   // keep log-probabilities, and those of this many likeliest tokens; -1: none
  double seconds_max;  // the text ends so many seconds after kvant_batch_add(); 0: no limit
  const kvant_grammar* grammar;  // that the text follows; NULL: none
} kvant_request;

typedef struct kvant_batch_options {
  size_t struct_size;
  int64_t prompt_slice;  // tokens of prompts in a round beside those of texts; 0: prompts first
  int64_t requests_max;  // texts under way at the same time; 0: as many as there is room for
  double stall_seconds;  // prompts keep texts waiting no longer in a round; 0: no limit
  // A request that has waited so many seconds goes before those of one more priority; 0: never.
  double ageing_seconds;
} kvant_batch_options;

// The work that a batch has done and is doing. Counts are since its creation unless they say "now".
typedef struct kvant_batch_counters {
  size_t struct_size;
  int64_t waiting, preempted, running;  // now; preempted ones are among those that wait
  uint64_t submitted, ended, failed, cancelled, preemptions, rounds;
  uint64_t tokens_prefilled, tokens_reused, tokens_generated;
  double prefill_seconds, decode_seconds;
  int64_t blocks_used, blocks_shared, blocks_free;  // now, of the runner's cache
} kvant_batch_counters;

KVANT_API kvant_status kvant_request_default(kvant_request* request, size_t size);
KVANT_API kvant_status kvant_batch_options_default(kvant_batch_options* options, size_t size);
KVANT_API kvant_status kvant_batch_new(kvant_runner* runner, const kvant_tokenizer* tokenizer,
                                       const kvant_batch_options* options, kvant_batch** batch);
// Ends the texts that have not ended, without callbacks.
KVANT_API void kvant_batch_free(kvant_batch* batch);
KVANT_API kvant_status kvant_batch_add(kvant_batch* batch, const kvant_request* request,
                                       int64_t* number);
// Ends the texts of a request as they are.
KVANT_API kvant_status kvant_batch_cancel(kvant_batch* batch, int64_t request);
// One round: begins the texts that there is room for, makes one step, hands out the results.
// `texts` is the number of texts that have not ended. After KVANT_CANCELLED they are as before the
// step, and may be polled again.
KVANT_API kvant_status kvant_batch_poll(kvant_batch* batch, size_t* texts);
// As of the last round. Unlike other calls, any thread may make this one at any time.
KVANT_API kvant_status kvant_batch_get_counters(const kvant_batch* batch,
                                                kvant_batch_counters* counters);
// Rounds until all have ended. The error of a text is in its kvant_text.
KVANT_API kvant_status kvant_batch_run(kvant_batch* batch);

// ---- Beam search -------------------------------------------------------------------------------

typedef enum kvant_beam_scoring {
  KVANT_BEAM_HF = 0,
  KVANT_BEAM_CT2 = 1,
  KVANT_BEAM_WHISPER = 2,
  KVANT_BEAM_OGA = 3
} kvant_beam_scoring;

// Names and meanings are those of Hugging Face's GenerationConfig.
typedef struct kvant_beam_options {
  size_t struct_size;
  int32_t beams, num_return;
  int32_t scoring;             // kvant_beam_scoring
  int32_t early_stopping;      // 0 false, 1 true, 2 never
  int32_t has_length_penalty;  // 0: 1, and the plain length for whisper
  float length_penalty;
  float patience;
  int32_t ct2_length_counts_end;  // 1 in CTranslate2
  int32_t groups;
  float diversity_penalty;
  int64_t max_new_tokens;
  int64_t max_length;  // above 0, instead: with the prompt
  int64_t min_length, min_new_tokens;
  float repetition_penalty;
  int32_t no_repeat_ngram;
  kvant_token forced_bos;  // -1: none
  int32_t renormalize;
  int32_t sample;
  float temperature;
  int32_t top_k;
  float top_p;
  uint64_t seed;
  const kvant_token* end_tokens;
  size_t end_token_count;
  const kvant_token* forced_eos;
  size_t forced_eos_count;
  const kvant_token* suppress;
  size_t suppress_count;
  const kvant_token* begin_suppress;
  size_t begin_suppress_count;
  const kvant_token* const* bad_words;  // [bad_word_count], of so many tokens each
  const size_t* bad_word_sizes;
  size_t bad_word_count;
  int32_t ct2_prompt_in_result;  // its include_prompt_in_result; always where there is a source
  const kvant_grammar* grammar;  // that the texts follow; NULL: none
} kvant_beam_options;

typedef struct kvant_hypothesis {
  size_t struct_size;
  const kvant_token* tokens;  // generated, an end token included
  const float* log_probs;     // [count], as they were added up
  size_t count;
  float sum;
  float score;  // sum / length^penalty
  int32_t ended;
} kvant_hypothesis;

KVANT_API kvant_status kvant_beam_options_default(kvant_beam_options* options, size_t size);
// The default options with the values that the model's file asks for, and its end tokens. Arrays
// are valid as long as the model.
KVANT_API kvant_status kvant_beam_options_of_model(const kvant_model* model,
                                                   kvant_beam_options* options, size_t size);

// A search step by step: the caller has a sequence for each beam. Start, then repeat: step with the
// logits of the sequences (one, that of the prompt, at first), fork or reorder them by parents,
// append the tokens.
KVANT_API kvant_status kvant_beam_search_new(int32_t vocab_size, const kvant_beam_options* options,
                                             kvant_beam_search** search);
KVANT_API void kvant_beam_search_free(kvant_beam_search* search);
KVANT_API kvant_status kvant_beam_search_start(kvant_beam_search* search, const kvant_token* prompt,
                                               size_t count);
KVANT_API kvant_status kvant_beam_search_step(kvant_beam_search* search, const float* const* rows,
                                              size_t count, size_t vocab);
// Makes a step with the logits that sequences keep.
KVANT_API kvant_status kvant_beam_search_step_of(kvant_beam_search* search, kvant_runner* runner,
                                                 const kvant_sequence* sequences, size_t count);
// The rows that the next step expects; 0 once the search is done.
KVANT_API size_t kvant_beam_search_rows(const kvant_beam_search* search);
// The row that each live beam continues, and its token; valid until the next step.
KVANT_API const int32_t* kvant_beam_search_parents(const kvant_beam_search* search, size_t* count);
KVANT_API const kvant_token* kvant_beam_search_tokens(const kvant_beam_search* search,
                                                      size_t* count);
// The best found so far, best first; a live beam as it is. Valid until the next call on the search.
KVANT_API kvant_status kvant_beam_search_results(kvant_beam_search* search, size_t* count);
KVANT_API kvant_status kvant_beam_search_result(kvant_beam_search* search, size_t index,
                                                kvant_hypothesis* hypothesis);
KVANT_API kvant_status kvant_beam_search_live(kvant_beam_search* search, size_t row,
                                              kvant_hypothesis* hypothesis);

typedef struct kvant_beam_prompt {
  const kvant_token* tokens;
  size_t count;
  const kvant_token* source;  // what an encoder-decoder reads before; NULL: nothing
  size_t source_count;
} kvant_beam_prompt;

// After each step of a prompt's search; 0 goes on, 1 ends this one, 2 ends all.
typedef int32_t (*kvant_beam_step_function)(void* user, size_t prompt, int64_t generated);
// Each hypothesis of a prompt, best first, in the end.
typedef void (*kvant_hypothesis_function)(void* user, size_t prompt, size_t rank,
                                          const kvant_hypothesis* hypothesis);
// Searches for continuations of all prompts, with sequences of its own, of which the runner needs
// room for `beams` a prompt under way. After KVANT_CANCELLED the hypotheses found before were
// handed out. `on_step` may be NULL.
KVANT_API kvant_status kvant_runner_search(kvant_runner* runner, const kvant_beam_prompt* prompts,
                                           size_t count, const kvant_beam_options* options,
                                           kvant_beam_step_function on_step,
                                           kvant_hypothesis_function on_hypothesis, void* user);

// ---- Configurations ----------------------------------------------------------------------------

struct kvant_runner_options;  // of kvant_runner.h

// Lays settings over options: a JSON object with the parts "search" and "model" of ONNX Runtime
// GenAI's genai_config.json, such as {"search": {"max_length": 512, "num_beams": 4}}. Each struct
// may be NULL. The part "decoder" of "model" may also stand at the top. KVANT_INVALID for a key
// that there is not, or a value of a wrong type or range, with its name, and nothing is changed
// then. What has no effect here, such as model.decoder.sliding_window.window_size, is told once: in
// `unused`, a line with name and reason for each, memory of the caller, or where that is NULL as a
// warning, see kvant_set_log().
KVANT_API kvant_status kvant_options_overlay(const char* json, size_t size,
                                             struct kvant_runner_options* runner,
                                             kvant_sampling_options* sampling,
                                             kvant_beam_options* beams, char** unused,
                                             size_t* unused_size);

#ifdef __cplusplus
}
#endif

#endif  // KVANT_KVANT_GENERATE_H_INCLUDED
