// Bad arguments of every call of the C API: each is refused with its status and a reason, nothing
// is made or changed, and nothing crashes. exports.sh makes sure that every exported call is here.
//
// Usage: bad_arguments MODEL.gguf ENCODER_DECODER.gguf; prints what was not refused.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "kvant/kvant.h"

#define BAD(call)                                                               \
  do {                                                                          \
    kvant_status bad_status = (call);                                           \
    ++checks;                                                                   \
    if (bad_status == KVANT_OK || bad_status == KVANT_INTERNAL ||               \
        kvant_last_error(NULL)[0] == 0) {                                       \
      ++failures;                                                               \
      fprintf(stderr, "%s:%d: %s: found %s: '%s'\n", __FILE__, __LINE__, #call, \
              kvant_status_name(bad_status), kvant_last_error(NULL));           \
    }                                                                           \
  } while (0)
// With a part of the reason.
#define BAD_FOR(call, reason)                                                                      \
  do {                                                                                             \
    BAD(call);                                                                                     \
    if (strstr(kvant_last_error(NULL), reason) == NULL) {                                          \
      ++failures;                                                                                  \
      fprintf(stderr, "%s:%d: %s: expected '%s', found '%s'\n", __FILE__, __LINE__, #call, reason, \
              kvant_last_error(NULL));                                                             \
    }                                                                                              \
  } while (0)

enum { kVocab = 4096, kFar = 1 << 30 };

static const kvant_token kWrong[] = {5, kFar};
static const kvant_token kGood[] = {2, 5, 6};

static void General(void) {
  CHECK(kvant_abi_version() == KVANT_ABI_VERSION);
  CHECK(strlen(kvant_version()) > 0);
  CHECK(strcmp(kvant_status_name((kvant_status)-1), "UNKNOWN") == 0);
  CHECK(kvant_last_error(&failures)[0] == 0);  // an address that is no handle
  kvant_free(NULL);
  kvant_set_log(NULL, NULL);
  kvant_set_interrupt(NULL, NULL);
}

static void Models(const char* path) {
  kvant_model* model = NULL;
  kvant_model_options options;
  kvant_model_info info;
  char* json = NULL;
  size_t size = 0;
  BAD(kvant_model_options_default(NULL, sizeof options));
  BAD(kvant_model_options_default(&options, 3));
  OK(kvant_model_options_default(&options, sizeof options));
  options.isa = "z80";
  BAD_FOR(kvant_model_open(path, &options, &model), "z80");
  options.isa = NULL;
  options.float_gemm = "none such";
  BAD_FOR(kvant_model_open(path, &options, &model), "none such");
  options.float_gemm = NULL;
  options.ignore_keys = "vocab_size,,block_count";  // a key that is read
  BAD_FOR(kvant_model_open(path, &options, &model), "--ignore-keys block_count");
  options.ignore_keys = "vocab_size";
  options.struct_size = 1;
  BAD(kvant_model_open(path, &options, &model));
  BAD(kvant_model_open("/", NULL, &model));
  BAD(kvant_model_open(path, NULL, NULL));
  CHECK(model == NULL);
  OK(kvant_model_open(path, NULL, &model));
  BAD(kvant_model_get_info(NULL, &info));
  info.struct_size = 2;
  BAD(kvant_model_get_info(model, &info));
  CHECK(kvant_model_metadata_key(NULL, 0) == NULL);
  CHECK(kvant_model_metadata_key(model, 1u << 20) == NULL);
  BAD_FOR(kvant_model_metadata(model, "no.such.key", &json, &size), "no.such.key");
  BAD(kvant_model_metadata(model, NULL, &json, &size));
  BAD(kvant_model_metadata(model, "general.architecture", NULL, &size));
  kvant_model_free(model);
  kvant_model_free(NULL);
}

