// Continues a text with the likeliest tokens, in C: complete MODEL.gguf TEXT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvant/kvant.h>

static void Need(kvant_status status) {
  if (status == KVANT_OK) return;
  fprintf(stderr, "complete: %s\n", kvant_last_error(NULL));
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: complete MODEL.gguf TEXT\n");
    return 2;
  }
  kvant_model* model = NULL;
  kvant_tokenizer* tokenizer = NULL;
  kvant_text_stream* text = NULL;
  kvant_runner* runner = NULL;
  kvant_sampler* sampler = NULL;
  Need(kvant_model_open(argv[1], NULL, &model));
  Need(kvant_tokenizer_of_model(model, &tokenizer));
  Need(kvant_text_stream_new(tokenizer, NULL, 0, 0, &text));
  Need(kvant_runner_new(model, NULL, &runner));

  kvant_model_info info = {.struct_size = sizeof info};
  Need(kvant_model_get_info(model, &info));
  kvant_sampling_options sampling;
  Need(kvant_sampling_options_default(&sampling, sizeof sampling));
  sampling.temperature = 0;
  Need(kvant_sampler_new(tokenizer, info.vocab_size, &sampling, &sampler));

  kvant_sequence sequence = -1;
  kvant_token* prompt = NULL;
  size_t count = 0;
  Need(kvant_tokenizer_prompt(tokenizer, argv[2], strlen(argv[2]), &prompt, &count));
  Need(kvant_sequence_new(runner, &sequence));
  Need(kvant_sequence_append(runner, sequence, prompt, count));
  for (int i = 0; i < 32; ++i) {
    kvant_token token = 0;
    kvant_stream_state state = KVANT_STREAM_OPEN;
    const char* piece = NULL;
    size_t size = 0;
    Need(kvant_sequence_generate(runner, sequence, sampler, &token));
    Need(kvant_text_stream_push(text, token, &piece, &size, &state));
    fwrite(piece, 1, size, stdout);
    if (state != KVANT_STREAM_OPEN) break;
  }
  putchar('\n');

  kvant_free(prompt);
  kvant_sampler_free(sampler);
  kvant_runner_free(runner);
  kvant_text_stream_free(text);
  kvant_tokenizer_free(tokenizer);
  kvant_model_free(model);
  return 0;
}
