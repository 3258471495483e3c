// The C API as a program in C99 uses it, against the shared library: sequences, samplers, batches,
// beams, conversations, sources, files, errors, threads. Where two ways lead to one result, both
// are taken.
//
// Usage: capi_test DECODER.gguf ENCODER_DECODER.gguf FOLDER; prints what failed.
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checks.h"
#include "kvant/kvant.h"

// The call is refused with this status and a reason.
#define REFUSED(call, expected)                                                              \
  do {                                                                                       \
    kvant_status refused_status = (call);                                                    \
    ++checks;                                                                                \
    if (refused_status != (expected) || kvant_last_error(NULL)[0] == 0) {                    \
      ++failures;                                                                            \
      fprintf(stderr, "%s:%d: %s: expected %s, found %s: '%s'\n", __FILE__, __LINE__, #call, \
              kvant_status_name(expected), kvant_status_name(refused_status),                \
              kvant_last_error(NULL));                                                       \
    }                                                                                        \
  } while (0)

enum { kSteps = 24 };

static kvant_model* Open(const char* path) {
  kvant_model* model = NULL;
  OK(kvant_model_open(path, NULL, &model));
  if (model == NULL) exit(1);
  return model;
}

static kvant_runner* Runner(const kvant_model* model, int64_t sequences, int64_t context) {
  kvant_runner_options options;
  kvant_runner* runner = NULL;
  OK(kvant_runner_options_default(&options, sizeof options));
  options.sequences = sequences;
  options.context = context;
  options.threads = 2;
  options.kv_check = 1;
  OK(kvant_runner_new(model, &options, &runner));
  if (runner == NULL) exit(1);
  return runner;
}

static kvant_sampler* Greedy(const kvant_model* model) {
  kvant_model_info info;
  kvant_sampling_options options;
  kvant_sampler* sampler = NULL;
  info.struct_size = sizeof info;
  OK(kvant_model_get_info(model, &info));
  OK(kvant_sampling_options_default(&options, sizeof options));
  options.temperature = 0;
  OK(kvant_sampler_new(NULL, info.vocab_size, &options, &sampler));
  return sampler;
}

static size_t Prompt(const kvant_model* model, const char* text, kvant_token** tokens) {
  kvant_tokenizer* tokenizer = NULL;
  size_t count = 0;
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  OK(kvant_tokenizer_prompt(tokenizer, text, strlen(text), tokens, &count));
  kvant_tokenizer_free(tokenizer);
  CHECK(count > 1);
  return count;
}

// The likeliest tokens behind what the sequence holds.
static void Generate(kvant_runner* runner, kvant_sequence sequence, kvant_sampler* sampler,
                     kvant_token* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    OK(kvant_sequence_generate(runner, sequence, sampler, &out[i]));
  }
}

static int Same(const kvant_token* a, const kvant_token* b, size_t count) {
  return memcmp(a, b, count * sizeof *a) == 0;
}

// KV-90: parameters, a generator, tokens in and out, their count, and back again.
static void AppendGenerateRewind(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 2, 128);
  kvant_sampler* sampler = Greedy(model);
  kvant_sequence sequence = -1;
  kvant_sequence fork = -1;
  kvant_token first[kSteps], second[kSteps];
  kvant_token* prompt = NULL;
  const size_t count = Prompt(model, "ROMEO:\n", &prompt);
  OK(kvant_sequence_new(runner, &sequence));
  OK(kvant_sequence_append(runner, sequence, prompt, count));
  CHECK(kvant_sequence_length(runner, sequence) == (int64_t)count);
  Generate(runner, sequence, sampler, first, kSteps);
  CHECK(kvant_sequence_length(runner, sequence) == (int64_t)count + kSteps);
  size_t held = 0;
  const kvant_token* tokens = kvant_sequence_tokens(runner, sequence, &held);
  CHECK(held == count + kSteps && Same(tokens + count, first, kSteps));
  // Back to a length, and on with the same bits.
  OK(kvant_sequence_rewind(runner, sequence, (int64_t)count + 4, 1));
  OK(kvant_sequence_compute_logits(runner, sequence));
  Generate(runner, sequence, sampler, second, kSteps - 4);
  CHECK(Same(first + 4, second, kSteps - 4));
  OK(kvant_sequence_rewind(runner, sequence, (int64_t)count, 1));
  OK(kvant_sequence_fork(runner, sequence, &fork));
  OK(kvant_sequence_append(runner, sequence, first, 2));
  OK(kvant_sequence_append(runner, fork, first, 2));
  size_t vocab = 0;
  size_t other = 0;
  const float* logits = kvant_sequence_logits(runner, sequence, &vocab);
  const float* forked = kvant_sequence_logits(runner, fork, &other);
  CHECK(vocab > 0 && vocab == other && memcmp(logits, forked, vocab * sizeof *logits) == 0);
  REFUSED(kvant_sequence_rewind(runner, sequence, 1000, 1), KVANT_INVALID);
  REFUSED(kvant_sequence_append(runner, 77, first, 1), KVANT_INVALID);
  REFUSED(kvant_sequence_new(runner, &fork), KVANT_OUT_OF_MEMORY);
  OK(kvant_runner_check(runner));
  kvant_free(prompt);
  kvant_sampler_free(sampler);
  kvant_runner_free(runner);
}

static void SnapshotsFilesAndTensors(const kvant_model* model, const char* folder) {
  kvant_runner* runner = Runner(model, 4, 96);
  kvant_sampler* sampler = Greedy(model);
  kvant_sequence sequence = -1;
  kvant_snapshot snapshot = -1;
  kvant_token expected[8], found[8];
  kvant_token* prompt = NULL;
  const size_t count = Prompt(model, "JULIET:\nO", &prompt);
  OK(kvant_sequence_new(runner, &sequence));
  OK(kvant_sequence_append(runner, sequence, prompt, count));
  OK(kvant_snapshot_take(runner, sequence, &snapshot));
  char path[4096];
  snprintf(path, sizeof path, "%s/saved.kvs", folder);
  OK(kvant_runner_save(runner, path, &sequence, 1));
  kvant_tensors* tensors = NULL;
  OK(kvant_tensors_export(runner, &sequence, 1, KVANT_BHSD, &tensors));
  CHECK(kvant_tensors_count(tensors) > 0);
  Generate(runner, sequence, sampler, expected, 8);
  OK(kvant_snapshot_restore(runner, sequence, snapshot));
  OK(kvant_snapshot_drop(runner, snapshot));
  Generate(runner, sequence, sampler, found, 8);
  CHECK(Same(expected, found, 8));
  kvant_sequence* loaded = NULL;
  size_t sequences = 0;
  OK(kvant_runner_load(runner, path, &loaded, &sequences));
  CHECK(sequences == 1);
  Generate(runner, loaded[0], sampler, found, 8);
  CHECK(Same(expected, found, 8));
  kvant_free(loaded);
  OK(kvant_tensors_import(runner, tensors, KVANT_BHSD, &loaded, &sequences));
  OK(kvant_sequence_compute_logits(runner, loaded[0]));
  Generate(runner, loaded[0], sampler, found, 8);
  CHECK(Same(expected, found, 8));
  kvant_free(loaded);
  snprintf(path, sizeof path, "%s/none.kvs", folder);
  REFUSED(kvant_runner_load(runner, path, &loaded, &sequences), KVANT_IO);
  CHECK(strstr(kvant_last_error(runner), "none.kvs") != NULL);
  kvant_tensors_free(tensors);
  kvant_free(prompt);
  kvant_runner_free(runner);
  kvant_sampler_free(sampler);
}

