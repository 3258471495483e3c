#include "tools/options/groups/draft_group.h"

#include <utility>

#include "base/result.h"
#include "tools/options/model_names.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

void DraftGroup::Add(OptionList& list) {
  list.Text("--draft,--model-draft,--spec-draft-model", &model, "MODEL",
            "Guess several tokens at once with a smaller model, or with 'ngram' from the text "
            "itself. Guesses are made as long as they save time, and never change the text");
  std::vector<std::string> values = ModelNames();
  values.emplace_back("ngram");
  list.Values("--draft", std::move(values));
  list.Integer("--draft-tokens,--draft-max,--draft-n,--spec-draft-n-max", &tokens, {1, 31},
               "Most tokens to guess at once");
  list.Flag("--draft-always", &always, "Guess also where that takes more time than it saves");
  list.Checked(
      "--spec-type", [this](const std::string& kind) { return TakeKind(kind); },
      "none|draft-simple|ngram-simple", "llama.cpp's word: ngram-simple is --draft ngram");
}

Status DraftGroup::TakeKind(const std::string& kind) {
  if (kind.starts_with("ngram")) {
    model = "ngram";
  } else if (kind == "none") {
    model.reset();
  } else if (kind != "draft-simple") {
    return MakeError(
        ErrorCode::kInvalid,
        "expected none, draft-simple (with --draft MODEL) or ngram-simple, since other "
        "drafts are not there, found '{}'",
        Visible(kind));
  }
  return {};
}

Status DraftGroup::Check(const OptionList& list) const {
  if (!model.has_value()) return list.Need({"--draft-tokens", "--draft-always"}, "--draft");
  if (!model->empty()) return {};
  return MakeError(ErrorCode::kInvalid, "--draft: expected a model or ngram, found ''");
}

Result<std::shared_ptr<Draft>> DraftGroup::Make(const ModelGroup& loading,
                                                const SessionOptions& session,
                                                int32_t vocab_size) const {
  std::shared_ptr<Draft> draft;
  if (!model.has_value()) return draft;
  if (*model == "ngram") {
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
