// The options of `kvant run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/model.h"
#include "tools/chat/chat_options.h"
#include "tools/options/groups/draft_group.h"
#include "tools/options/groups/grammar_group.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/sampling_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/groups/tools_group.h"
#include "tools/run/options/frames_options.h"
#include "tools/run/options/search_options.h"
#include "tools/run/options/translation_options.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

struct BatchRunOptions {
  std::optional<std::string> prompts;
  int64_t samples = 1;
  int64_t parallel = 8;
};

// The options of a single text: files of saved text, context shift, draft.
struct ContinueRunOptions {
  std::optional<std::string> session;
  bool session_rewind = false;
  std::optional<std::string> prompt_cache;
  bool prompt_cache_all = false;
  bool prompt_cache_read_only = false;
  bool context_shift = false;
  std::optional<int64_t> keep;  // of the prompt, without BOS; shifts the context, too
  DraftGroup draft;

  // The file that the sequence is taken from, if any.
  const std::optional<std::string>& File() const {
    return session.has_value() ? session : prompt_cache;
  }
};

struct RunOptions {
  ModelGroup model;
  TextGroup prompt;
  SessionGroup session;
  SamplingGroup sampling;
  GrammarGroup grammar;
  SearchOptions search;
  TranslationOptions translation;
  FramesOptions frames;
  BatchRunOptions batch;
  ContinueRunOptions continuation;
  ConversationGroup conversation;
  ToolsGroup tools;
  int64_t max_tokens = -1;
  std::vector<std::string> stop_texts;
  bool chat = false;  // the prompt is a message, as with tools
  bool ignore_eos = false;
  bool no_model_defaults = false;
  bool echo = false;
  bool special = false;
  bool json = false;
  bool quiet = false;

  // Whether texts are searched instead of sampled.
  bool searches() const {
    return search.count.has_value() ||
           ((search.model_asks || translation.has_encoder) && !translation.writes_text);
  }
  StatusUse status_use() const { return quiet ? StatusUse::kHidden : StatusUse::kShown; }

  void Add(OptionList& list);

  std::vector<std::string> StopTexts() const;
  SamplingOptions Sampling() const;
  // The ids of the text as a prompt or, with --chat, as a message.
  Result<std::vector<TokenId>> PromptIds(const Model& opened,
                                         const std::optional<std::string>& text) const;
};

}  // namespace kvant::tools
