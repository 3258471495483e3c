// Five steps of one token with a cache that is made at the first: keys and values grow by one
// position a step along the sequence, [batch, kv heads, positions, dim]; a reset discards them.
// Then the same tokens without a cache give the same likeliest token.
//
//   growing_cache_c model.gguf
#include <stdio.h>
#include <stdlib.h>

#include <kvant/kvant.h>

static void Need(kvant_status status) {
  if (status == KVANT_OK) return;
  fprintf(stderr, "growing_cache: %s\n", kvant_last_error(NULL));
  exit(1);
}

static kvant_token Likeliest(const kvant_runner* runner, kvant_sequence sequence) {
  size_t count = 0;
  const float* logits = kvant_sequence_logits(runner, sequence, &count);
  size_t best = 0;
  for (size_t i = 1; i < count; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return (kvant_token)best;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: growing_cache MODEL\n");
    return 2;
  }
  kvant_model* model = NULL;
  kvant_runner* runner = NULL;
  kvant_runner* uncached = NULL;
  kvant_sequence past = -1, whole = -1;
  kvant_token tokens[6] = {1};
  Need(kvant_model_open(argv[1], NULL, &model));
  Need(kvant_runner_new(model, NULL, &runner));
  Need(kvant_sequence_new(runner, &past));
  for (int step = 1; step <= 5; ++step) {
    Need(kvant_sequence_append(runner, past, &tokens[step - 1], 1));
    kvant_tensors* cache = NULL;
    Need(kvant_tensors_export(runner, &past, 1, KVANT_BHSD, &cache));
    // The last layer: where some layers have a sliding window it sees all positions.
    kvant_tensor last = {.struct_size = sizeof last};
    Need(kvant_tensors_get(cache, kvant_tensors_count(cache) - 1, &last));
    printf("step %d: %s (%d, %d, %d, %d)\n", step, last.name, (int)last.shape[0],
           (int)last.shape[1], (int)last.shape[2], (int)last.shape[3]);
    if (last.shape[2] != step) {
      fprintf(stderr, "growing_cache: expected %d positions, found %d\n", step, (int)last.shape[2]);
      return 1;
    }
    kvant_tensors_free(cache);
    tokens[step] = Likeliest(runner, past);
  }
  Need(kvant_sequence_reset(runner, past));

  kvant_runner_options options;
  Need(kvant_runner_options_default(&options, sizeof options));
  options.kv_cache = 0;
  Need(kvant_runner_new(model, &options, &uncached));
  Need(kvant_sequence_new(uncached, &whole));
  Need(kvant_sequence_append(uncached, whole, tokens, 5));
  const int same = Likeliest(uncached, whole) == tokens[5];
  if (!same) fprintf(stderr, "growing_cache: without a cache another token is likeliest\n");

  kvant_runner_free(uncached);
  kvant_runner_free(runner);
  kvant_model_free(model);
  return same ? 0 : 1;
}
