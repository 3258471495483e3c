// The options of a draft, which guesses the next tokens of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "kvant/draft.h"
#include "kvant/session_options.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"

namespace kvant::tools {

struct DraftGroup {
  std::optional<std::string> model;  // or "ngram", "mtp", "mtp:N"
  std::optional<int64_t> tokens;
  bool always = false;  // also where it loses time

  void Add(OptionList& list);
  // The one word of llama.cpp that commands know which have no other draft than "mtp".
  void AddPredicted(OptionList& list);
  // kInvalid for an empty name, and for options of a draft where there is none.
  Status Check(const OptionList& list) const;
  // The check of a command that has no other draft than "mtp".
  Status CheckPredicted(const OptionList& list) const;

  // Whether layers of the model itself guess.
  bool predicts() const;
  // Most tokens to guess at once.
  int64_t TokensAtOnce() const;
  // The options of the model, or of its runner, whose texts have the draft: layers that guess, and
  // a log of states that reaches as far back as a guess.
  ModelOptions With(ModelOptions options) const;
  SessionOptions With(SessionOptions options) const;

  // The draft for texts of a model with `vocab_size` tokens, null if none is asked for. `session`
  // are the resolved options of these texts; the draft's model runs with them, too.
  Result<std::shared_ptr<Draft>> Make(const ModelGroup& loading, const SessionOptions& session,
                                      int32_t vocab_size) const;

 private:
  void AddTokens(OptionList& list);
  Status TakeKind(const std::string& kind);

  bool is_of_model_ = false;  // llama.cpp's word draft-simple was given
};

}  // namespace kvant::tools
