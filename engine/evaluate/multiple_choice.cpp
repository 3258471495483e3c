#include "engine/evaluate/multiple_choice.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "formats/json.h"

namespace kvant::evaluate {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool IsSpace(char c) { return kSpaces.find(c) != std::string_view::npos; }

// The task of one line, or what is wrong with it.
Result<ChoiceTask> ParseTask(std::string_view text, const std::string& place) {
  const auto wrong = [&](const std::string& what) {
    return MakeError(ErrorCode::kInvalid, "{}: {}", place, what);
  };
  KVANT_ASSIGN(const formats::Json json, formats::ParseJson(text, place));
  if (!json.is_object()) return wrong("expected a JSON object, found " + formats::Shown(json));
  ChoiceTask task;
  const auto context = json.find("context");
  if (context == json.end() || !context->is_string()) return wrong("\"context\" is no text");
  task.context = context->get<std::string>();
  const auto choices = json.find("choices");
  if (choices == json.end() || !choices->is_array() || choices->size() < 2) {
    return wrong("\"choices\" is no list of at least 2 texts");
  }
  for (const formats::Json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty()) {
      return wrong("\"choices\" holds " + formats::Shown(choice) +
                   ", expected texts that are not empty");
    }
    task.choices.push_back(choice.get<std::string>());
  }
  const auto answer = json.find("answer");
  if (answer == json.end() || !answer->is_number_integer() || *answer < 0 ||
      *answer >= choices->size()) {
    return wrong(fmt::format("\"answer\" is {}, expected the number of a choice, 0 to {}",
                             answer == json.end() ? "absent" : formats::Shown(*answer),
                             choices->size() - 1));
  }
  task.answer = answer->get<size_t>();
  return task;
}

// The choice as it follows the context.
std::string Continuation(const ChoiceTask& task, const std::string& choice) {
  const bool joined =
      task.context.empty() || IsSpace(task.context.back()) || IsSpace(choice.front());
  return joined ? choice : " " + choice;
}

size_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

template <class Key>
size_t Best(const std::vector<ChoiceScores>& scores, Key key) {
  const auto best = std::max_element(scores.begin(), scores.end(),
                                     [&](const auto& a, const auto& b) { return a.*key < b.*key; });
  return static_cast<size_t>(best - scores.begin());
}

Estimate Share(int64_t part, int64_t total) {
  const double n = static_cast<double>(total);
  const double share = static_cast<double>(part) / n;
  return {share, total > 1 ? std::sqrt(share * (1 - share) / (n - 1)) : 0};
}

}  // namespace

ChoiceTasks ParseChoiceTasks(std::string_view text, const std::string& file) {
  ChoiceTasks out;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(kSpaces) == std::string_view::npos) continue;
    auto task = ParseTask(line, fmt::format("{}:{}", file, number));
    if (!task.ok()) {
      out.problems.push_back(task.error().message);
      continue;
    }
    task->line = number;
    out.tasks.push_back(std::move(*task));
  }
  return out;
}

Result<ChoiceTokens> EncodeChoices(const ChoiceTask& task, const Tokenizer& tokenizer,
                                   const std::string& file) {
  const EncodeOptions options{.add_special = tokenizer.special().add_bos, .parse_special = false};
  KVANT_ASSIGN(const auto context, tokenizer.Encode(task.context, options));
  ChoiceTokens out;
  for (const std::string& text : task.choices) {
    ChoiceTokens::Choice choice;
    KVANT_ASSIGN(choice.tokens, tokenizer.Encode(task.context + Continuation(task, text), options));
    // A token across the border belongs to the choice; a choice without a token of its own is
    // judged by the last one.
    choice.first_scored = CommonPrefix(context, choice.tokens);
    if (choice.first_scored == choice.tokens.size() && choice.first_scored > 0) {
      --choice.first_scored;
    }
    if (choice.first_scored == 0) {
      return MakeError(ErrorCode::kInvalid,
                       "{}:{}: no token comes before the choices: the context is empty and this "
                       "vocabulary begins with no BOS",
                       file, task.line);
    }
    choice.text_bytes = text.size();
    out.length_max = std::max(out.length_max, choice.tokens.size());
    out.choices.push_back(std::move(choice));
  }
  return out;
}

Result<std::vector<ChoiceScores>> ScoreChoices(Session& session, const ChoiceTokens& tokens) {
  KVANT_TRY(session.Rewind(0));
  std::vector<ChoiceScores> scores;
  for (const ChoiceTokens::Choice& choice : tokens.choices) {
    // The session keeps the tokens of this choice that it already holds; the row before the first
    // scored token is computed anew. A window of the cache may have dropped what rewinding needs.
    const size_t held =
        std::min(CommonPrefix(session.tokens(), choice.tokens), choice.first_scored - 1);
    size_t begin = held;
    const Status rewound = session.Rewind(static_cast<int64_t>(held));
    if (!rewound.ok()) {
      if (rewound.error().code != ErrorCode::kNotSupported) return rewound.error();
      KVANT_TRY(session.Rewind(0));
      begin = 0;
    }
    const size_t first = choice.first_scored - 1;  // its row predicts the first scored token
    std::vector<double> log_probs(choice.tokens.size() - choice.first_scored);
    const auto rows = std::span(choice.tokens).first(choice.tokens.size() - 1).subspan(begin);
    KVANT_TRY(session.AppendScoring(
        rows, static_cast<int64_t>(first - begin), [&](int64_t i, std::span<const float> logits) {
          const size_t row = begin + static_cast<size_t>(i);
          log_probs[row - first] = Normalize(logits).LogProb(choice.tokens[row + 1]);
        }));
    ChoiceScores score;
    for (const double log_prob : log_probs) score.log_prob += log_prob;
    if (std::isnan(score.log_prob)) {
      return MakeError(ErrorCode::kCorrupt, "the model's output is not a number");
    }
    score.log_prob_per_byte = score.log_prob / static_cast<double>(choice.text_bytes);
    score.log_prob_per_token = score.log_prob / static_cast<double>(log_probs.size());
    scores.push_back(score);
  }
  return scores;
}

void ChoiceReport::Add(const ChoiceTask& task, const std::vector<ChoiceScores>& scores) {
  ++tasks;
  right_ += Best(scores, &ChoiceScores::log_prob) == task.answer ? 1 : 0;
  right_per_byte_ += Best(scores, &ChoiceScores::log_prob_per_byte) == task.answer ? 1 : 0;
  right_per_token_ += Best(scores, &ChoiceScores::log_prob_per_token) == task.answer ? 1 : 0;
  chances_ += 1.0 / static_cast<double>(scores.size());
  accuracy = Share(right_, tasks);
  accuracy_per_byte = Share(right_per_byte_, tasks);
  accuracy_per_token = Share(right_per_token_, tasks);
  chance = chances_ / static_cast<double>(tasks);
}

}  // namespace kvant::evaluate