struct Collected {
  kvant_token tokens[4][kSteps];
  size_t counts[4];
  size_t ended;
  char text[4][1024];
  kvant_token forced;
  kvant_runner* runner;
};

static int32_t OnText(void* user, int64_t request, int32_t sample, const char* piece, size_t size) {
  struct Collected* all = user;
  (void)sample;
  strncat(all->text[request], piece, size);
  return 0;
}
static int32_t OnEnd(void* user, const kvant_text* text) {
  struct Collected* all = user;
  kvant_sequence sequence = -1;
  CHECK(text->status == KVANT_OK);
  memcpy(all->tokens[text->request], text->tokens, text->count * sizeof(kvant_token));
  all->counts[text->request] = text->count;
  CHECK(strcmp(all->text[text->request], text->text) == 0);
  // The runner is at work in this very call.
  REFUSED(kvant_sequence_new(all->runner, &sequence), KVANT_INVALID);
  ++all->ended;
  return 0;
}
static int32_t Force(void* user, int64_t request, int32_t sample, const kvant_token* tokens,
                     size_t count, float* logits, size_t vocab) {
  const struct Collected* all = user;
  (void)request, (void)sample, (void)tokens, (void)count;
  for (size_t i = 0; i < vocab; ++i) logits[i] = i == (size_t)all->forced ? 1.0f : 0.0f;
  return 0;
}

static void BatchesAreSingleTexts(const kvant_model* model) {
  static const char* const texts[3] = {"ROMEO:\n", "KING RICHARD III:\nNow", "The"};
  struct Collected all;
  memset(&all, 0, sizeof all);
  all.runner = Runner(model, 2, 96);
  kvant_tokenizer* tokenizer = NULL;
  kvant_batch* batch = NULL;
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  OK(kvant_batch_new(all.runner, tokenizer, NULL, &batch));
  kvant_sampling_options greedy;
  OK(kvant_sampling_options_default(&greedy, sizeof greedy));
  greedy.temperature = 0;
  for (int i = 0; i < 4; ++i) {
    kvant_request request;
    kvant_token* prompt = NULL;
    int64_t number = -1;
    OK(kvant_request_default(&request, sizeof request));
    request.prompt_count = Prompt(model, texts[i % 3], &prompt);
    request.prompt = prompt;
    request.sampling = &greedy;
    request.max_tokens = i < 3 ? kSteps : 5;
    request.ignore_end = 1;
    request.user = &all;
    request.on_text = OnText;
    request.on_end = OnEnd;
    if (i == 3) request.on_logits = Force;
    OK(kvant_batch_add(batch, &request, &number));
    CHECK(number == i);
    kvant_free(prompt);
  }
  all.forced = 7;
  OK(kvant_batch_run(batch));
  CHECK(all.ended == 4 && all.counts[3] == 5);
  for (size_t i = 0; i < all.counts[3]; ++i) CHECK(all.tokens[3][i] == 7);
  kvant_batch_free(batch);
  for (int i = 0; i < 3; ++i) {
    kvant_runner* runner = Runner(model, 1, 96);
    kvant_sampler* sampler = Greedy(model);
    kvant_tokenizer_info info;
    info.struct_size = sizeof info;
    OK(kvant_tokenizer_get_info(tokenizer, &info));
    for (kvant_token token = 0; token < info.vocab_size; ++token) {
      if ((kvant_tokenizer_flags(tokenizer, token) & KVANT_IS_END) == 0) continue;
      OK(kvant_sampler_forbid(sampler, token));
    }
    kvant_sequence sequence = -1;
    kvant_token* prompt = NULL;
    kvant_token found[kSteps];
    const size_t count = Prompt(model, texts[i], &prompt);
    OK(kvant_sequence_new(runner, &sequence));
    OK(kvant_sequence_append(runner, sequence, prompt, count));
    Generate(runner, sequence, sampler, found, kSteps);
    CHECK(all.counts[i] == kSteps && Same(found, all.tokens[i], kSteps));
    kvant_free(prompt);
    kvant_sampler_free(sampler);
    kvant_runner_free(runner);
  }
  kvant_tokenizer_free(tokenizer);
  kvant_runner_free(all.runner);
}

struct Best {
  kvant_token tokens[kSteps];
  size_t count;
  float score;
};
static void TakeBest(void* user, size_t prompt, size_t rank, const kvant_hypothesis* hypothesis) {
  struct Best* best = user;
  if (prompt != 0 || rank != 0) return;
  best->count = hypothesis->count;
  best->score = hypothesis->score;
  memcpy(best->tokens, hypothesis->tokens, hypothesis->count * sizeof(kvant_token));
}

