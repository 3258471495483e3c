// The settings that a talk can change while it goes on (/set): those of samplers, the ends of
// answers, and how answers are shown.
//
// A setting has the name of its option, with or without dashes in front; _ is taken for - inside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tools/chat/chat_options.h"
#include "tools/options/groups/sampling_group.h"

namespace kvant::tools {

struct TalkSettings {
  SamplingGroup sampling;
  int64_t max_tokens = -1;
  std::vector<std::string> stop_texts;  // as answers are searched for them
  ReasoningUse reasoning = ReasoningUse::kHide;
  bool word_wrap = true;

  // kInvalid for a name that is none and for a value that the option does not take; nothing is
  // changed then. "-" for `stop` removes all stop texts.
  Status Set(std::string_view name, const std::string& value);

  static std::vector<std::string> Names();  // without dashes in front

  // "temp 0.8, top-k 40, ...": the usual ones, and all that differ from what they are at first.
  std::string Text() const;

 private:
  void Add(OptionList& list);
};

}  // namespace kvant::tools
