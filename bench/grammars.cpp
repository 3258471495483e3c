// grammars MODEL.gguf GRAMMAR.gbnf IDS: the time of masks, in microseconds. IDS has the tokens of a
// text that follows the grammar, a number on each line. For each token the mask is computed that it
// must be allowed by. Prints a line for each of five rounds: "first 340.1" is the grammar's
// compilation and its first mask, then mean, median, 99th percentile and largest of the masks.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/matcher.h"
#include "kvant/model.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

kvant::Status Round(const std::string& gbnf, const kvant::Tokenizer& tokenizer,
                    const std::vector<kvant::TokenId>& ids) {
  namespace grammar = kvant::grammar;
  const auto begin = Clock::now();
  KVANT_ASSIGN(auto parsed, grammar::ParseGbnf(gbnf, &tokenizer));
  grammar::Matcher matcher(std::move(parsed), tokenizer.trie(),
                           tokenizer.special().end_of_generation);
  std::vector<uint64_t> bits(grammar::Matcher::WordsFor(matcher.vocab()));
  grammar::MatchState state = matcher.Begin();
  KVANT_TRY(matcher.Mask(state, bits));
  const double first = MicrosecondsSince(begin);
  std::vector<double> times;
  double sum = 0;
  for (const kvant::TokenId token : ids) {
    const auto start = Clock::now();
    KVANT_TRY(matcher.Mask(state, bits));
    times.push_back(MicrosecondsSince(start));
    sum += times.back();
    KVANT_ASSIGN(const bool moved, matcher.Advance(state, token));
    if (!moved) {
      return kvant::MakeError(kvant::ErrorCode::kInvalid, "token {} does not follow the grammar",
                              token);
    }
  }
  std::sort(times.begin(), times.end());
  std::printf("first %.1f mean %.2f median %.2f p99 %.2f largest %.1f\n", first,
              sum / static_cast<double>(times.size()), times[times.size() / 2],
              times[times.size() * 99 / 100], times.back());
  return {};
}

kvant::Status Run(const char* model_path, const char* grammar_path, const char* ids_path) {
  KVANT_ASSIGN(const auto model, kvant::Model::Open(model_path));
  std::ifstream grammar_file(grammar_path);
  const std::string gbnf{std::istreambuf_iterator<char>(grammar_file), {}};
  std::ifstream ids_file(ids_path);
  const std::vector<kvant::TokenId> ids{std::istream_iterator<kvant::TokenId>(ids_file), {}};
  if (gbnf.empty() || ids.empty()) {
    return kvant::MakeError(kvant::ErrorCode::kIo, "{}: expected a grammar, and tokens in {}",
                            grammar_path, ids_path);
  }
  (void)model->tokenizer().trie();
  for (int round = 0; round < kRounds; ++round) KVANT_TRY(Round(gbnf, model->tokenizer(), ids));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: grammars MODEL.gguf GRAMMAR.gbnf IDS\n");
    return 2;
  }
  const kvant::Status status = Run(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "grammars: %s\n", status.error().message.c_str());
  return 1;
}
