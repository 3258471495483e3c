// Vectors of texts by the C API, as a program in C99 makes them: ways that lead to the same vector,
// and bad arguments of every call, each of which is refused with its status and a reason.
//
// Usage: embed_test MODEL.gguf; prints what failed.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "kvant/kvant.h"

// The call is refused with this status and a reason that has these words.
#define REFUSED(call, expected, reason)                                                      \
  do {                                                                                       \
    kvant_status refused_status = (call);                                                    \
    ++checks;                                                                                \
    if (refused_status != (expected) || strstr(kvant_last_error(NULL), reason) == NULL) {    \
      ++failures;                                                                            \
      fprintf(stderr, "%s:%d: %s: expected %s, found %s: '%s'\n", __FILE__, __LINE__, #call, \
              kvant_status_name(expected), kvant_status_name(refused_status),                \
              kvant_last_error(NULL));                                                       \
    }                                                                                        \
  } while (0)

static kvant_embed_text TextOf(const char* text) {
  kvant_embed_text out = {0};
  out.text = text;
  out.size = strlen(text);
  return out;
}

static kvant_embed_text TokensOf(const kvant_token* tokens, size_t count) {
  kvant_embed_text out = {0};
  out.tokens = tokens;
  out.count = count;
  return out;
}

static kvant_embedder* New(const kvant_model* model, int32_t pooling, int32_t threads) {
  kvant_embed_options options;
  OK(kvant_embed_options_default(&options, sizeof options));
  CHECK(options.pooling == KVANT_POOLING_OF_FILE && options.batch_tokens > 0);
  options.pooling = pooling;
  options.threads = threads;
  options.context = 128;
  kvant_embedder* embedder = NULL;
  OK(kvant_embedder_new(model, &options, &embedder));
  return embedder;
}

// Vectors of `texts`, which the caller frees; `count` floats.
static float* Embed(kvant_embedder* embedder, const kvant_embed_text* texts, size_t text_count,
                    const kvant_vector_options* options, size_t* count) {
  float* vectors = NULL;
  OK(kvant_embedder_embed(embedder, texts, text_count, options, NULL, &vectors, count));
  return vectors;
}

static void VectorsOfTexts(const kvant_model* model) {
  kvant_embedder* embedder = New(model, KVANT_POOLING_MEAN, 2);
  kvant_embedder* other = New(model, KVANT_POOLING_MEAN, 1);
  kvant_embedder_info info = {.struct_size = sizeof info};
  OK(kvant_embedder_get_info(embedder, &info));
  CHECK(info.pooling == KVANT_POOLING_MEAN && info.threads == 2 && info.context == 128);
  CHECK(info.dim > 0 && info.labels == 0 && info.weight_bytes > 0 && info.activation_bytes > 0);
  CHECK(info.default_prompt[0] == 0);
  const size_t dim = (size_t)info.dim;

  const kvant_embed_text texts[] = {TextOf("To be, or not to be"), TextOf("KING:")};
  size_t count = 0;
  float* both = Embed(embedder, texts, 2, NULL, &count);
  CHECK(count == 2 * dim);
  for (size_t i = 0; i < 2; ++i) {
    double square = 0;
    for (size_t j = 0; j < dim; ++j) square += (double)both[i * dim + j] * both[i * dim + j];
    CHECK(fabs(square - 1) < 1e-5);
    float* alone = Embed(other, &texts[i], 1, NULL, &count);
    CHECK(count == dim && memcmp(alone, both + i * dim, dim * sizeof(float)) == 0);
    kvant_free(alone);
    kvant_token* tokens = NULL;
    OK(kvant_embedder_tokens(embedder, texts[i].text, texts[i].size, NULL, &tokens, &count));
    const kvant_embed_text given = TokensOf(tokens, count);
    float* of_tokens = Embed(embedder, &given, 1, NULL, &count);
    CHECK(memcmp(of_tokens, both + i * dim, dim * sizeof(float)) == 0);
    kvant_free(tokens);
    kvant_free(of_tokens);
  }

  // The first dimensions, whose length is 1 again; and a prefix, which is a part of the text.
  kvant_vector_options options;
  OK(kvant_vector_options_default(&options, sizeof options));
  CHECK(options.normalize == 2 && options.dimensions == 0 && options.truncate == 0);
  options.dimensions = 8;
  float* cut = Embed(embedder, &texts[0], 1, &options, &count);
  double square = 0;
  for (size_t j = 0; j < 8; ++j) square += (double)both[j] * both[j];
  CHECK(count == 8);
  for (size_t j = 0; j < 8; ++j) CHECK(fabs(cut[j] - both[j] / sqrt(square)) < 1e-5);
  kvant_free(cut);
  options.dimensions = 0;
  options.prefix = "To be, ";
  const kvant_embed_text rest = TextOf("or not to be");
  float* prefixed = Embed(embedder, &rest, 1, &options, &count);
  CHECK(memcmp(prefixed, both, dim * sizeof(float)) == 0);
  kvant_free(prefixed);
  kvant_free(both);
  kvant_embedder_free(other);
  kvant_embedder_free(embedder);
}