static void Tokenizers(const kvant_model* model, const char* path) {
  kvant_tokenizer* tokenizer = NULL;
  kvant_tokenizer_info info;
  kvant_text_stream* stream = NULL;
  kvant_token* tokens = NULL;
  char* text = NULL;
  const char* piece = NULL;
  size_t count = 0;
  kvant_stream_state state = KVANT_STREAM_OPEN;
  BAD(kvant_tokenizer_of_model(NULL, &tokenizer));
  BAD(kvant_tokenizer_of_model(model, NULL));
  BAD_FOR(kvant_tokenizer_open("/nonexistent", &tokenizer), "/nonexistent");
  BAD(kvant_tokenizer_open(NULL, &tokenizer));
  BAD(kvant_tokenizer_open(path, NULL));
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  BAD(kvant_tokenizer_get_info(NULL, &info));
  BAD(kvant_tokenizer_get_info(tokenizer, NULL));
  BAD(kvant_tokenizer_encode(NULL, "a", 1, 0, &tokens, &count));
  BAD(kvant_tokenizer_encode(tokenizer, NULL, 1, 0, &tokens, &count));
  BAD(kvant_tokenizer_encode(tokenizer, "a", 1, 0, NULL, &count));
  BAD(kvant_tokenizer_encode(tokenizer, "a", 1, 0, &tokens, NULL));
  BAD(kvant_tokenizer_prompt(NULL, "a", 1, &tokens, &count));
  BAD(kvant_tokenizer_prompt(tokenizer, NULL, 1, &tokens, &count));
  BAD(kvant_tokenizer_decode(NULL, kGood, 3, 0, &text, &count));
  BAD(kvant_tokenizer_decode(tokenizer, NULL, 3, 0, &text, &count));
  BAD(kvant_tokenizer_decode(tokenizer, kWrong, 2, 0, &text, &count));
  BAD(kvant_tokenizer_token_bytes(NULL, 5, 0, &text, &count));
  BAD(kvant_tokenizer_token_bytes(tokenizer, -1, 0, &text, &count));
  CHECK(kvant_tokenizer_piece(NULL, 5, &count) == NULL);
  CHECK(kvant_tokenizer_piece(tokenizer, kFar, &count) == NULL);
  CHECK(kvant_tokenizer_flags(NULL, 5) == 0);
  CHECK(kvant_tokenizer_flags(tokenizer, -7) == 0);
  const char* none[] = {NULL};
  BAD(kvant_text_stream_new(NULL, NULL, 0, 0, &stream));
  BAD(kvant_text_stream_new(tokenizer, NULL, 2, 0, &stream));
  BAD(kvant_text_stream_new(tokenizer, none, 1, 0, &stream));
  BAD(kvant_text_stream_new(tokenizer, NULL, 0, 0, NULL));
  OK(kvant_text_stream_new(tokenizer, NULL, 0, 0, &stream));
  BAD(kvant_text_stream_push(NULL, 5, &piece, &count, &state));
  BAD(kvant_text_stream_push(stream, -5, &piece, &count, &state));
  BAD(kvant_text_stream_push(stream, 5, NULL, &count, &state));
  BAD(kvant_text_stream_finish(NULL, &piece, &count));
  BAD(kvant_text_stream_finish(stream, NULL, &count));
  kvant_text_stream_free(stream);
  kvant_text_stream_free(NULL);
  kvant_tokenizer_free(tokenizer);
  kvant_tokenizer_free(NULL);
}

static void Templates(const kvant_model* model) {
  kvant_template* made = NULL;
  kvant_template_options options;
  kvant_token* tokens = NULL;
  char* text = NULL;
  size_t count = 0;
  BAD(kvant_template_options_default(NULL, sizeof options));
  BAD(kvant_template_of_model(NULL, &made));
  BAD(kvant_template_named(model, "no such template", &made));
  BAD(kvant_template_named(model, NULL, &made));
  BAD(kvant_template_parse(model, "mine", "{% if %}", 8, &made));
  BAD(kvant_template_parse(model, "mine", NULL, 8, &made));
  CHECK(made == NULL);
  OK(kvant_template_parse(model, "mine", "{{ messages }}", 14, &made));
  BAD(kvant_template_render(NULL, "[]", 2, NULL, &text, &count));
  BAD(kvant_template_render(made, "[{", 2, NULL, &text, &count));
  BAD(kvant_template_render(made, NULL, 2, NULL, &text, &count));
  BAD(kvant_template_render(made, "[]", 2, NULL, NULL, &count));
  OK(kvant_template_options_default(&options, sizeof options));
  options.variables = "[1";
  BAD(kvant_template_render(made, "[]", 2, &options, &text, &count));
  options.variables = NULL;
  options.tools = "{}}";
  BAD(kvant_template_tokens(made, "[]", 2, &options, &tokens, &count));
  BAD(kvant_template_tokens(NULL, "[]", 2, NULL, &tokens, &count));
  kvant_template_free(made);
  kvant_template_free(NULL);
}

