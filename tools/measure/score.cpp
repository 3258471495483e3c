// kvant score: the log-probability of every token of a text, and what would have been likelier.
#include <fmt/format.h>

#include "base/counted.h"
#include "base/result.h"
#include "engine/evaluate/token_scores.h"
#include "tools/commands.h"
#include "tools/options/evaluation_options.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/json.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kScoreHelp = {
    "MODEL -p TEXT [--top N] [--json] [OPTIONS]",
    "Prints how likely the model finds every token of a text, given those before it: the natural\n"
    "logarithm of its probability, its rank (1 is the likeliest token), and the likeliest tokens\n"
    "at its place. BOS comes first where the vocabulary asks for it; nothing predicts the first\n"
    "token, so it has no log-probability. A text that is longer than the context is scored in\n"
    "windows that overlap by half; rows are printed as they come.",
    "  kvant score model.gguf -p \"The capital of France is Paris\"\n"
    "  kvant score model.gguf -p \"To be or not to be\" --top 3\n"
    "  kvant score model.gguf -f text.txt --json | jq '.tokens[].logprob'\n",
};

// More alternatives than this would print the vocabulary.
constexpr int64_t kTopMax = 1000;

struct ScoreOptions {
  ModelGroup model;
  TextGroup text;
  SessionGroup session;
  int64_t top = 5;
  bool json = false;
  bool no_bos = false;
  bool special = false;
};

// Prints the result row by row, as one table or one JSON object.
class ScoreOutput {
 public:
  ScoreOutput(const ScoreOptions& options, const Tokenizer& tokenizer, ResultStream& out)
      : json_(options.json), tokenizer_(tokenizer), out_(out) {}

  void Begin(size_t count) {
    out_.Write(json_ ? fmt::format("{{\n  \"count\": {},\n  \"tokens\": [", count)
                     : fmt::format("{:>8} {:>10} {:>7}  {:<18} {}\n", "id", "logprob", "rank",
                                   "text", "likeliest at its place"));
  }

  // `score` is null for a token that nothing predicts.
  bool Row(TokenId id, const evaluate::TokenScore* score) {
    if (score != nullptr) {
      sum_ += score->log_prob;
      ++scored_;
    }
    const bool written = out_.Write(json_ ? JsonRow(id, score) : TableRow(id, score));
    begun_ = true;
    return written;
  }

  void End() {
    out_.Write(json_ ? fmt::format("\n  ],\n  \"logprob_sum\": {}\n}}\n", Dump(Json(sum_)))
                     : fmt::format("\nsum of {} log-probabilities  {:.6f}\n", scored_, sum_));
  }

 private:
  std::string Shown(TokenId id) const {
    return fmt::format("'{}'", Visible(tokenizer_.TokenBytes(id, {.special = true})));
  }

  std::string JsonRow(TokenId id, const evaluate::TokenScore* score) const {
    Json token = {{"id", id}, {"text", tokenizer_.TokenBytes(id, {.special = true})}};
    token["logprob"] = nullptr;
    token["rank"] = nullptr;
    token["top"] = Json::array();
    if (score != nullptr) {
      token["logprob"] = score->log_prob;
      token["rank"] = score->rank;
      for (const auto& [top_id, log_prob] : score->top) {
        token["top"].push_back({{"id", top_id},
                                {"text", tokenizer_.TokenBytes(top_id, {.special = true})},
                                {"logprob", log_prob}});
      }
    }
    return (begun_ ? ",\n    " : "\n    ") + Dump(token);
  }

  std::string TableRow(TokenId id, const evaluate::TokenScore* score) const {
    if (score == nullptr) {
      return fmt::format("{:>8} {:>10} {:>7}  {}\n", id, "-", "-", Shown(id));
    }
    std::string alternatives;
    for (const auto& [top_id, log_prob] : score->top) {
      alternatives +=
          fmt::format("{}{} {:.3f}", alternatives.empty() ? "" : "  ", Shown(top_id), log_prob);
    }
    return fmt::format("{:>8} {:>10.4f} {:>7}  {:<18} {}\n", id, score->log_prob, score->rank,
                       Shown(id), alternatives);
  }

  bool json_;
  const Tokenizer& tokenizer_;
  ResultStream& out_;
  double sum_ = 0;
  size_t scored_ = 0;
  bool begun_ = false;
};

// The tokens of a text, and the session that they go through.
struct ScoreRun {
  std::vector<TokenId> tokens;
  std::optional<TokenId> bos;  // in front of every window
  std::unique_ptr<Session> session;
};

