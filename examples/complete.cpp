// Continues a text with the likeliest tokens, in C++: complete MODEL.gguf TEXT
#include <kvant/generator.h>
#include <kvant/prompt.h>

#include <cstdio>

kvant::Status Complete(const char* path, const char* text) {
  KVANT_ASSIGN(const auto model, kvant::Model::Open(path));
  KVANT_ASSIGN(const auto session, kvant::Session::Create(model, {}));
  KVANT_ASSIGN(const auto prompt, kvant::PromptTokens(model->tokenizer(), text));
  kvant::SamplingOptions sampling;
  sampling.temperature = 0;
  KVANT_ASSIGN(auto sampler, kvant::Sampler::Create(sampling, model->vocab_size()));
  const auto show = [](std::string_view piece) {
    return std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size();
  };
  kvant::GenerateOptions options;
  options.max_tokens = 32;
  KVANT_TRY(kvant::Generate(*session, model->tokenizer(), sampler, prompt, options, show));
  return {};
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto status = Complete(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "complete: %s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