static void Samplers(const kvant_model* model) {
  kvant_sampler* sampler = NULL;
  kvant_sampler* copy = NULL;
  kvant_sampling_options options;
  kvant_token token = 0;
  float logits[8] = {0};
  BAD(kvant_sampling_options_default(NULL, sizeof options));
  BAD(kvant_sampling_options_of_model(NULL, &options, sizeof options));
  BAD(kvant_sampling_options_of_model(model, NULL, sizeof options));
  BAD(kvant_sampling_options_of_model(model, &options, 1));
  BAD(kvant_sampler_new(NULL, 0, NULL, &sampler));
  BAD(kvant_sampler_new(NULL, 8, NULL, NULL));
  OK(kvant_sampling_options_default(&options, sizeof options));
  options.samplers = "top_z";
  BAD_FOR(kvant_sampler_new(NULL, 8, &options, &sampler), "top_z");
  options.samplers = NULL;
  options.top_p = -2;
  BAD(kvant_sampler_new(NULL, 8, &options, &sampler));
  options.top_p = 1;
  options.logit_bias_count = 1;
  BAD(kvant_sampler_new(NULL, 8, &options, &sampler));
  CHECK(sampler == NULL);
  OK(kvant_sampler_new(NULL, 8, NULL, &sampler));
  BAD(kvant_sampler_clone(NULL, &copy));
  BAD(kvant_sampler_clone(sampler, NULL));
  BAD(kvant_sampler_sample(sampler, NULL, 8, &token));
  BAD(kvant_sampler_sample(sampler, logits, 3, &token));
  BAD(kvant_sampler_sample(sampler, logits, 8, NULL));
  for (int i = 0; i < 8; ++i) logits[i] = NAN;
  BAD(kvant_sampler_sample(sampler, logits, 8, &token));
  BAD(kvant_sampler_accept(NULL, kGood, 3));
  BAD(kvant_sampler_accept(sampler, NULL, 3));
  BAD(kvant_sampler_forbid(NULL, 1));
  BAD(kvant_sampler_forbid(sampler, kFar));
  CHECK(kvant_sampler_seed(NULL) == 0);
  kvant_sampler_free(sampler);
  kvant_sampler_free(NULL);
}

static void Grammars(const kvant_model* model) {
  kvant_tokenizer* tokenizer = NULL;
  kvant_grammar* grammar = NULL;
  kvant_sampler* sampler = NULL;
  kvant_grammar_options options;
  const char* choices[] = {"yes", NULL};
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  BAD(kvant_grammar_options_default(NULL, sizeof options));
  OK(kvant_grammar_options_default(&options, sizeof options));
  BAD(kvant_grammar_new(tokenizer, NULL, &grammar));
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "root");  // no text
  options.text = "root ::= \"a";
  options.text_size = strlen(options.text);
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "line 1");
  options.kind = 9;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "kind");
  options.kind = KVANT_GRAMMAR_CHOICES;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "choices");
  options.choices = choices;
  options.choice_count = 2;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "choices");
  options.choice_count = 1;
  options.trigger_word_count = 1;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "trigger_words");
  options.trigger_words = &choices[1];
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "trigger_words");
  options.trigger_word_count = 0;
  options.trigger_tokens = kWrong;
  options.trigger_token_count = 2;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "triggers");
  options.trigger_token_count = 0;
  options.trigger_pattern_count = 1;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "trigger_patterns");
  const char* patterns[] = {"(", NULL};
  options.trigger_patterns = patterns;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "triggers: '('");
  options.trigger_pattern_count = 0;
  options.trigger_full_pattern_count = 2;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "trigger_full_patterns");
  options.trigger_full_patterns = patterns;
  BAD_FOR(kvant_grammar_new(tokenizer, &options, &grammar), "trigger_full_patterns");
  options.trigger_full_pattern_count = 0;
  options.struct_size = 3;
  BAD(kvant_grammar_new(tokenizer, &options, &grammar));
  options.struct_size = sizeof options;
  BAD(kvant_grammar_new(NULL, &options, &grammar));
  BAD(kvant_grammar_new(tokenizer, &options, NULL));
  CHECK(grammar == NULL);
  OK(kvant_grammar_new(tokenizer, &options, &grammar));
  OK(kvant_sampler_new(NULL, 8, NULL, &sampler));
  BAD_FOR(kvant_sampler_set_grammar(sampler, grammar), "expected logits of");
  BAD(kvant_sampler_set_grammar(NULL, grammar));
  kvant_sampler_free(sampler);
  kvant_grammar_free(grammar);
  kvant_grammar_free(NULL);
  kvant_tokenizer_free(tokenizer);
}

static kvant_runner* Runner(const kvant_model* model, int64_t sequences) {
  kvant_runner_options options;
  kvant_runner* runner = NULL;
  OK(kvant_runner_options_default(&options, sizeof options));
  options.context = 32;
  options.sequences = sequences;
  OK(kvant_runner_new(model, &options, &runner));
  return runner;
}