// A search by one call, and step by step on sequences of the caller.
static void SearchesInBothForms(const kvant_model* model) {
  enum { kBeams = 3 };
  kvant_runner* runner = Runner(model, 2 * kBeams, 96);
  kvant_token* tokens = NULL;
  const size_t count = Prompt(model, "ROMEO:\nI", &tokens);
  kvant_beam_options options;
  OK(kvant_beam_options_of_model(model, &options, sizeof options));
  CHECK(options.end_token_count > 0);
  options.beams = options.num_return = kBeams;
  options.max_new_tokens = 12;
  const kvant_beam_prompt prompt = {tokens, count, NULL, 0};
  struct Best best;
  OK(kvant_runner_search(runner, &prompt, 1, &options, NULL, TakeBest, &best));
  kvant_model_info info;
  info.struct_size = sizeof info;
  OK(kvant_model_get_info(model, &info));
  kvant_beam_search* search = NULL;
  OK(kvant_beam_search_new(info.vocab_size, &options, &search));
  OK(kvant_beam_search_start(search, tokens, count));
  kvant_sequence beams[kBeams];
  OK(kvant_sequence_new(runner, &beams[0]));
  OK(kvant_sequence_append(runner, beams[0], tokens, count));
  OK(kvant_beam_search_step_of(search, runner, beams, 1));
  for (int i = 1; i < kBeams; ++i) OK(kvant_sequence_fork(runner, beams[0], &beams[i]));
  while (kvant_beam_search_rows(search) > 0) {
    size_t rows = 0;
    const int32_t* parents = kvant_beam_search_parents(search, &rows);
    CHECK(rows == kBeams);
    OK(kvant_sequence_reorder(runner, beams, parents, rows));
    const kvant_token* next = kvant_beam_search_tokens(search, &rows);
    kvant_step_input inputs[kBeams];
    for (size_t i = 0; i < rows; ++i) {
      inputs[i].sequence = beams[i];
      inputs[i].logits = KVANT_LOGITS_LAST;
      inputs[i].tokens = &next[i];
      inputs[i].count = 1;
    }
    OK(kvant_runner_step(runner, inputs, rows, NULL, NULL));
    OK(kvant_beam_search_step_of(search, runner, beams, rows));
  }
  size_t results = 0;
  kvant_hypothesis hypothesis;
  hypothesis.struct_size = sizeof hypothesis;
  OK(kvant_beam_search_results(search, &results));
  CHECK(results == kBeams);
  OK(kvant_beam_search_result(search, 0, &hypothesis));
  CHECK(hypothesis.count == best.count && Same(hypothesis.tokens, best.tokens, best.count));
  CHECK(hypothesis.score == best.score);
  kvant_beam_search_free(search);
  kvant_free(tokens);
  kvant_runner_free(runner);
}

static int32_t TakeText(void* user, const kvant_text* text) {
  CHECK(text->finish_reason == KVANT_FINISH_STOP && text->status == KVANT_OK);
  strncat((char*)user, text->text, 100);
  return 0;
}

static void TakeHypothesis(void* user, size_t prompt, size_t rank, const kvant_hypothesis* found) {
  (void)prompt, (void)rank;
  struct Best* best = user;
  CHECK(found->ended && found->count <= kSteps);
  best->count = found->count;
  memcpy(best->tokens, found->tokens, found->count * sizeof(kvant_token));
}

static kvant_grammar* Choices(const kvant_model* model, const char* const* choices, size_t count) {
  kvant_tokenizer* tokenizer = NULL;
  kvant_grammar_options options;
  kvant_grammar* grammar = NULL;
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  OK(kvant_grammar_options_default(&options, sizeof options));
  options.kind = KVANT_GRAMMAR_CHOICES;
  options.choices = choices;
  options.choice_count = count;
  OK(kvant_grammar_new(tokenizer, &options, &grammar));
  kvant_tokenizer_free(tokenizer);
  return grammar;
}

// A grammar in a batch, in a sampler step by step, in a search and in a conversation. The handle
// may go as soon as they have it.
static void TextsFollowGrammars(const kvant_model* model) {
  static const char* const kChoices[] = {"never more", "ever and a day"};
  kvant_runner* runner = Runner(model, 3, 512);
  kvant_tokenizer* tokenizer = NULL;
  kvant_token* prompt = NULL;
  const size_t count = Prompt(model, "ROMEO:\n", &prompt);
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  kvant_grammar* grammar = Choices(model, kChoices, 2);
  char text[200] = "";
  kvant_batch* batch = NULL;
  kvant_request request;
  kvant_sampling_options greedy;
  OK(kvant_sampling_options_default(&greedy, sizeof greedy));
  greedy.temperature = 0;
  OK(kvant_request_default(&request, sizeof request));
  request.prompt = prompt;
  request.prompt_count = count;
  request.sampling = &greedy;
  request.grammar = grammar;
  request.on_end = TakeText;
  request.user = text;
  OK(kvant_batch_new(runner, tokenizer, NULL, &batch));
  OK(kvant_batch_add(batch, &request, NULL));
  kvant_beam_options beams;
  OK(kvant_beam_options_of_model(model, &beams, sizeof beams));
  beams.beams = 3;
  beams.num_return = 1;
  beams.grammar = grammar;
  kvant_beam_search* search = NULL;
  kvant_model_info info;
  info.struct_size = sizeof info;
  OK(kvant_model_get_info(model, &info));
  OK(kvant_beam_search_new(info.vocab_size, &beams, &search));
  kvant_sampler* sampler = Greedy(model);
  OK(kvant_sampler_accept(sampler, prompt, count));
  OK(kvant_sampler_set_grammar(sampler, grammar));
  const kvant_beam_prompt given = {prompt, count, NULL, 0};
  struct Best best;
  memset(&best, 0, sizeof best);
  OK(kvant_runner_search(runner, &given, 1, &beams, NULL, TakeHypothesis, &best));
  kvant_template* chatml = NULL;
  kvant_conversation* talk = NULL;
  kvant_conversation_options options;
  OK(kvant_template_named(model, "chatml", &chatml));
  OK(kvant_conversation_options_default(&options, sizeof options));
  options.sampling = &greedy;
  options.grammar = grammar;
  OK(kvant_conversation_new(runner, chatml, &options, &talk));
  kvant_grammar_free(grammar);

  OK(kvant_batch_run(batch));
  CHECK(strcmp(text, kChoices[0]) == 0 || strcmp(text, kChoices[1]) == 0);
  // The sampler finds the same text, and an end token behind it.
  kvant_sequence sequence = -1;
  kvant_token tokens[kSteps];
  size_t held = 0;
  OK(kvant_sequence_new(runner, &sequence));
  OK(kvant_sequence_append(runner, sequence, prompt, count));
  do {
    OK(kvant_sequence_generate(runner, sequence, sampler, &tokens[held]));
  } while ((kvant_tokenizer_flags(tokenizer, tokens[held++]) & KVANT_IS_END) == 0 && held < kSteps);
  char* written = NULL;
  OK(kvant_tokenizer_decode(tokenizer, tokens, held - 1, 0, &written, NULL));
  CHECK(strcmp(written, text) == 0);
  REFUSED(kvant_sequence_generate(runner, sequence, sampler, &tokens[0]), KVANT_INVALID);
  OK(kvant_sampler_set_grammar(sampler, NULL));
  OK(kvant_sequence_generate(runner, sequence, sampler, &tokens[0]));
  kvant_free(written);
  // The search.
  CHECK(best.count > 1);
  OK(kvant_tokenizer_decode(tokenizer, best.tokens, best.count - 1, 0, &written, NULL));
  CHECK(strcmp(written, kChoices[0]) == 0 || strcmp(written, kChoices[1]) == 0);
  kvant_free(written);
  // The conversation, with one grammar and then another.
  static const char* const kOthers[] = {"so be it"};
  kvant_grammar* other = Choices(model, kOthers, 1);
  for (int i = 0; i < 2; ++i) {
    char* messages = NULL;
    OK(kvant_conversation_add_user(talk, "Speak.", 6));
    OK(kvant_conversation_answer(talk, NULL, NULL));
    OK(kvant_conversation_messages(talk, &messages, NULL));
    if (i == 0) CHECK(strstr(messages, kChoices[0]) || strstr(messages, kChoices[1]));
    if (i == 1) CHECK(strstr(messages, "\"so be it\"") != NULL);
    kvant_free(messages);
    OK(kvant_conversation_set_grammar(talk, other));
  }
  kvant_grammar_free(other);
  kvant_conversation_free(talk);
  kvant_template_free(chatml);
  kvant_beam_search_free(search);
  kvant_batch_free(batch);
  kvant_sampler_free(sampler);
  kvant_tokenizer_free(tokenizer);
  kvant_free(prompt);
  kvant_runner_free(runner);
}

