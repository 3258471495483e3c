// embed_times MODEL.gguf THREADS ROUNDS BATCH TEXTSxTOKENS...: the time of one call of
// Embedder::Embed for each size, in milliseconds: "64x128 101.3", the least of the rounds after a
// warm-up. Texts are random ids, BATCH tokens at a time; 0: as many as an embedder takes by itself.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kvant/embed.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Size {
  int64_t texts = 0;
  int64_t tokens = 0;
};

std::vector<kvant::EmbedTokens> RandomTexts(const Size& size, int32_t vocab) {
  std::mt19937 random(7);
  std::uniform_int_distribution<kvant::TokenId> ids(0, vocab - 1);
  std::vector<kvant::EmbedTokens> texts(static_cast<size_t>(size.texts));
  for (kvant::EmbedTokens& text : texts) {
    text.ids.resize(static_cast<size_t>(size.tokens));
    for (kvant::TokenId& id : text.ids) id = ids(random);
  }
  return texts;
}

kvant::Status Time(const std::string& path, const kvant::EmbedOptions& options, int rounds,
                   const std::vector<Size>& sizes) {
  KVANT_ASSIGN(auto model, kvant::Model::Open(path));
  KVANT_ASSIGN(const auto embedder, kvant::Embedder::Create(model, options));
  for (const Size& size : sizes) {
    const auto texts = RandomTexts(size, model->vocab_size());
    double least = 0;
    for (int round = 0; round <= rounds; ++round) {
      const auto begin = Clock::now();
      const auto made = embedder->Embed(texts);
      if (!made.ok()) return made.error();
      const double took = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      if (round == 1 || (round > 1 && took < least)) least = took;
    }
    std::printf("%lldx%lld %.3f\n", static_cast<long long>(size.texts),
                static_cast<long long>(size.tokens), least);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: embed_times MODEL.gguf THREADS ROUNDS BATCH TEXTSxTOKENS...\n");
    return 2;
  }
  std::vector<Size> sizes;
  for (int i = 5; i < argc; ++i) {
    long long texts = 0;
    long long tokens = 0;
    if (std::sscanf(argv[i], "%lldx%lld", &texts, &tokens) != 2) return 2;
    sizes.push_back({texts, tokens});
  }
  kvant::EmbedOptions options = {.threads = std::atoi(argv[2])};
  if (std::atoi(argv[4]) > 0) options.batch_tokens = std::atoi(argv[4]);
  const kvant::Status status = Time(argv[1], options, std::atoi(argv[3]), sizes);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
