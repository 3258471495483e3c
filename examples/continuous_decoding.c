// Appends a prompt, generates, goes back to a checkpoint and generates again: the second time gives
// the same tokens, since a rewound sequence is what it was.
//
//   continuous_decoding_c model.gguf "ROMEO:"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvant/kvant.h>

enum { kFirst = 10, kMore = 5 };

static void Need(kvant_status status) {
  if (status == KVANT_OK) return;
  fprintf(stderr, "continuous_decoding: %s\n", kvant_last_error(NULL));
  exit(1);
}

// Prints the text of a sequence.
static void Show(const kvant_tokenizer* tokenizer, const kvant_runner* runner,
                 kvant_sequence sequence) {
  size_t count = 0, size = 0;
  char* text = NULL;
  const kvant_token* tokens = kvant_sequence_tokens(runner, sequence, &count);
  Need(kvant_tokenizer_decode(tokenizer, tokens, count, 0, &text, &size));
  printf("%s\n--- %d tokens\n", text, (int)count);
  kvant_free(text);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: continuous_decoding MODEL PROMPT\n");
    return 2;
  }
  kvant_model* model = NULL;
  kvant_tokenizer* tokenizer = NULL;
  kvant_runner* runner = NULL;
  kvant_sampler* sampler = NULL;
  Need(kvant_model_open(argv[1], NULL, &model));
  Need(kvant_tokenizer_of_model(model, &tokenizer));
  Need(kvant_runner_new(model, NULL, &runner));
  kvant_sampling_options sampling;
  Need(kvant_sampling_options_default(&sampling, sizeof sampling));
  sampling.temperature = 0;
  kvant_model_info info = {.struct_size = sizeof info};
  Need(kvant_model_get_info(model, &info));
  Need(kvant_sampler_new(tokenizer, info.vocab_size, &sampling, &sampler));

  kvant_sequence sequence = -1;
  kvant_token* prompt = NULL;
  size_t count = 0;
  Need(kvant_tokenizer_prompt(tokenizer, argv[2], strlen(argv[2]), &prompt, &count));
  Need(kvant_sequence_new(runner, &sequence));
  Need(kvant_sequence_append(runner, sequence, prompt, count));
  kvant_token token = 0;
  for (int i = 0; i < kFirst; ++i) {
    Need(kvant_sequence_generate(runner, sequence, sampler, &token));
  }
  const int64_t checkpoint = kvant_sequence_length(runner, sequence);

  kvant_token continuations[2][kMore];
  for (int time = 0; time < 2; ++time) {
    for (int i = 0; i < kMore; ++i) {
      Need(kvant_sequence_generate(runner, sequence, sampler, &continuations[time][i]));
    }
    Show(tokenizer, runner, sequence);
    Need(kvant_sequence_rewind(runner, sequence, checkpoint, 1));
    Need(kvant_sequence_compute_logits(runner, sequence));
  }
  const int same = memcmp(continuations[0], continuations[1], sizeof continuations[0]) == 0;
  if (!same) fprintf(stderr, "continuous_decoding: the second time gave other tokens\n");

  kvant_free(prompt);
  kvant_sampler_free(sampler);
  kvant_runner_free(runner);
  kvant_tokenizer_free(tokenizer);
  kvant_model_free(model);
  return same ? 0 : 1;
}