static void Runners(const kvant_model* model) {
  kvant_runner_options options;
  kvant_memory_plan plan = {.struct_size = sizeof plan};
  kvant_runner_stats stats = {.struct_size = 1};
  kvant_runner* runner = NULL;
  BAD(kvant_runner_options_default(NULL, sizeof options));
  OK(kvant_runner_options_default(&options, sizeof options));
  options.context = -4;
  BAD(kvant_plan_memory(model, &options, &plan));
  BAD(kvant_plan_memory(NULL, NULL, &plan));
  BAD(kvant_plan_memory(model, NULL, NULL));
  options.context = 0;
  options.threads = -1;
  BAD(kvant_runner_new(model, &options, &runner));
  CHECK(runner == NULL);
  options.threads = 0;
  options.pin = KVANT_PIN_LIST + 1;
  BAD(kvant_runner_new(model, &options, &runner));
  options.pin = KVANT_PIN_LIST;
  BAD(kvant_runner_new(model, &options, &runner));
  options.cpu_count = 1;
  BAD(kvant_runner_new(model, &options, &runner));
  const int32_t no_cpu = -1;
  options.cpus = &no_cpu;
  BAD(kvant_runner_new(model, &options, &runner));
  options.pin = KVANT_PIN_NONE;
  options.numa = -1;
  BAD(kvant_runner_new(model, &options, &runner));
  CHECK(runner == NULL);
  runner = Runner(model, 1);
  BAD(kvant_runner_get_options(NULL, &options));
  BAD(kvant_runner_get_options(runner, NULL));
  BAD(kvant_runner_get_stats(NULL, &stats));
  BAD(kvant_runner_get_stats(runner, &stats));
  BAD(kvant_runner_set_kv_log(NULL, NULL, NULL));
  BAD(kvant_runner_check(NULL));
  kvant_runner_cancel(NULL);
  kvant_runner_resume(NULL);
  kvant_runner_free(runner);
  kvant_runner_free(NULL);
}

static int32_t Nothing(void* user, size_t prompt, int64_t generated) {
  (void)user, (void)prompt, (void)generated;
  return 0;
}

static void Ignore(void* user, size_t prompt, size_t rank, const kvant_hypothesis* hypothesis) {
  (void)user, (void)prompt, (void)rank, (void)hypothesis;
}

static void Sequences(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 2);
  kvant_sequence sequence = -1, other = -1;
  kvant_sampler* sampler = NULL;
  kvant_token token = 0;
  int64_t reused = 0;
  float row[4];
  size_t count = 0;
  const int32_t parents[] = {9};
  OK(kvant_sampler_new(NULL, 8, NULL, &sampler));  // of another vocabulary
  BAD(kvant_sequence_new(runner, NULL));
  OK(kvant_sequence_new(runner, &sequence));
  BAD(kvant_sequence_free(runner, 7));
  BAD(kvant_sequence_reset(runner, -1));
  CHECK(kvant_sequence_length(NULL, 0) == -1);
  CHECK(kvant_sequence_tokens(NULL, 0, &count) == NULL);
  CHECK(kvant_sequence_tokens(runner, 9, &count) == NULL);
  CHECK(kvant_sequence_logits(NULL, 0, &count) == NULL);
  BAD(kvant_sequence_copy_logits(runner, sequence, row, 4));
  BAD(kvant_sequence_compute_logits(runner, sequence));
  BAD(kvant_sequence_append(runner, 9, kGood, 3));
  BAD(kvant_sequence_append(runner, sequence, kWrong, 2));
  BAD(kvant_sequence_append_telling(runner, sequence, kWrong, 2, NULL, NULL));
  BAD(kvant_sequence_generate(runner, sequence, sampler, &token));
  OK(kvant_sequence_append(runner, sequence, kGood, 3));
  BAD(kvant_sequence_copy_logits(runner, sequence, row, 4));
  BAD(kvant_sequence_copy_logits(runner, sequence, NULL, kVocab));
  BAD(kvant_sequence_generate(runner, sequence, sampler, &token));
  BAD(kvant_sequence_generate(runner, sequence, NULL, &token));
  BAD(kvant_sequence_generate(runner, sequence, sampler, NULL));
  BAD(kvant_sequence_reuse_prefix(runner, sequence, kWrong, 2, &reused));
  BAD(kvant_sequence_reuse_prefix(runner, sequence, kGood, 3, NULL));
  BAD(kvant_sequence_fork(runner, 9, &other));
  BAD(kvant_sequence_fork(runner, sequence, NULL));
  BAD(kvant_sequence_reorder(runner, &sequence, parents, 1));
  BAD(kvant_sequence_reorder(runner, NULL, parents, 1));
  BAD(kvant_sequence_rewind(runner, sequence, 4, 1));
  BAD(kvant_sequence_rewind(runner, sequence, -1, 1));
  BAD(kvant_sequence_prune(runner, sequence, -1, 1, 1));
  kvant_step_input input = {sequence, 7, kGood, 1};
  BAD(kvant_runner_step(runner, &input, 1, NULL, NULL));
  input.logits = KVANT_LOGITS_LAST;
  input.tokens = NULL;
  BAD(kvant_runner_step(runner, &input, 1, NULL, NULL));
  BAD(kvant_runner_step(runner, NULL, 1, NULL, NULL));
  kvant_score_text text = {.tokens = kGood, .count = 3, .first = 0};
  BAD(kvant_runner_score(runner, &text, 1));
  text.first = 9;
  BAD(kvant_runner_score(runner, &text, 1));
  text.first = 1;
  text.tokens = NULL;
  BAD(kvant_runner_score(runner, &text, 1));
  CHECK(kvant_sequence_length(runner, sequence) == 3);
  CHECK(kvant_runner_check(runner) == KVANT_OK);

  kvant_snapshot snapshot = -1;
  BAD(kvant_snapshot_take(runner, 9, &snapshot));
  BAD(kvant_snapshot_take(runner, sequence, NULL));
  BAD(kvant_snapshot_restore(runner, sequence, 9));
  BAD(kvant_snapshot_drop(runner, 9));
  kvant_sequence* loaded = NULL;
  BAD(kvant_runner_save(runner, "/nonexistent/x", &sequence, 1));
  BAD(kvant_runner_save(runner, NULL, &sequence, 1));
  BAD(kvant_runner_save(runner, "/tmp/x", NULL, 1));
  BAD(kvant_runner_load(runner, "/nonexistent/x", &loaded, &count));
  BAD(kvant_runner_load(runner, "/dev/null", &loaded, &count));
  BAD(kvant_runner_load(runner, "/nonexistent/x", NULL, &count));
  CHECK(loaded == NULL);

  kvant_token first = -1;
  const float embedding[256] = {0};
  BAD_FOR(kvant_runner_add_rows(runner, embedding, 255, &first), "256");
  BAD(kvant_runner_add_rows(runner, embedding, 0, &first));
  BAD(kvant_runner_add_rows(runner, NULL, 256, &first));
  BAD(kvant_runner_add_rows(runner, embedding, 256, NULL));
  BAD(kvant_runner_free_rows(runner, 5));
  OK(kvant_runner_add_rows(runner, embedding, 256, &first));
  OK(kvant_runner_free_rows(runner, first));
  BAD(kvant_runner_free_rows(runner, first));
  BAD(kvant_sequence_append(runner, sequence, &first, 1));

  kvant_source source = -1;
  const float frames[2] = {0, 1};
  BAD(kvant_source_new(runner, kGood, 3, NULL, NULL, &source));  // it has no encoder
  BAD(kvant_source_new_of_frames(runner, frames, 2, NULL, NULL, &source));
  BAD(kvant_source_free(runner, 3));
  BAD(kvant_sequence_new_of_source(runner, 3, &other));
  BAD(kvant_sequence_set_source(runner, sequence, 3));
  kvant_sampler_free(sampler);
  kvant_runner_free(runner);
}