// Without pooling the mean of a text's rows is what the mean is made of.
static void RowsOfTokens(const kvant_model* model) {
  kvant_embedder* rows_of = New(model, KVANT_POOLING_NONE, 1);
  kvant_embedder* mean_of = New(model, KVANT_POOLING_MEAN, 1);
  kvant_embedder_info info = {.struct_size = sizeof info};
  OK(kvant_embedder_get_info(rows_of, &info));
  const size_t dim = (size_t)info.dim;
  const kvant_embed_text texts[] = {TextOf("a"), TextOf("The quality of mercy")};
  int64_t rows[2] = {0, 0};
  float* all = NULL;
  size_t count = 0;
  OK(kvant_embedder_embed(rows_of, texts, 2, NULL, rows, &all, &count));
  CHECK(rows[0] > 0 && rows[1] > rows[0] && count == (size_t)(rows[0] + rows[1]) * dim);
  kvant_vector_options options;
  OK(kvant_vector_options_default(&options, sizeof options));
  options.normalize = -1;
  float* mean = Embed(mean_of, &texts[1], 1, &options, &count);
  for (size_t j = 0; j < dim; ++j) {
    double sum = 0;
    for (int64_t row = rows[0]; row < rows[0] + rows[1]; ++row) sum += all[(size_t)row * dim + j];
    CHECK(fabs(sum / (double)rows[1] - mean[j]) < 1e-4);
  }
  kvant_free(mean);
  kvant_free(all);
  kvant_embedder_free(mean_of);
  kvant_embedder_free(rows_of);
}

static void LongTextsAndCancellation(const kvant_model* model) {
  kvant_embedder* embedder = New(model, KVANT_POOLING_LAST, 1);
  char text[1200];
  for (size_t i = 0; i + 1 < sizeof text; ++i) text[i] = i % 2 == 0 ? 'x' : ' ';
  text[sizeof text - 1] = 0;
  const kvant_embed_text given = TextOf(text);
  kvant_vector_options options;
  OK(kvant_vector_options_default(&options, sizeof options));
  float* vectors = NULL;
  size_t count = 0;
  REFUSED(kvant_embedder_embed(embedder, &given, 1, &options, NULL, &vectors, &count),
          KVANT_CONTEXT_FULL, "128");
  CHECK(vectors == NULL);
  options.truncate = 1;
  kvant_free(Embed(embedder, &given, 1, &options, &count));
  kvant_embedder_cancel(embedder);
  REFUSED(kvant_embedder_embed(embedder, &given, 1, &options, NULL, &vectors, &count),
          KVANT_CANCELLED, "");
  kvant_free(Embed(embedder, &given, 1, &options, &count));  // each ends one call
  kvant_embedder_free(embedder);
}

static void BadOptions(const kvant_model* model) {
  kvant_embedder* embedder = NULL;
  kvant_embed_options options;
  REFUSED(kvant_embed_options_default(NULL, sizeof options), KVANT_INVALID, "options");
  REFUSED(kvant_embed_options_default(&options, 1), KVANT_INVALID, "size");
  REFUSED(kvant_vector_options_default(NULL, 8), KVANT_INVALID, "options");
  OK(kvant_embed_options_default(&options, sizeof options));
  REFUSED(kvant_embedder_new(NULL, &options, &embedder), KVANT_INVALID, "model");
  REFUSED(kvant_embedder_new(model, &options, NULL), KVANT_INVALID, "embedder");
  REFUSED(kvant_embedder_new(model, NULL, &embedder), KVANT_INVALID, "pooling");
  options.pooling = KVANT_POOLING_RANK;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "classifier");
  options.pooling = 5;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "pooling");
  options.pooling = KVANT_POOLING_CLS;
  options.threads = -1;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "threads");
  options.threads = 1;
  options.context = -1;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "context");
  options.context = 0;
  options.batch_tokens = 0;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "batch");
  options.batch_tokens = 32;
  options.pin = 9;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "pin");
  options.pin = KVANT_PIN_LIST;
  options.cpu_count = 2;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "cpus");
  options.struct_size = 1;
  REFUSED(kvant_embedder_new(model, &options, &embedder), KVANT_INVALID, "struct_size");
  CHECK(embedder == NULL);
}