// Log-probabilities of given tokens, and the same from rows of logits in double precision.
static void ScoresAreLogProbabilities(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 2, 96);
  kvant_token* tokens = NULL;
  const size_t count = Prompt(model, "To be, or not to be", &tokens);
  double log_probs[64];
  kvant_score_text text;
  memset(&text, 0, sizeof text);
  text.tokens = tokens;
  text.count = count;
  text.first = 1;
  text.log_probs = log_probs;
  OK(kvant_runner_score(runner, &text, 1));
  kvant_sequence sequence = -1;
  OK(kvant_sequence_new(runner, &sequence));
  for (size_t i = 0; i + 1 < count; ++i) {
    size_t vocab = 0;
    double sum = 0;
    OK(kvant_sequence_append(runner, sequence, &tokens[i], 1));
    const float* logits = kvant_sequence_logits(runner, sequence, &vocab);
    for (size_t v = 0; v < vocab; ++v) sum += exp((double)logits[v]);
    CHECK(fabs((double)logits[tokens[i + 1]] - log(sum) - log_probs[i]) < 1e-3);
  }
  kvant_free(tokens);
  kvant_runner_free(runner);
}

// The encoder runs once for a source, and the text is the search's.
static void SourcesAreReadOnce(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 3, 64);
  kvant_tokenizer* tokenizer = NULL;
  kvant_token* source = NULL;
  size_t count = 0;
  static const char text[] = "digits: three hundred forty-two";
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  OK(kvant_tokenizer_encode(tokenizer, text, strlen(text), KVANT_ADD_SPECIAL, &source, &count));
  kvant_model_info info;
  info.struct_size = sizeof info;
  OK(kvant_model_get_info(model, &info));
  CHECK(info.has_encoder == 1 && info.decoder_start >= 0);
  kvant_source first = -1, second = -1;
  OK(kvant_source_new(runner, source, count, NULL, NULL, &first));
  OK(kvant_source_new(runner, source, count, NULL, NULL, &second));
  CHECK(first == second);
  kvant_sequence sequence = -1;
  OK(kvant_sequence_new_of_source(runner, first, &sequence));
  OK(kvant_source_free(runner, first));
  OK(kvant_source_free(runner, second));
  kvant_sampler* sampler = Greedy(model);
  kvant_token found[8];
  OK(kvant_sequence_append(runner, sequence, &info.decoder_start, 1));
  Generate(runner, sequence, sampler, found, 4);
  char* words = NULL;
  size_t size = 0;
  OK(kvant_tokenizer_decode(tokenizer, found, 3, 0, &words, &size));
  CHECK(strstr(words, "342") != NULL);
  kvant_runner_stats stats;
  stats.struct_size = sizeof stats;
  OK(kvant_runner_get_stats(runner, &stats));
  CHECK(stats.encoder_passes == 1);
  kvant_free(words);
  kvant_free(source);
  kvant_sampler_free(sampler);
  kvant_tokenizer_free(tokenizer);
  kvant_runner_free(runner);
}

static long ResidentPages(void) {
  long size = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL) return 0;
  if (fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
  fclose(file);
  return resident;
}

// A hundred thousand steps on the small model take no more memory than the first thousand.
static void StepsDoNotGrow(const kvant_model* model, long steps) {
  kvant_runner_options options;
  kvant_runner* runner = NULL;
  OK(kvant_runner_options_default(&options, sizeof options));
  options.context = 32;
  options.threads = 1;
  OK(kvant_runner_new(model, &options, &runner));
  const kvant_token source[3] = {5, 6, 1};
  kvant_source id = -1;
  kvant_sequence sequence = -1;
  OK(kvant_source_new(runner, source, 3, NULL, NULL, &id));
  OK(kvant_sequence_new_of_source(runner, id, &sequence));
  long before = 0;
  kvant_status status = KVANT_OK;
  for (long i = 0; i < steps && status == KVANT_OK; ++i) {
    const kvant_token token = (kvant_token)(i % 50);
    if (i % 32 == 0) status = kvant_sequence_rewind(runner, sequence, 0, 1);
    if (status == KVANT_OK) status = kvant_sequence_append(runner, sequence, &token, 1);
    if (i == 1000) before = ResidentPages();
  }
  CHECK(status == KVANT_OK);
  CHECK(ResidentPages() - before < 256);
  kvant_runner_free(runner);
}

struct Worker {
  const kvant_model* model;
  kvant_token tokens[kSteps];
  kvant_runner* cancelled;
};
static void* Work(void* user) {
  struct Worker* worker = user;
  kvant_runner* runner = Runner(worker->model, 1, 96);
  kvant_sampler* sampler = Greedy(worker->model);
  kvant_sequence sequence = -1;
  kvant_token* prompt = NULL;
  const size_t count = Prompt(worker->model, "ROMEO:\n", &prompt);
  OK(kvant_sequence_new(runner, &sequence));
  OK(kvant_sequence_append(runner, sequence, prompt, count));
  Generate(runner, sequence, sampler, worker->tokens, kSteps);
  REFUSED(kvant_sequence_append(runner, 9, prompt, 1), KVANT_INVALID);
  kvant_free(prompt);
  kvant_sampler_free(sampler);
  kvant_runner_free(runner);
  return NULL;
}
static void* Cancel(void* user) {
  const struct timespec pause = {0, 2000000};
  nanosleep(&pause, NULL);
  kvant_runner_cancel(user);
  return NULL;
}

