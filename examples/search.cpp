// Shows the lines of a file that are nearest to a question, in C++:
// search EMBEDDING_MODEL.gguf LINES.txt QUESTION
#include <kvant/embed.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace {

std::vector<std::string> LinesOf(const char* path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

// The vectors of texts, behind the prompt of this name where the file has one.
kvant::Result<kvant::Embeddings> Embed(kvant::Embedder& embedder, const char* prompt,
                                       const std::vector<std::string>& texts) {
  kvant::TextOptions options;
  options.too_long = kvant::TooLong::kCut;
  for (const kvant::EmbedPrompt& known : embedder.prompts()) {
    if (known.name == prompt) options.prompt = known.text;
  }
  std::vector<kvant::EmbedTokens> tokens;
  for (const std::string& text : texts) {
    KVANT_ASSIGN(tokens.emplace_back(), embedder.Tokens(text, options));
  }
  return embedder.Embed(tokens);
}

kvant::Status Search(const char* path, const std::vector<std::string>& lines,
                     const char* question) {
  KVANT_ASSIGN(const auto model, kvant::Model::Open(path));
  KVANT_ASSIGN(const auto embedder, kvant::Embedder::Create(model, {}));
  KVANT_ASSIGN(const auto of_lines, Embed(*embedder, "document", lines));
  KVANT_ASSIGN(const auto of_question, Embed(*embedder, "query", {question}));
  // Vectors have the length 1, so their product is the cosine.
  const auto asked = of_question.RowsOf(0);
  std::vector<float> cosines;
  for (int64_t i = 0; i < of_lines.texts(); ++i) {
    const auto row = of_lines.RowsOf(i);
    cosines.push_back(std::inner_product(row.begin(), row.end(), asked.begin(), 0.0f));
  }
  std::vector<size_t> order(lines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return cosines[i]; });
  for (size_t i = 0; i < std::min<size_t>(order.size(), 3); ++i) {
    std::printf("%.3f  %s\n", static_cast<double>(cosines[order[i]]), lines[order[i]].c_str());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: search EMBEDDING_MODEL.gguf LINES.txt QUESTION\n");
    return 2;
  }
  const auto status = Search(argv[1], LinesOf(argv[2]), argv[3]);
  if (!status.ok()) std::fprintf(stderr, "search: %s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
