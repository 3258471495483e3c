// kvant rerank: the documents that answer a query best, by the scores of a reranker.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/embed.h"
#include "tools/commands.h"
#include "tools/embed/embed_group.h"
#include "tools/embed/text_input.h"
#include "tools/options/json.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kRerankHelp = {
    "MODEL -q QUERY (-f DOCUMENTS | --jsonl DOCUMENTS | -) [OPTIONS]",
    "Orders documents by how well they answer a query, the best first, with a reranker (a\n"
    "cross-encoder, or a model such as Qwen3-Reranker). A line has the score, the number of the\n"
    "document, counted from 0, and the document, with tabs between them.",
    "  kvant rerank reranker.gguf -q \"What is a panda?\" -f documents.txt\n"
    "  kvant rerank reranker.gguf -q \"What is a panda?\" --jsonl docs.jsonl --top 3 --json\n",
};

struct RerankOptions {
  EmbedGroup group;
  TextInput documents;
  std::optional<std::string> query;
  std::optional<int64_t> top;
  bool raw_scores = false;
  bool json = false;
};

std::string Line(const RerankOptions& options, const InputText& document, int64_t number,
                 float score) {
  if (!options.json) return fmt::format("{:.6f}\t{}\t{}\n", score, number, document.text);
  Json out = {{"index", number}};
  if (document.id.has_value()) out["id"] = *document.id;
  out["score"] = score;
  out["document"] = document.text;
  return Dump(out) + "\n";
}

Result<std::vector<float>> Scores(const RerankOptions& options, Embedder& embedder,
                                  std::span<const InputText> documents) {
  const ScoreKind kind = options.raw_scores ? ScoreKind::kRaw : ScoreKind::kProbability;
  std::vector<float> scores;
  for (size_t first = 0; first < documents.size(); first += kTextsPerCall) {
    std::vector<EmbedTokens> pairs;
    for (const InputText& document :
         documents.subspan(first, std::min(kTextsPerCall, documents.size() - first))) {
      auto pair = embedder.PairTokens(*options.query, document.text, options.group.too_long());
      if (!pair.ok()) return At(document, pair.error());
      pairs.push_back(std::move(*pair));
    }
    KVANT_ASSIGN(const Ranking ranking, embedder.Rank(pairs));
    for (int64_t i = 0; i < std::ssize(pairs); ++i) scores.push_back(ranking.Score(i, kind));
  }
  return scores;
}

Result<int> Rerank(const RerankOptions& options, const Positionals& positionals) {
  if (options.query->empty()) {
    return MakeError(ErrorCode::kInvalid, "--query: expected a text, found none");
  }
  KVANT_ASSIGN(const auto documents, options.documents.Read(positionals));
  KVANT_ASSIGN(const auto embedder, options.group.Open(positionals.model, Pooling::kRank));
  if (embedder->labels() > 2) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: expected one score, or two (yes and no), found a classifier of {} labels",
                     positionals.model, embedder->labels());
  }
  KVANT_ASSIGN(const auto scores, Scores(options, *embedder, documents));
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(
      std::min(order.size(), static_cast<size_t>(options.top.value_or(std::ssize(order)))));
  ResultStream out;
  for (const int64_t number : order) {
    const auto place = static_cast<size_t>(number);
    out.Write(Line(options, documents[place], number, scores[place]));
  }
  return out.Finish(kExitDone);
}

}  // namespace

int RerankCommand(CommandLine& line) {
  RerankOptions options;
  OptionList list;
  list.Group("Input");
  list.Text("-q,--query", &options.query, "TEXT", "The query");
  options.documents.Add(list, "documents", TextInput::Texts::kFromFilesOnly);
  list.Group("Output");
  list.Integer("--top", &options.top, {1, std::numeric_limits<int32_t>::max()},
               "Show the best N documents", "all");
  list.Flag("--raw-scores", &options.raw_scores,
            "Show the model's logits, not probabilities between 0 and 1");
  list.Flag("--json", &options.json, "Show lines of JSON: index, id, score, document");
  options.group.Add(list);
  if (const auto code = line.Parse(list, kRerankHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.group.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  if (!options.query.has_value()) return line.UsageError("no query given: use -q QUERY");
  const auto code = Rerank(options, positionals);
  return code.ok() ? *code : Fail(code.error());
}

}  // namespace kvant::tools