struct Asked {
  int32_t answer;
  int times;
};
static int32_t Ask(void* user) {
  struct Asked* asked = user;
  ++asked->times;
  return asked->answer;
}
static void* StepUnasked(void* user) {  // on a thread that has no function
  struct Worker* worker = user;
  kvant_runner* runner = Runner(worker->model, 1, 96);
  kvant_sequence sequence = -1;
  OK(kvant_sequence_new(runner, &sequence));
  OK(kvant_sequence_append(runner, sequence, worker->tokens, 3));
  kvant_runner_free(runner);
  return NULL;
}

// The function of a thread ends its calls, and no others; they change nothing.
static void InterruptsEndCalls(const kvant_model* model, const char* path) {
  struct Asked asked = {0, 0};
  struct Worker worker = {.model = model, .tokens = {2, 5, 6}};
  pthread_t thread;
  kvant_runner* runner = Runner(model, 4, 96);
  kvant_sequence sequence = -1;
  size_t texts = 0;
  double log_probs[2];
  const kvant_score_text score = {worker.tokens, 3, 1, log_probs, NULL, NULL, 0};
  kvant_model_options options;
  kvant_model* read = NULL;
  OK(kvant_sequence_new(runner, &sequence));
  kvant_set_interrupt(Ask, &asked);
  OK(kvant_sequence_append(runner, sequence, worker.tokens, 3));
  CHECK(asked.times >= 1);
  kvant_tokenizer* tokenizer = NULL;
  kvant_batch* batch = NULL;
  kvant_request request;
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  OK(kvant_batch_new(runner, tokenizer, NULL, &batch));
  OK(kvant_request_default(&request, sizeof request));
  request.prompt = worker.tokens;
  request.prompt_count = 3;
  request.max_tokens = 2;
  OK(kvant_batch_add(batch, &request, NULL));
  asked.answer = 1;
  kvant_set_interrupt(Ask, &asked);
  CHECK(pthread_create(&thread, NULL, StepUnasked, &worker) == 0);
  pthread_join(thread, NULL);
  REFUSED(kvant_sequence_append(runner, sequence, worker.tokens, 3), KVANT_CANCELLED);
  REFUSED(kvant_sequence_append(runner, sequence, worker.tokens, 1), KVANT_CANCELLED);
  CHECK(kvant_sequence_length(runner, sequence) == 3);
  REFUSED(kvant_runner_score(runner, &score, 1), KVANT_CANCELLED);
  REFUSED(kvant_batch_poll(batch, &texts), KVANT_CANCELLED);
  CHECK(texts == 1);
  OK(kvant_model_options_default(&options, sizeof options));
  options.read_file = 1;
  REFUSED(kvant_model_open(path, &options, &read), KVANT_CANCELLED);
  CHECK(read == NULL);
  kvant_set_interrupt(NULL, NULL);
  const int times = asked.times;
  OK(kvant_sequence_append(runner, sequence, worker.tokens, 3));
  OK(kvant_batch_run(batch));
  CHECK(asked.times == times);
  kvant_batch_free(batch);
  kvant_tokenizer_free(tokenizer);
  kvant_runner_free(runner);
}