// Scores tokens [first, end), which come behind the session's tokens, in pieces of a chunk.
Status ScorePieces(const ScoreOptions& options, ScoreRun& run, size_t first, size_t end,
                   EvaluationProgress& progress, ScoreOutput& out) {
  const std::span<const TokenId> tokens = run.tokens;
  const size_t chunk = static_cast<size_t>(options.session.settings.options.chunk);
  while (first < end) {
    const size_t count = std::min(chunk, end - first);
    // The token in front of them is the first that is computed.
    KVANT_ASSIGN(const auto scores,
                 evaluate::ScoreTokens(*run.session, tokens.subspan(first - 1, count + 1),
                                       static_cast<size_t>(options.top)));
    progress.Clear();
    for (size_t i = 0; i < count; ++i) {
      if (!out.Row(tokens[first + i], &scores[i])) {
        return MakeError(ErrorCode::kCancelled, "nobody reads the result");
      }
    }
    first += count;
    KVANT_TRY(progress.Update(static_cast<int64_t>(first), static_cast<int64_t>(first), ""));
  }
  return {};
}

// The first window is scored as a whole, of each further one its second half: a token has half a
// window before it at least.
Status ScoreWindows(const ScoreOptions& options, ScoreRun& run, ScoreOutput& out) {
  const std::span<const TokenId> tokens = run.tokens;
  const size_t size = static_cast<size_t>(run.session->context());
  EvaluationProgress progress("tokens", std::ssize(tokens));
  out.Begin(tokens.size());
  out.Row(tokens[0], nullptr);
  size_t end = std::min(size + 1, tokens.size());  // the last one is predicted, not computed
  KVANT_TRY(ScorePieces(options, run, 1, end, progress, out));
  while (end < tokens.size()) {
    const size_t known = std::max<size_t>(1, size / 2);
    std::vector<TokenId> front(tokens.begin() + static_cast<std::ptrdiff_t>(end - known),
                               tokens.begin() + static_cast<std::ptrdiff_t>(end - 1));
    if (run.bos.has_value() && !front.empty()) front.front() = *run.bos;
    KVANT_TRY(run.session->Rewind(0));
    if (!front.empty()) KVANT_TRY(run.session->Append(front));
    const size_t first = end;
    end = std::min(tokens.size(), first + size - front.size());
    KVANT_TRY(ScorePieces(options, run, first, end, progress, out));
  }
  progress.Clear();
  out.End();
  return {};
}

Status Score(const ScoreOptions& options, const Positionals& positionals, ResultStream& out) {
  KVANT_ASSIGN(const auto text, options.text.Read(positionals));
  if (!text.has_value()) {
    return MakeError(ErrorCode::kInvalid,
                     "no text given: use -p TEXT, -f FILE, or - for standard input");
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  const Tokenizer& tokenizer = model->tokenizer();
  ScoreRun run;
  const bool bos = tokenizer.special().add_bos && !options.no_bos;
  if (bos) run.bos = tokenizer.special().bos;
  KVANT_ASSIGN(run.tokens,
               tokenizer.Encode(*text, {.add_special = bos, .parse_special = options.special}));
  const int64_t count = std::ssize(run.tokens);
  if (count < 2) {
    return MakeError(ErrorCode::kInvalid,
                     "the text has {}, expected at least 2: nothing predicts the first",
                     Counted(count, "token"));
  }
  if (session_options.context == 0) {
    session_options.context = std::min(count, model->context_length());
  }
  KVANT_ASSIGN(run.session, options.session.Open(model, session_options));
  const int64_t size = run.session->context();
  if (count > size + 1) {
    Note(
        fmt::format("the text has {} tokens: scored in windows of {}, each token behind at least "
                    "{} (-c sets the size of windows)",
                    count, size, Counted(std::max<int64_t>(1, size / 2), "other")));
  }
  ScoreOutput output(options, tokenizer, out);
  const Status status = ScoreWindows(options, run, output);
  return out.failed() ? Status() : status;
}

}  // namespace

int ScoreCommand(CommandLine& line) {
  ScoreOptions options;
  OptionList list;
  options.text.Add(list, "Text", "text");
  list.Flag("--no-bos", &options.no_bos, "Put nothing in front of the text");
  list.Flag("--special", &options.special, "Read control tokens such as <|im_end|> in the text");
  list.Group("Output");
  list.Integer("--top", &options.top, {0, kTopMax}, "Alternatives shown for each token");
  list.Flag(
      "--json", &options.json,
      "Print one JSON object: count, tokens of id, text, logprob, rank, top, then logprob_sum");
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.Add(list, SessionUse::kTexts,
                      "as many as there are tokens, but not more than the model was trained for");
  AddIdleOptions(list);
  if (const auto code = line.Parse(list, kScoreHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  ResultStream out;
  const Status status = Score(options, positionals, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