static void Sources(const char* path) {
  kvant_model* model = NULL;
  kvant_source source = -1;
  kvant_sequence sequence = -1;
  OK(kvant_model_open(path, NULL, &model));
  kvant_runner* runner = Runner(model, 1);
  BAD(kvant_source_new(runner, kWrong, 2, NULL, NULL, &source));
  BAD(kvant_source_new(runner, NULL, 2, NULL, NULL, &source));
  BAD(kvant_source_new(runner, kGood, 0, NULL, NULL, &source));
  BAD(kvant_source_new(runner, kGood, 3, NULL, NULL, NULL));
  const float frames[2] = {0, 1};
  BAD_FOR(kvant_source_new_of_frames(runner, frames, 2, NULL, NULL, &source), "tokens");
  BAD(kvant_source_new_of_frames(runner, NULL, 2, NULL, NULL, &source));
  OK(kvant_source_new(runner, kGood, 3, NULL, NULL, &source));
  OK(kvant_sequence_new(runner, &sequence));
  BAD_FOR(kvant_sequence_append(runner, sequence, kGood, 1), "source");
  BAD(kvant_sequence_new_of_source(runner, source, NULL));
  BAD(kvant_sequence_new_of_source(runner, source, &sequence));  // there is one sequence at most
  OK(kvant_source_free(runner, source));
  BAD(kvant_source_free(runner, source));
  kvant_runner_free(runner);
  kvant_model_free(model);
}