static void BadTexts(kvant_embedder* embedder) {
  static const kvant_token kGood[] = {2, 5, 6};
  static const kvant_token kFar[] = {5, 1 << 30};
  static const int32_t kTypes[] = {0, 1, 0};
  float* vectors = NULL;
  size_t count = 0;
  kvant_embed_text text = TextOf("a");
  REFUSED(kvant_embedder_embed(NULL, &text, 1, NULL, NULL, &vectors, &count), KVANT_INVALID, "");
  REFUSED(kvant_embedder_embed(embedder, NULL, 1, NULL, NULL, &vectors, &count), KVANT_INVALID,
          "texts");
  REFUSED(kvant_embedder_embed(embedder, &text, 1, NULL, NULL, NULL, &count), KVANT_INVALID,
          "vectors");
  REFUSED(kvant_embedder_embed(embedder, &text, 1, NULL, NULL, &vectors, NULL), KVANT_INVALID,
          "count");
  kvant_embed_text wrong[] = {TextOf("a"), TextOf("")};
  REFUSED(kvant_embedder_embed(embedder, wrong, 2, NULL, NULL, &vectors, &count), KVANT_INVALID,
          "text 1");
  wrong[1].text = NULL;
  wrong[1].size = 3;
  REFUSED(kvant_embedder_embed(embedder, wrong, 2, NULL, NULL, &vectors, &count), KVANT_INVALID,
          "text");
  wrong[1] = TokensOf(kFar, 2);
  REFUSED(kvant_embedder_embed(embedder, wrong, 2, NULL, NULL, &vectors, &count), KVANT_INVALID,
          "text 1");
  wrong[1] = TokensOf(kGood, 0);
  REFUSED(kvant_embedder_embed(embedder, wrong, 2, NULL, NULL, &vectors, &count), KVANT_INVALID,
          "text 1");
  wrong[1] = TokensOf(kGood, 3);
  wrong[1].types = kTypes;
  REFUSED(kvant_embedder_embed(embedder, wrong, 2, NULL, NULL, &vectors, &count), KVANT_INVALID,
          "segments");
  wrong[1].types = NULL;
  wrong[1].text = "a";
  REFUSED(kvant_embedder_embed(embedder, wrong, 2, NULL, NULL, &vectors, &count), KVANT_INVALID,
          "both");

  kvant_vector_options options;
  OK(kvant_vector_options_default(&options, sizeof options));
  options.dimensions = 1 << 20;
  REFUSED(kvant_embedder_embed(embedder, &text, 1, &options, NULL, &vectors, &count), KVANT_INVALID,
          "dimensions");
  options.dimensions = 0;
  options.normalize = NAN;
  REFUSED(kvant_embedder_embed(embedder, &text, 1, &options, NULL, &vectors, &count), KVANT_INVALID,
          "");
  options.normalize = 2;
  options.truncate = 2;
  REFUSED(kvant_embedder_embed(embedder, &text, 1, &options, NULL, &vectors, &count), KVANT_INVALID,
          "truncate");
  options.truncate = 0;
  options.prompt_name = "query";
  REFUSED(kvant_embedder_embed(embedder, &text, 1, &options, NULL, &vectors, &count), KVANT_INVALID,
          "query");
  options.prefix = "";
  REFUSED(kvant_embedder_embed(embedder, &text, 1, &options, NULL, &vectors, &count), KVANT_INVALID,
          "both");
  CHECK(vectors == NULL && count == 0);
  OK(kvant_embedder_embed(embedder, NULL, 0, NULL, NULL, &vectors, &count));
  CHECK(vectors != NULL && count == 0);
  kvant_free(vectors);
}

