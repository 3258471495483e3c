// The options of a draft, which guesses the next tokens of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "kvant/draft.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"

namespace kvant::tools {

struct DraftGroup {
  std::optional<std::string> model;  // or "ngram"
  int64_t tokens = 8;
  bool always = false;  // also where it loses time

  void Add(OptionList& list);
  // kInvalid for an empty name, and for options of a draft where there is none.
  Status Check(const OptionList& list) const;

  // The draft for texts of a model with `vocab_size` tokens, null if none is asked for. `session`
  // are the resolved options of these texts; the draft's model runs with them, too.
  Result<std::shared_ptr<Draft>> Make(const ModelGroup& loading, const SessionOptions& session,
                                      int32_t vocab_size) const;

 private:
  Status TakeKind(const std::string& kind);
};

}  // namespace kvant::tools