static void Tensors(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 2);
  kvant_tensors* tensors = NULL;
  kvant_tensor one = {.struct_size = sizeof one};
  kvant_sequence* made = NULL;
  kvant_sequence sequence = -1;
  size_t count = 0;
  const int64_t shape[] = {1, 2, 3, 64};
  const int64_t huge[] = {INT64_MAX, 2, 3, 64};
  const float values[4] = {0};
  OK(kvant_sequence_new(runner, &sequence));
  BAD(kvant_tensors_export(runner, &sequence, 0, KVANT_BHSD, &tensors));
  BAD(kvant_tensors_export(runner, &sequence, 1, (kvant_kv_layout)9, &tensors));
  BAD(kvant_tensors_export(runner, NULL, 1, KVANT_BHSD, &tensors));
  BAD(kvant_tensors_new(NULL, 1, 3, &tensors));
  BAD(kvant_tensors_new(kGood, SIZE_MAX, 3, &tensors));
  BAD(kvant_tensors_new(kGood, 1, 3, NULL));
  CHECK(tensors == NULL);
  OK(kvant_tensors_new(kGood, 1, 3, &tensors));
  BAD(kvant_tensors_add(NULL, "x", shape, 4, values));
  BAD(kvant_tensors_add(tensors, NULL, shape, 4, values));
  BAD(kvant_tensors_add(tensors, "x", NULL, 4, values));
  BAD(kvant_tensors_add(tensors, "x", huge, 4, values));
  BAD(kvant_tensors_add(tensors, "x", shape, 4, NULL));
  BAD(kvant_tensors_import(runner, tensors, KVANT_BHSD, &made, &count));  // there are none
  BAD(kvant_tensors_import(runner, NULL, KVANT_BHSD, &made, &count));
  BAD(kvant_tensors_import(runner, tensors, KVANT_BHSD, NULL, &count));
  CHECK(kvant_tensors_count(NULL) == 0);
  BAD(kvant_tensors_get(tensors, 0, &one));
  BAD(kvant_tensors_get(tensors, 0, NULL));
  CHECK(kvant_tensors_tokens(tensors, 1, &count) == NULL);
  CHECK(kvant_tensors_tokens(NULL, 0, &count) == NULL);
  BAD(kvant_tensors_write(NULL, "/tmp/x"));
  BAD(kvant_tensors_write(tensors, "/nonexistent/x"));
  BAD(kvant_tensors_write(tensors, NULL));
  kvant_tensors* read = NULL;
  BAD(kvant_tensors_read("/dev/null", &read));
  BAD(kvant_tensors_read(NULL, &read));
  CHECK(made == NULL && read == NULL);
  kvant_tensors_free(tensors);
  kvant_tensors_free(NULL);
  kvant_runner_free(runner);
}

static void Batches(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 2);
  kvant_tokenizer* tokenizer = NULL;
  kvant_batch* batch = NULL;
  kvant_batch_options options;
  kvant_request request;
  int64_t number = 0;
  size_t texts = 0;
  OK(kvant_tokenizer_of_model(model, &tokenizer));
  BAD(kvant_batch_options_default(NULL, sizeof options));
  BAD(kvant_request_default(NULL, sizeof request));
  BAD(kvant_batch_new(runner, NULL, NULL, &batch));
  BAD(kvant_batch_new(runner, tokenizer, NULL, NULL));
  OK(kvant_batch_options_default(&options, sizeof options));
  options.prompt_slice = -1;
  BAD(kvant_batch_new(runner, tokenizer, &options, &batch));
  CHECK(batch == NULL);
  OK(kvant_batch_new(runner, tokenizer, NULL, &batch));
  BAD(kvant_batch_add(batch, NULL, &number));
  OK(kvant_request_default(&request, sizeof request));
  BAD(kvant_batch_add(NULL, &request, &number));
  BAD(kvant_batch_add(batch, &request, &number));  // no prompt
  request.prompt = kWrong;
  request.prompt_count = 2;
  BAD(kvant_batch_add(batch, &request, &number));
  request.prompt = kGood;
  request.samples = 0;
  BAD(kvant_batch_add(batch, &request, &number));
  request.samples = 1;
  request.sequence = 9;
  BAD(kvant_batch_add(batch, &request, &number));
  request.sequence = -1;
  request.stop_text_count = 1;
  BAD(kvant_batch_add(batch, &request, &number));
  request.stop_text_count = 0;
  request.max_tokens = -9;
  BAD(kvant_batch_add(batch, &request, &number));
  BAD(kvant_batch_cancel(batch, 77));
  BAD(kvant_batch_cancel(NULL, 0));
  BAD(kvant_batch_poll(NULL, &texts));
  BAD(kvant_batch_get_counters(batch, NULL));
  BAD(kvant_batch_get_counters(NULL, NULL));
  BAD(kvant_batch_run(NULL));
  kvant_batch_free(batch);
  kvant_batch_free(NULL);
  kvant_tokenizer_free(tokenizer);
  kvant_runner_free(runner);
}