static void ThreadsAndCancellation(const kvant_model* model) {
  struct Worker workers[2];
  pthread_t threads[2];
  memset(workers, 0, sizeof workers);
  for (int i = 0; i < 2; ++i) {
    workers[i].model = model;
    CHECK(pthread_create(&threads[i], NULL, Work, &workers[i]) == 0);
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  CHECK(Same(workers[0].tokens, workers[1].tokens, kSteps));
  kvant_runner* runner = Runner(model, 1, 1024);
  kvant_sequence sequence = -1;
  kvant_token tokens[1000];
  for (int i = 0; i < 1000; ++i) tokens[i] = 5 + i % 100;
  OK(kvant_sequence_new(runner, &sequence));
  CHECK(pthread_create(&threads[0], NULL, Cancel, runner) == 0);
  kvant_status status = KVANT_OK;
  for (int i = 0; i < 1000 && status == KVANT_OK; ++i) {
    status = kvant_sequence_append(runner, sequence, tokens, 1000);
    if (status == KVANT_OK) OK(kvant_sequence_reset(runner, sequence));
  }
  CHECK(status == KVANT_CANCELLED);
  pthread_join(threads[0], NULL);
  const int64_t done = kvant_sequence_length(runner, sequence);
  CHECK(done >= 0 && done < 1000);
  OK(kvant_sequence_append(runner, sequence, tokens, 1));
  kvant_runner_free(runner);
}

struct Warnings {
  int count;
  char last[256];
};

static void TakeWarning(void* user, int32_t level, const char* line, size_t size) {
  struct Warnings* warnings = user;
  if (level < 2) return;
  ++warnings->count;
  snprintf(warnings->last, sizeof warnings->last, "%.*s", (int)size, line);
}

static kvant_status Overlay(const char* json, kvant_runner_options* runner,
                            kvant_sampling_options* sampling, kvant_beam_options* beams) {
  return kvant_options_overlay(json, strlen(json), runner, sampling, beams, NULL, NULL);
}

// Settings of another engine's configuration: taken where they mean something, told once where they
// do not, refused by their name where they do not exist.
static void ConfigurationOverlay(const kvant_model* model) {
  kvant_runner_options runner;
  kvant_sampling_options sampling;
  kvant_beam_options beams;
  struct Warnings warnings = {0, ""};
  OK(kvant_runner_options_default(&runner, sizeof runner));
  OK(kvant_sampling_options_default(&sampling, sizeof sampling));
  OK(kvant_beam_options_default(&beams, sizeof beams));
  kvant_set_log(TakeWarning, &warnings);
  OK(Overlay(
      "{\"search\": {\"max_length\": 64, \"batch_size\": 2, \"num_beams\": 3, \"top_k\": 7, "
      "\"top_p\": 0.5, \"temperature\": 0.25, \"do_sample\": true, \"random_seed\": 9, "
      "\"repetition_penalty\": 1.5, \"length_penalty\": 0.5, \"early_stopping\": false, "
      "\"num_return_sequences\": 2, \"no_repeat_ngram_size\": 4, \"min_length\": 5, "
      "\"past_present_share_buffer\": true, \"chunk_size\": 32}, "
      "\"model\": {\"context_length\": 512, \"decoder\": {\"session_options\": "
      "{\"intra_op_num_threads\": 1}}}}",
      &runner, &sampling, &beams));
  CHECK(warnings.count == 0);
  CHECK(runner.context == 64 && runner.sequences == 6 && runner.threads == 1 && runner.chunk == 32);
  CHECK(sampling.top_k == 7 && sampling.top_p == 0.5f && sampling.temperature == 0.25f);
  CHECK(sampling.has_seed == 1 && sampling.seed == 9 && sampling.repeat_penalty == 1.5f);
  CHECK(sampling.repeat_last_n == -1);
  CHECK(beams.beams == 3 && beams.num_return == 2 && beams.has_length_penalty == 1);
  CHECK(beams.length_penalty == 0.5f && beams.no_repeat_ngram == 4 && beams.min_length == 5);
  CHECK(beams.max_length == 64 && beams.sample == 1 && beams.early_stopping == 0);
  kvant_runner* made = NULL;
  OK(kvant_runner_new(model, &runner, &made));
  kvant_runner_free(made);

  OK(Overlay("{\"search\": {\"do_sample\": false, \"temperature\": 0.7}}", NULL, &sampling, NULL));
  CHECK(sampling.temperature == 0);
  OK(Overlay("{\"model\": {\"context_length\": 512}}", &runner, NULL, NULL));
  CHECK(runner.context == 512);

  const char* const without_effect[] = {
      "{\"search\": {\"past_present_share_buffer\": false}}",
      "{\"model\": {\"decoder\": {\"sliding_window\": {\"window_size\": 4096}}}}",
      "{\"model\": {\"decoder\": {\"session_options\": {\"provider_options\": [{\"cuda\": "
      "{\"enable_cuda_graph\": \"1\"}}]}}}}"};
  const char* const names[] = {"search.past_present_share_buffer",
                               "model.decoder.sliding_window.window_size",
                               "model.decoder.session_options.provider_options"};
  for (int i = 0; i < 3; ++i) {
    OK(Overlay(without_effect[i], &runner, &sampling, &beams));
    CHECK(warnings.count == i + 1 && strstr(warnings.last, names[i]) != NULL);
  }
  // In the form of the document, and handed out.
  const char* const at_top =
      "{\"decoder\": {\"sliding_window\": {\"layers\": [0], \"alignment\": \"left\"}}}";
  char* unused = NULL;
  size_t size = 0;
  OK(kvant_options_overlay(at_top, strlen(at_top), NULL, NULL, NULL, &unused, &size));
  CHECK(warnings.count == 3 && strlen(unused) == size && strchr(unused, '\n') != NULL);
  CHECK(strstr(unused, "model.decoder.sliding_window.layers has no effect") != NULL);
  kvant_free(unused);
  kvant_set_log(NULL, NULL);

  const kvant_runner_options before = runner;
  const char* const wrong[] = {"{\"search\": {\"max_lenght\": 5}}",
                               "{\"search\": {\"max_length\": 9, \"num_beams\": 0}}",
                               "{\"search\": {\"max_length\": 9, \"top_p\": \"x\"}}",
                               "{\"search\": {\"max_length\": 9, \"do_sample\": 1}}",
                               "{\"model\": {\"decoder\": {\"sliding_window\": {\"size\": 1}}}}",
                               "{\"search\": 5}"};
  const char* const reasons[] = {"search.max_lenght",   "search.num_beams",
                                 "search.top_p",        "search.do_sample",
                                 "sliding_window.size", "search: expected an object"};
  for (int i = 0; i < 6; ++i) {
    REFUSED(Overlay(wrong[i], &runner, NULL, NULL), KVANT_INVALID);
    CHECK(strstr(kvant_last_error(NULL), reasons[i]) != NULL);
  }
  CHECK(memcmp(&before, &runner, sizeof runner) == 0);
}

static int32_t CountCalls(void* user, int64_t done, int64_t total) {
  int64_t* seen = user;
  ++seen[0];
  seen[1] = done;
  seen[2] = total;
  return seen[0] >= seen[3];
}

static void OpeningTellsItsProgress(const char* path) {
  kvant_model_options options;
  kvant_model* model = NULL;
  for (int read_file = 0; read_file < 2; ++read_file) {
    int64_t seen[4] = {0, 0, 0, 99};
    OK(kvant_model_options_default(&options, sizeof options));
    options.read_file = read_file;
    options.progress = CountCalls;
    options.progress_user = seen;
    OK(kvant_model_open(path, &options, &model));
    kvant_model_info info = {.struct_size = sizeof info};
    OK(kvant_model_get_info(model, &info));
    CHECK(seen[0] >= 1 && seen[1] == seen[2] && (uint64_t)seen[2] == info.file_bytes);
    kvant_model_free(model);
    model = NULL;
    seen[0] = 0;
    seen[3] = 1;
    REFUSED(kvant_model_open(path, &options, &model), KVANT_CANCELLED);
    CHECK(model == NULL && strstr(kvant_last_error(NULL), path) != NULL);
  }
}

// The error names what is wrong, and nothing is made.
static void WrongArguments(const kvant_model* model) {
  kvant_model* none = NULL;
  kvant_runner* runner = NULL;
  kvant_runner_options options;
  kvant_token token = 0;
  REFUSED(kvant_model_open("/nonexistent/model.gguf", NULL, &none), KVANT_IO);
  CHECK(none == NULL && strstr(kvant_last_error(NULL), "/nonexistent/model.gguf") != NULL);
  REFUSED(kvant_model_open(NULL, NULL, &none), KVANT_INVALID);
  REFUSED(kvant_model_open("x", NULL, NULL), KVANT_INVALID);
  REFUSED(kvant_model_get_info(model, NULL), KVANT_INVALID);
  REFUSED(kvant_runner_new(NULL, NULL, &runner), KVANT_INVALID);
  REFUSED(kvant_runner_new(model, NULL, NULL), KVANT_INVALID);
  OK(kvant_runner_options_default(&options, sizeof options));
  options.k_type = 9;
  REFUSED(kvant_runner_new(model, &options, &runner), KVANT_INVALID);
  CHECK(strstr(kvant_last_error(NULL), "k_type") != NULL);
  OK(kvant_runner_options_default(&options, sizeof options));
  options.sequences = -3;
  REFUSED(kvant_runner_new(model, &options, &runner), KVANT_INVALID);
  options.struct_size = 3;
  REFUSED(kvant_runner_new(model, &options, &runner), KVANT_INVALID);
  CHECK(runner == NULL);
  REFUSED(kvant_sequence_new(NULL, NULL), KVANT_INVALID);
  REFUSED(kvant_sequence_append(NULL, 0, &token, 1), KVANT_INVALID);
  REFUSED(kvant_batch_new(NULL, NULL, NULL, NULL), KVANT_INVALID);
  REFUSED(kvant_batch_poll(NULL, NULL), KVANT_INVALID);
  REFUSED(kvant_sampler_sample(NULL, NULL, 0, NULL), KVANT_INVALID);
  REFUSED(kvant_beam_search_step(NULL, NULL, 0, 0), KVANT_INVALID);
  REFUSED(kvant_tensors_read("/nonexistent/x.safetensors", NULL), KVANT_INVALID);
  REFUSED(kvant_runner_score(NULL, NULL, 1), KVANT_INVALID);
  REFUSED(kvant_source_new(NULL, NULL, 0, NULL, NULL, NULL), KVANT_INVALID);
  runner = Runner(model, 1, 32);
  kvant_sequence sequence = -1;
  OK(kvant_sequence_new(runner, &sequence));
  REFUSED(kvant_sequence_append(runner, sequence, NULL, 4), KVANT_INVALID);
  REFUSED(kvant_sequence_append(runner, sequence, &token, 0), KVANT_INVALID);
  token = 1 << 30;
  REFUSED(kvant_sequence_append(runner, sequence, &token, 1), KVANT_INVALID);
  kvant_token many[40] = {0};
  REFUSED(kvant_sequence_append(runner, sequence, many, 40), KVANT_CONTEXT_FULL);
  CHECK(strlen(kvant_last_error(runner)) > 0 && kvant_sequence_length(runner, sequence) == 0);
  CHECK(kvant_sequence_logits(runner, sequence, NULL) == NULL);
  CHECK(kvant_sequence_length(runner, 12) == -1);
  CHECK(strcmp(kvant_status_name((kvant_status)99), "UNKNOWN") == 0);
  kvant_model_free(NULL);
  kvant_runner_free(NULL);
  kvant_runner_free(runner);
}

// Objects that were made from a model may outlive it.
static void OwnersGoInAnyOrder(const char* path) {
  kvant_model* model = Open(path);
  kvant_runner* runner = Runner(model, 1, 64);
  kvant_sampler* sampler = Greedy(model);
  kvant_tokenizer* tokenizer = NULL;
  kvant_text_stream* stream = NULL;
  kvant_token* prompt = NULL;
  const size_t count = Prompt(model, "KING", &prompt);
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  OK(kvant_text_stream_new(tokenizer, NULL, 0, 0, &stream));
  kvant_model_free(model);
  kvant_sequence sequence = -1;
  kvant_token found[8];
  OK(kvant_sequence_new(runner, &sequence));
  OK(kvant_sequence_append(runner, sequence, prompt, count));
  Generate(runner, sequence, sampler, found, 8);
  kvant_runner_free(runner);
  char* text = NULL;
  size_t size = 0;
  OK(kvant_tokenizer_decode(tokenizer, found, 8, 0, &text, &size));
  CHECK(size > 0 && strlen(text) == size);
  kvant_tokenizer_free(tokenizer);
  char streamed[1024] = "";
  const char* piece = NULL;
  size_t part = 0;
  for (int i = 0; i < 8; ++i) {
    OK(kvant_text_stream_push(stream, found[i], &piece, &part, NULL));
    strncat(streamed, piece, part);
  }
  OK(kvant_text_stream_finish(stream, &piece, &part));
  strncat(streamed, piece, part);
  CHECK(strcmp(streamed, text) == 0);
  kvant_text_stream_free(stream);
  kvant_sampler_free(sampler);
  kvant_free(text);
  kvant_free(prompt);
}

// Keeps an answer as it comes.
typedef struct Told {
  char text[1000];
  kvant_conversation* talk;
  int64_t prompt;
  int32_t pieces_max;
} Told;

static int32_t TakePiece(void* user, int32_t part, const char* piece, size_t size) {
  Told* told = (Told*)user;
  CHECK(part == KVANT_PART_CONTENT);
  strncat(told->text, piece, size);
  // The conversation is in this call.
  REFUSED(kvant_conversation_reset(told->talk), KVANT_INVALID);
  return --told->pieces_max <= 0;
}

static int32_t TakePrompt(void* user, int64_t done, int64_t total) {
  Told* told = (Told*)user;
  CHECK(done > told->prompt && done < total);
  told->prompt = done;
  return 0;
}

typedef struct Calls {
  char arguments[2000];  // of the last call
  int64_t begun, ended, pieces;
} Calls;

static int32_t TakeCall(void* user, const kvant_call_event* event) {
  Calls* calls = (Calls*)user;
  CHECK(event->struct_size == sizeof *event);
  if (event->kind == KVANT_CALL_BEGIN) {
    CHECK(event->call == calls->begun && calls->ended == calls->begun);
    CHECK(event->size == 5 && memcmp(event->text, "order", 5) == 0 && event->id != NULL);
    calls->arguments[0] = 0;
    ++calls->begun;
  } else if (event->kind == KVANT_CALL_ARGUMENTS) {
    CHECK(event->call == calls->begun - 1 && event->size > 0);
    strncat(calls->arguments, event->text, event->size);
    ++calls->pieces;
  } else {
    CHECK(event->kind == KVANT_CALL_END && event->is_complete == 1);
    ++calls->ended;
  }
  return calls->ended == 1;  // one call is enough
}

// A call comes in pieces, which are the arguments of the message.
static void CallsComeInPieces(const kvant_model* model) {
  kvant_template* chatml = NULL;
  OK(kvant_template_named(model, "chatml", &chatml));
  kvant_runner_options session;
  kvant_conversation_options options;
  kvant_template_options render;
  OK(kvant_runner_options_default(&session, sizeof session));
  OK(kvant_conversation_options_default(&options, sizeof options));
  OK(kvant_template_options_default(&render, sizeof render));
  session.context = 1024;
  session.threads = 1;
  render.tools =
      "[{\"type\": \"function\", \"function\": {\"name\": \"order\", \"parameters\": {\"type\": "
      "\"object\", \"required\": [\"size\"], \"additionalProperties\": false, \"properties\": "
      "{\"size\": {\"enum\": [\"small\", \"large\"]}}}}}]";
  options.render = &render;
  options.tool_choice = "required";
  kvant_conversation* talk = NULL;
  OK(kvant_conversation_open(model, &session, chatml, &options, &talk));
  kvant_template_free(chatml);
  Calls calls = {.begun = 0};
  const kvant_answer_sink sink = {sizeof sink, NULL, NULL, &calls, TakeCall};
  OK(kvant_conversation_add_user(talk, "A coffee.", 9));
  OK(kvant_conversation_answer(talk, &sink, NULL));
  CHECK(calls.begun == 1 && calls.ended == 1 && calls.pieces > 1);
  CHECK(strstr(calls.arguments, "small\"") != NULL || strstr(calls.arguments, "large\"") != NULL);
  char* messages = NULL;
  OK(kvant_conversation_messages(talk, &messages, NULL));
  CHECK(strstr(messages, "\"tool_calls\"") != NULL);
  kvant_free(messages);
  // Beside tools there is no grammar, unless no tool is called.
  kvant_tokenizer* tokenizer = NULL;
  kvant_grammar* grammar = NULL;
  kvant_grammar_options text;
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  OK(kvant_grammar_options_default(&text, sizeof text));
  const char* patterns[] = {"[a-z]+1"};
  text.text = "root ::= [a-z]+ [0-9]+";
  text.text_size = strlen(text.text);
  text.trigger_patterns = patterns;
  text.trigger_pattern_count = 1;
  OK(kvant_grammar_new(tokenizer, &text, &grammar));
  REFUSED(kvant_conversation_set_grammar(talk, grammar), KVANT_INVALID);
  OK(kvant_conversation_set_tool_choice(talk, "none"));
  OK(kvant_conversation_set_grammar(talk, grammar));
  REFUSED(kvant_conversation_set_tool_choice(talk, "auto"), KVANT_INVALID);
  kvant_grammar_free(grammar);
  kvant_tokenizer_free(tokenizer);
  kvant_conversation_free(talk);
}

static void ConversationsGoOn(const kvant_model* model, const char* folder) {
  kvant_template* chatml = NULL;
  OK(kvant_template_named(model, "chatml", &chatml));
  kvant_runner_options session;
  kvant_conversation_options options;
  kvant_sampling_options sampling;
  OK(kvant_runner_options_default(&session, sizeof session));
  OK(kvant_conversation_options_default(&options, sizeof options));
  OK(kvant_sampling_options_default(&sampling, sizeof sampling));
  session.context = 512;
  session.threads = 1;
  session.kv_check = 1;
  sampling.temperature = 0;
  options.sampling = &sampling;
  options.max_tokens = 12;
  kvant_conversation* talk = NULL;
  OK(kvant_conversation_open(model, &session, chatml, &options, &talk));
  kvant_template_free(chatml);
  Told told = {.talk = talk, .pieces_max = 1000};
  const kvant_answer_sink sink = {sizeof sink, TakePiece, TakePrompt, &told, NULL};
  kvant_answer_report report = {.struct_size = sizeof report};
  OK(kvant_conversation_set_system(talk, "Be brief.", 9));
  OK(kvant_conversation_add_user(talk, "Who is there?", 13));
  OK(kvant_conversation_answer(talk, &sink, &report));
  CHECK(report.generated_tokens == 12 && report.finish_reason == KVANT_FINISH_LENGTH);
  CHECK(told.prompt == report.processed_tokens - 1 && report.reused_tokens == 0);
  char* messages = NULL;
  size_t size = 0;
  OK(kvant_conversation_messages(talk, &messages, &size));
  CHECK(size == strlen(messages) && strstr(messages, "{\"role\":\"system\"") == messages + 1);
  // A fork answers as its origin, and computes only what is new, also after both were moved.
  kvant_conversation* fork = NULL;
  OK(kvant_conversation_fork(talk, NULL, &fork));
  char* answers[2] = {NULL, NULL};
  kvant_conversation* both[] = {talk, fork};
  for (int i = 0; i < 2; ++i) {
    OK(kvant_conversation_add_user(both[i], "Speak.", 6));
    OK(kvant_conversation_answer(both[i], NULL, &report));
    CHECK(report.reused_tokens > report.processed_tokens);
    OK(kvant_conversation_messages(both[i], &answers[i], NULL));
  }
  CHECK(strcmp(answers[0], answers[1]) == 0);
  // Going back, files.
  OK(kvant_conversation_drop_answer(fork));
  OK(kvant_conversation_answer(fork, NULL, &report));
  CHECK(report.processed_tokens == 1);
  char* said = NULL;
  OK(kvant_conversation_undo(fork, &said, NULL));
  CHECK(strcmp(said, "Speak.") == 0);
  char path[1000];
  snprintf(path, sizeof path, "%s/capi_test.chat", folder);
  char* note = NULL;
  OK(kvant_conversation_save(talk, path, &note));
  CHECK(note[0] == 0);
  kvant_free(note);
  OK(kvant_conversation_load(fork, path, &note));
  CHECK(note[0] == 0);
  kvant_conversation_info info = {.struct_size = sizeof info};
  OK(kvant_conversation_get_info(fork, &info));
  CHECK(info.messages == 4 && info.context == 512 && info.held_tokens > 24 && info.forgotten == 0);
  remove(path);
  strncat(path, ".kvs", sizeof path - strlen(path) - 1);
  remove(path);
  // The fork goes on alone; a piece too many and a cancellation end answers.
  kvant_conversation_free(talk);
  told = (Told){.talk = fork, .pieces_max = 2};
  OK(kvant_conversation_edit(fork, "Go on.", 6));
  OK(kvant_conversation_answer(fork, &sink, &report));
  CHECK(report.finish_reason == KVANT_FINISH_CANCELLED && report.generated_tokens < 12);
  OK(kvant_conversation_drop_answer(fork));
  kvant_conversation_cancel(fork);
  OK(kvant_conversation_answer(fork, NULL, &report));
  CHECK(report.finish_reason == KVANT_FINISH_CANCELLED && report.generated_tokens == 0);
  OK(kvant_conversation_set_beams(fork, 2));
  OK(kvant_conversation_answer(fork, NULL, &report));
  CHECK(report.generated_tokens == 12);
  int64_t forgotten = -1;
  OK(kvant_conversation_forget(fork, &forgotten));
  CHECK(forgotten == 2);
  OK(kvant_conversation_reset(fork));
  kvant_conversation_free(fork);
  kvant_free(messages);
  kvant_free(answers[0]);
  kvant_free(answers[1]);
  kvant_free(note);
  kvant_free(said);
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: capi_test DECODER.gguf ENCODER_DECODER.gguf FOLDER [STEPS]\n");
    return 2;
  }
  CHECK(kvant_abi_version() == KVANT_ABI_VERSION);
  CHECK(strlen(kvant_version()) > 0);
  kvant_model* model = Open(argv[1]);
  kvant_model* pairs = Open(argv[2]);
  size_t keys = 0;
  while (kvant_model_metadata_key(model, keys) != NULL) ++keys;
  CHECK(keys > 5);
  AppendGenerateRewind(model);
  SnapshotsFilesAndTensors(model, argv[3]);
  BatchesAreSingleTexts(model);
  SearchesInBothForms(model);
  TextsFollowGrammars(model);
  ScoresAreLogProbabilities(model);
  ConversationsGoOn(model, argv[3]);
  CallsComeInPieces(model);
  SourcesAreReadOnce(pairs);
  ThreadsAndCancellation(model);
  InterruptsEndCalls(model, argv[1]);
  ConfigurationOverlay(model);
  OpeningTellsItsProgress(argv[1]);
  WrongArguments(model);
  OwnersGoInAnyOrder(argv[1]);
  StepsDoNotGrow(pairs, argc > 4 ? atol(argv[4]) : 100000);
  kvant_model_free(pairs);
  kvant_model_free(model);
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
