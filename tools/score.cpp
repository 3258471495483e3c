// kvant score: the log-probability of every token of a text, and what would have been likelier.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/evaluate/token_scores.h"
#include "tools/commands.h"
#include "tools/common_options.h"
#include "tools/console.h"

namespace kvant::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr HelpText kHelp = {
    "MODEL -p TEXT [--top N] [--json] [OPTIONS]",
    "Prints how likely the model finds every token of a text, given those before it: the natural\n"
    "logarithm of its probability, its rank (1 is the likeliest token), and the likeliest tokens\n"
    "at its place. BOS comes first where the vocabulary asks for it; nothing predicts the first\n"
    "token, so it has no log-probability.",
    "  kvant score model.gguf -p \"The capital of France is Paris\"\n"
    "  kvant score model.gguf -p \"To be or not to be\" --top 3\n"
    "  kvant score model.gguf -f text.txt --json | jq '.tokens[].logprob'\n",
};

// More alternatives than this would print the vocabulary.
constexpr int64_t kTopMax = 1000;

struct Options {
  ModelGroup model;
  TextGroup text;
  SessionGroup session;
  int64_t top = 5;
  bool json = false;
  bool no_bos = false;
  bool special = false;
};

struct Scored {
  std::vector<TokenId> tokens;
  std::vector<evaluate::TokenScore> scores;  // of all but the first token

  double sum() const {
    double sum = 0;
    for (const auto& score : scores) sum += score.log_prob;
    return sum;
  }
};

std::string ToJson(const Scored& scored, const Tokenizer& tokenizer) {
  Json out;
  out["count"] = scored.tokens.size();
  out["logprob_sum"] = scored.sum();
  out["tokens"] = Json::array();
  for (size_t i = 0; i < scored.tokens.size(); ++i) {
    const TokenId id = scored.tokens[i];
    Json token = {{"id", id}, {"text", tokenizer.TokenBytes(id, {.special = true})}};
    if (i == 0) {
      token["logprob"] = nullptr;
      token["rank"] = nullptr;
      token["top"] = Json::array();
    } else {
      const evaluate::TokenScore& score = scored.scores[i - 1];
      token["logprob"] = score.log_prob;
      token["rank"] = score.rank;
      token["top"] = Json::array();
      for (const auto& [top_id, log_prob] : score.top) {
        token["top"].push_back({{"id", top_id},
                                {"text", tokenizer.TokenBytes(top_id, {.special = true})},
                                {"logprob", log_prob}});
      }
    }
    out["tokens"].push_back(std::move(token));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string Shown(const Tokenizer& tokenizer, TokenId id) {
  return fmt::format("'{}'", Visible(tokenizer.TokenBytes(id, {.special = true})));
}

std::string ToTable(const Scored& scored, const Tokenizer& tokenizer) {
  std::string out = fmt::format("{:>8} {:>10} {:>7}  {:<18} {}\n", "id", "logprob", "rank", "text",
                                "likeliest at its place");
  for (size_t i = 0; i < scored.tokens.size(); ++i) {
    const TokenId id = scored.tokens[i];
    if (i == 0) {
      out += fmt::format("{:>8} {:>10} {:>7}  {}\n", id, "-", "-", Shown(tokenizer, id));
      continue;
    }
    const evaluate::TokenScore& score = scored.scores[i - 1];
    std::string alternatives;
    for (const auto& [top_id, log_prob] : score.top) {
      alternatives += fmt::format("{}{} {:.3f}", alternatives.empty() ? "" : "  ",
                                  Shown(tokenizer, top_id), log_prob);
    }
    out += fmt::format("{:>8} {:>10.4f} {:>7}  {:<18} {}\n", id, score.log_prob, score.rank,
                       Shown(tokenizer, id), alternatives);
  }
  return out +
         fmt::format("\nsum of {} log-probabilities  {:.6f}\n", scored.scores.size(), scored.sum());
}

Status Score(const Options& options, const Positionals& positionals, ResultStream& out) {
  KVANT_ASSIGN(const auto text, options.text.Read(positionals));
  if (!text.has_value()) {
    return MakeError(ErrorCode::kInvalid,
                     "no text given: use -p TEXT, -f FILE, or - for standard input");
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  Scored scored;
  const bool bos = model->tokenizer().special().add_bos && !options.no_bos;
  KVANT_ASSIGN(scored.tokens, model->tokenizer().Encode(
                                  *text, {.add_special = bos, .parse_special = options.special}));
  if (scored.tokens.size() < 2) {
    return MakeError(ErrorCode::kInvalid,
                     "the text has {} tokens, expected at least 2: nothing predicts the first",
                     scored.tokens.size());
  }
  if (session_options.context == 0) {
    session_options.context = static_cast<int64_t>(scored.tokens.size());
  }
  KVANT_ASSIGN(const auto session, Session::Create(model, session_options));
  KVANT_ASSIGN(scored.scores,
               evaluate::ScoreTokens(*session, scored.tokens, static_cast<size_t>(options.top)));
  out.Write(options.json ? ToJson(scored, model->tokenizer())
                         : ToTable(scored, model->tokenizer()));
  return {};
}

}  // namespace

int ScoreCommand(CommandLine& line) {
  Options options;
  OptionList list;
  options.text.Add(list, "Text", "text");
  list.Flag("--no-bos", &options.no_bos, "Put nothing in front of the text");
  list.Flag("--special", &options.special, "Read control tokens such as <|im_end|> in the text");
  list.Group("Output");
  list.Integer("--top", &options.top, {0, kTopMax}, "Alternatives shown for each token");
  list.Flag("--json", &options.json,
            "Print one JSON object: count, logprob_sum, tokens of id, text, logprob, rank, top");
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.AddThreads(list);
  options.session.AddContext(list, "as many as there are tokens");
  options.session.AddKvTypes(list);
  options.session.AddChunk(list);
  AddIgnoredOptions(list);
  if (const auto code = line.Parse(list, kHelp)) return *code;
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