static void Beams(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 2);
  kvant_beam_search* search = NULL;
  kvant_beam_options options;
  kvant_hypothesis found = {.struct_size = sizeof found};
  kvant_sequence sequence = -1;
  const float row[8] = {0};
  const float* rows[] = {row};
  const float* none[] = {NULL};
  size_t count = 0;
  BAD(kvant_beam_options_default(NULL, sizeof options));
  BAD(kvant_beam_options_of_model(NULL, &options, sizeof options));
  BAD(kvant_beam_options_of_model(model, NULL, sizeof options));
  OK(kvant_beam_options_default(&options, sizeof options));
  BAD(kvant_beam_search_new(0, &options, &search));
  BAD(kvant_beam_search_new(8, &options, NULL));
  options.num_return = options.beams + 1;
  BAD(kvant_beam_search_new(8, &options, &search));
  options.num_return = 1;
  options.scoring = 9;
  BAD_FOR(kvant_beam_search_new(8, &options, &search), "scoring");
  options.scoring = KVANT_BEAM_HF;
  options.early_stopping = -1;
  BAD(kvant_beam_search_new(8, &options, &search));
  options.early_stopping = 0;
  options.end_token_count = 1;
  BAD(kvant_beam_search_new(8, &options, &search));
  options.end_token_count = 0;
  options.bad_word_count = 1;
  BAD(kvant_beam_search_new(8, &options, &search));
  options.bad_word_count = 0;
  CHECK(search == NULL);
  OK(kvant_beam_search_new(8, &options, &search));
  BAD(kvant_beam_search_step(search, rows, 1, 8));  // not started
  BAD(kvant_beam_search_start(NULL, kGood, 3));
  BAD(kvant_beam_search_start(search, NULL, 3));
  OK(kvant_beam_search_start(search, kGood, 3));
  BAD(kvant_beam_search_step(search, rows, 2, 8));
  BAD(kvant_beam_search_step(search, rows, 1, 7));
  BAD(kvant_beam_search_step(search, none, 1, 8));
  OK(kvant_sequence_new(runner, &sequence));
  BAD(kvant_beam_search_step_of(search, runner, &sequence, 1));  // without logits
  BAD(kvant_beam_search_step_of(search, NULL, &sequence, 1));
  CHECK(kvant_beam_search_rows(NULL) == 0);
  CHECK(kvant_beam_search_parents(NULL, &count) == NULL);
  CHECK(kvant_beam_search_tokens(NULL, &count) == NULL);
  BAD(kvant_beam_search_results(NULL, &count));
  BAD(kvant_beam_search_results(search, NULL));
  BAD(kvant_beam_search_result(search, 99, &found));
  BAD(kvant_beam_search_live(search, 99, &found));
  BAD(kvant_beam_search_live(search, 0, NULL));
  kvant_beam_prompt prompt = {kWrong, 2, NULL, 0};
  BAD(kvant_runner_search(runner, &prompt, 1, &options, Nothing, Ignore, NULL));
  prompt.tokens = kGood;
  BAD(kvant_runner_search(runner, &prompt, 1, &options, Nothing, NULL, NULL));
  options.beams = 9;
  BAD(kvant_runner_search(runner, &prompt, 1, &options, Nothing, Ignore, NULL));
  BAD(kvant_runner_search(runner, NULL, 1, NULL, Nothing, Ignore, NULL));
  kvant_beam_search_free(search);
  kvant_beam_search_free(NULL);
  kvant_runner_free(runner);
}