static void BadCalls(kvant_embedder* embedder) {
  kvant_token* tokens = NULL;
  float* logits = NULL;
  float score = 0;
  size_t count = 0;
  kvant_embedder_info info = {.struct_size = 1};
  REFUSED(kvant_embedder_get_info(embedder, &info), KVANT_INVALID, "struct_size");
  REFUSED(kvant_embedder_get_info(NULL, &info), KVANT_INVALID, "embedder");
  REFUSED(kvant_embedder_get_info(embedder, NULL), KVANT_INVALID, "info");
  CHECK(kvant_embedder_prompt_name(embedder, 0) == NULL);
  CHECK(kvant_embedder_prompt_name(NULL, 0) == NULL);
  CHECK(kvant_embedder_prompt_text(embedder, 0) == NULL);
  CHECK(kvant_embedder_label(embedder, 0) == NULL);
  REFUSED(kvant_embedder_tokens(NULL, "a", 1, NULL, &tokens, &count), KVANT_INVALID, "embedder");
  REFUSED(kvant_embedder_tokens(embedder, NULL, 1, NULL, &tokens, &count), KVANT_INVALID, "text");
  REFUSED(kvant_embedder_tokens(embedder, "", 0, NULL, &tokens, &count), KVANT_INVALID, "empty");
  REFUSED(kvant_embedder_tokens(embedder, "a", 1, NULL, NULL, &count), KVANT_INVALID, "tokens");
  REFUSED(kvant_embedder_tokens(embedder, "a", 1, NULL, &tokens, NULL), KVANT_INVALID, "count");
  REFUSED(kvant_embedder_pair_tokens(NULL, "a", 1, "b", 1, 0, NULL, &tokens, &count), KVANT_INVALID,
          "embedder");
  REFUSED(kvant_embedder_pair_tokens(embedder, "", 0, "b", 1, 0, NULL, &tokens, &count),
          KVANT_INVALID, "query");
  REFUSED(kvant_embedder_pair_tokens(embedder, "a", 1, "", 0, 0, NULL, &tokens, &count),
          KVANT_INVALID, "document");
  REFUSED(kvant_embedder_pair_tokens(embedder, "a", 1, "b", 1, 7, NULL, &tokens, &count),
          KVANT_INVALID, "truncate");
  CHECK(tokens == NULL);
  const kvant_embed_text text = TextOf("a");
  REFUSED(kvant_embedder_rank(NULL, "a", 1, &text, 1, 0, 0, &score), KVANT_INVALID, "embedder");
  REFUSED(kvant_embedder_rank(embedder, "a", 1, &text, 1, 0, 0, &score), KVANT_INVALID, "ranks");
  REFUSED(kvant_embedder_rank(embedder, "a", 1, &text, 1, 0, 0, NULL), KVANT_INVALID, "scores");
  REFUSED(kvant_embedder_rank(embedder, "a", 1, NULL, 1, 0, 0, &score), KVANT_INVALID, "documents");
  REFUSED(kvant_embedder_rank(embedder, "a", 1, &text, 1, 0, 2, &score), KVANT_INVALID, "raw");
  REFUSED(kvant_embedder_logits(embedder, &text, 1, 0, &logits, &count), KVANT_INVALID, "ranks");
  REFUSED(kvant_embedder_logits(embedder, &text, 1, 0, NULL, &count), KVANT_INVALID, "logits");
  REFUSED(kvant_embedder_logits(NULL, &text, 1, 0, &logits, &count), KVANT_INVALID, "embedder");
  CHECK(logits == NULL && score == 0);
  kvant_embedder_cancel(NULL);
  kvant_embedder_free(NULL);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: embed_test MODEL\n");
    return 2;
  }
  kvant_model* model = NULL;
  OK(kvant_model_open(argv[1], NULL, &model));
  VectorsOfTexts(model);
  RowsOfTokens(model);
  LongTextsAndCancellation(model);
  BadOptions(model);
  kvant_embedder* embedder = New(model, KVANT_POOLING_MEAN, 1);
  kvant_model_free(model);  // the embedder keeps it
  BadTexts(embedder);
  BadCalls(embedder);
  kvant_embedder_free(embedder);
  printf("%d checks, %d failures\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
