#include "tools/options/groups/draft_group.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "tools/options/model_names.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr std::string_view kPredicted = "mtp";
constexpr int64_t kTokens = 8;
constexpr int64_t kPredictedTokens = 3;  // each costs a pass of a layer and of the output matrix
constexpr int64_t kTokensMax = 31;

// N of "mtp:N"; 0 where there is none, -1 where it is no number from 1 to kTokensMax.
int64_t TokensOf(std::string_view model) {
  if (model.size() <= kPredicted.size()) return 0;
  const std::string_view digits = model.substr(kPredicted.size() + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  const bool whole = error == std::errc() && end == digits.end();
  return whole && number >= 1 && number <= kTokensMax ? number : -1;
}

}  // namespace

void DraftGroup::Add(OptionList& list) {
  list.Text(
      "--draft,--model-draft,--spec-draft-model", &model, "MODEL",
      "Guess several tokens at once with a smaller model, with 'ngram' from the text, or with "
      "'mtp[:N]' by layers of the model itself. N is the most at once. Guesses are made as "
      "long as they save time, and never change the text");
  std::vector<std::string> values = ModelNames();
  values.emplace_back("ngram");
  values.emplace_back(kPredicted);
  list.Values("--draft", std::move(values));
  AddTokens(list);
  list.Checked(
      "--spec-type", [this](const std::string& kind) { return TakeKind(kind); },
      "none|draft-simple|draft-mtp|ngram-simple",
      "llama.cpp's word: ngram-simple is --draft ngram, draft-mtp is --draft mtp");
}

void DraftGroup::AddPredicted(OptionList& list) {
  list.Text("--draft", &model, "mtp[:N]",
            "Guess several tokens at once, N at most, by the layers of the model that predict "
            "further tokens. Guesses are made as long as they save time, and never change a text");
  list.Values("--draft", {std::string(kPredicted)});
  AddTokens(list);
  list.Checked(
      "--spec-type", [this](const std::string& kind) { return TakeKind(kind); }, "none|draft-mtp",
      "llama.cpp's word: draft-mtp is --draft mtp");
}

void DraftGroup::AddTokens(OptionList& list) {
  list.Integer("--draft-tokens,--draft-max,--draft-n,--spec-draft-n-max", &tokens, {1, kTokensMax},
               "Most tokens to guess at once", "8, or 3 with mtp");
  list.Flag("--draft-always", &always, "Guess also where that takes more time than it saves");
}

Status DraftGroup::TakeKind(const std::string& kind) {
  if (kind.starts_with("ngram")) {
    model = "ngram";
  } else if (kind == "draft-mtp") {
    if (!predicts()) model = kPredicted;  // "mtp:N" says the same and more
  } else if (kind == "none") {
    model.reset();
  } else if (kind != "draft-simple") {
    return MakeError(ErrorCode::kInvalid,
                     "expected none, draft-simple (with --draft MODEL), draft-mtp or ngram-simple, "
                     "since other drafts are not there, found '{}'",
                     Visible(kind));
  }
  is_of_model_ = kind == "draft-simple";
  return {};
}

Status DraftGroup::Check(const OptionList& list) const {
  if (!model.has_value()) return list.Need({"--draft-tokens", "--draft-always"}, "--draft");
  if (model->starts_with("mtp:") && !predicts()) {
    return MakeError(ErrorCode::kInvalid, "--draft: expected mtp:N with N from 1 to {}, found '{}'",
                     kTokensMax, Visible(*model));
  }
  if (predicts() && is_of_model_) {
    return MakeError(ErrorCode::kInvalid,
                     "--spec-type: draft-simple expects --draft with a model, found '{}'", *model);
  }
  if (predicts() && TokensOf(*model) > 0 && tokens.has_value()) {
    return MakeError(ErrorCode::kInvalid,
                     "--draft-tokens: expected none beside --draft {}, which says how many",
                     *model);
  }
  if (!model->empty()) return {};
  return MakeError(ErrorCode::kInvalid, "--draft: expected a model, ngram or mtp, found ''");
}

Status DraftGroup::CheckPredicted(const OptionList& list) const {
  KVANT_TRY(Check(list));
  if (!model.has_value() || predicts()) return {};
  return MakeError(ErrorCode::kInvalid,
                   "--draft: expected mtp or mtp:N, since texts side by side have no other draft, "
                   "found '{}'",
                   Visible(*model));
}

bool DraftGroup::predicts() const {
  const bool named = model.has_value() && (*model == kPredicted || model->starts_with("mtp:"));
  return named && TokensOf(*model) >= 0;
}

int64_t DraftGroup::TokensAtOnce() const {
  if (!predicts()) return tokens.value_or(kTokens);
  const int64_t named = TokensOf(*model);
  return named > 0 ? named : tokens.value_or(kPredictedTokens);
}

ModelOptions DraftGroup::With(ModelOptions options) const {
  options.predictors = predicts();
  return options;
}

SessionOptions DraftGroup::With(SessionOptions options) const {
  if (predicts() && options.kv_cache) {
    options.state_log = std::max(options.state_log, TokensAtOnce() + 1);
  }
  return options;
}

Result<std::shared_ptr<Draft>> DraftGroup::Make(const ModelGroup& loading,
                                                const SessionOptions& session,
                                                int32_t vocab_size) const {
  std::shared_ptr<Draft> draft;
  if (!model.has_value()) return draft;
  if (predicts()) {
    draft = std::make_shared<PredictedDraft>();
  } else if (*model == "ngram") {
    draft = std::make_shared<NgramDraft>();
  } else {
    KVANT_ASSIGN(const std::string path, FindModel(*model));
    KVANT_ASSIGN(const auto opened, Model::Open(path, loading.Options()));
    SessionOptions own = session;
    own.sequences = 1;
    KVANT_ASSIGN(auto draft_session, Session::Create(opened, own));
    KVANT_ASSIGN(draft, ModelDraft::Create(std::move(draft_session), vocab_size));
  }
  if (!always) draft = std::make_shared<MeasuredDraft>(std::move(draft));
  return draft;
}

}  // namespace kvant::tools