static void Conversations(const kvant_model* model) {
  kvant_runner* runner = Runner(model, 1);
  kvant_template* chatml = NULL;
  kvant_conversation* talk = NULL;
  kvant_conversation* other = NULL;
  kvant_conversation_options options;
  kvant_conversation_info info = {.struct_size = sizeof info};
  char* text = NULL;
  OK(kvant_template_named(model, "chatml", &chatml));
  BAD(kvant_conversation_options_default(NULL, sizeof options));
  OK(kvant_conversation_options_default(&options, sizeof options));
  BAD_FOR(kvant_conversation_open(model, NULL, NULL, NULL, &talk), "expected a chat template");
  BAD(kvant_conversation_open(NULL, NULL, chatml, NULL, &talk));
  BAD(kvant_conversation_open(model, NULL, chatml, NULL, NULL));
  BAD(kvant_conversation_new(NULL, chatml, NULL, &talk));
  BAD(kvant_conversation_new(runner, chatml, NULL, NULL));
  options.max_tokens = 0;
  BAD_FOR(kvant_conversation_new(runner, chatml, &options, &talk), "max_tokens");
  options.max_tokens = 4;
  options.beams = 0;
  BAD_FOR(kvant_conversation_new(runner, chatml, &options, &talk), "beams");
  options.beams = 1;
  options.stop_text_count = 1;
  BAD_FOR(kvant_conversation_new(runner, chatml, &options, &talk), "stop_texts");
  options.stop_text_count = 0;
  CHECK(talk == NULL);
  OK(kvant_conversation_new(runner, chatml, &options, &talk));
  BAD(kvant_conversation_new(runner, chatml, &options, &other));  // the runner is full
  BAD(kvant_conversation_fork(talk, NULL, &other));
  BAD(kvant_conversation_fork(talk, NULL, NULL));
  BAD(kvant_conversation_fork(NULL, NULL, &other));
  CHECK(other == NULL);
  BAD(kvant_conversation_get_info(NULL, &info));
  BAD(kvant_conversation_get_info(talk, NULL));
  BAD(kvant_conversation_set_system(NULL, "a", 1));
  BAD(kvant_conversation_set_system(talk, NULL, 1));
  BAD(kvant_conversation_add_user(NULL, "a", 1));
  BAD(kvant_conversation_add_user(talk, NULL, 1));
  BAD(kvant_conversation_add(NULL, "[]", 2));
  BAD(kvant_conversation_add(talk, NULL, 2));
  BAD_FOR(kvant_conversation_add(talk, "{}", 2), "array");
  BAD(kvant_conversation_messages(NULL, &text, NULL));
  BAD(kvant_conversation_messages(talk, NULL, NULL));
  BAD_FOR(kvant_conversation_undo(talk, &text, NULL), "no message");
  BAD(kvant_conversation_undo(NULL, &text, NULL));
  BAD_FOR(kvant_conversation_edit(talk, "a", 1), "no message");
  BAD(kvant_conversation_edit(talk, NULL, 1));
  BAD(kvant_conversation_edit(NULL, "a", 1));
  BAD_FOR(kvant_conversation_drop_answer(talk), "no answer");
  BAD(kvant_conversation_drop_answer(NULL));
  BAD(kvant_conversation_reset(NULL));
  BAD(kvant_conversation_forget(NULL, NULL));
  BAD_FOR(kvant_conversation_set_beams(talk, -1), "beams");
  BAD(kvant_conversation_set_beams(NULL, 2));
  BAD(kvant_conversation_set_grammar(NULL, NULL));
  BAD_FOR(kvant_conversation_set_tool_choice(talk, "required"), "tools");
  BAD(kvant_conversation_set_tool_choice(talk, NULL));
  BAD(kvant_conversation_set_tool_choice(NULL, "auto"));
  kvant_answer_sink sink = {.struct_size = 1};
  kvant_answer_report report = {.struct_size = 1};
  OK(kvant_conversation_add_user(talk, "a", 1));
  BAD(kvant_conversation_answer(NULL, NULL, NULL));
  BAD_FOR(kvant_conversation_answer(talk, &sink, NULL), "struct_size");
  BAD_FOR(kvant_conversation_answer(talk, NULL, &report), "struct_size");
  BAD(kvant_conversation_save(NULL, "/no/file", NULL));
  BAD(kvant_conversation_save(talk, NULL, NULL));
  BAD(kvant_conversation_save(talk, "/no/file", NULL));
  BAD(kvant_conversation_load(NULL, "/no/file", NULL));
  BAD(kvant_conversation_load(talk, NULL, NULL));
  BAD_FOR(kvant_conversation_load(talk, "/no/file", NULL), "no such file");
  kvant_conversation_cancel(NULL);
  kvant_conversation_free(talk);
  kvant_conversation_free(NULL);
  kvant_template_free(chatml);
  kvant_runner_free(runner);
}

static void Overlays(void) {
  kvant_runner_options options;
  OK(kvant_runner_options_default(&options, sizeof options));
  char* unused = NULL;
  BAD(kvant_options_overlay("{}", 2, &options, NULL, NULL, &unused, NULL));
  BAD(kvant_options_overlay(NULL, 2, &options, NULL, NULL, NULL, NULL));
  BAD(kvant_options_overlay("{", 1, &options, NULL, NULL, NULL, NULL));
  BAD(kvant_options_overlay("[]", 2, &options, NULL, NULL, NULL, NULL));
  BAD(kvant_options_overlay("{\"search\":{},\"search\":{}}", 25, NULL, NULL, NULL, NULL, NULL));
  options.struct_size = 2;
  BAD(kvant_options_overlay("{}", 2, &options, NULL, NULL, NULL, NULL));
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: bad_arguments MODEL ENCODER_DECODER\n");
    return 2;
  }
  kvant_model* model = NULL;
  OK(kvant_model_open(argv[1], NULL, &model));
  General();
  Models(argv[1]);
  Tokenizers(model, argv[1]);
  Templates(model);
  Samplers(model);
  Grammars(model);
  Runners(model);
  Sequences(model);
  Sources(argv[2]);
  Tensors(model);
  Batches(model);
  Beams(model);
  Conversations(model);
  Overlays();
  kvant_model_free(model);
  printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
