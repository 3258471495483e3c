// The options of `kvant chat`, and the options of conversations, which `kvant run --chat` has, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/chat.h"
#include "tools/options/groups/draft_group.h"
#include "tools/options/groups/grammar_group.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/sampling_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/groups/tools_group.h"

namespace kvant::tools {

enum class ReasoningUse : uint8_t {
  kShow,
  kHide,
  kOff,  // the template is asked for answers without
};
Result<ReasoningUse> ParseReasoning(const std::string& text);
const char* ReasoningName(ReasoningUse use);

// Whether a command tells the thoughts of a model from its answer.
enum class ThoughtsUse : uint8_t { kToldApart, kShown };

// How messages become a prompt.
struct ConversationGroup {
  std::optional<std::string> template_name;
  bool no_template = false;  // messages as they are, a line each
  std::optional<std::string> system;
  std::optional<std::string> system_file;
  std::optional<std::string> variables;  // of the template: a JSON object
  std::optional<ReasoningUse> reasoning;

  void Add(OptionList& list, const std::string& group, ThoughtsUse thoughts);

  // The template that is asked for, else that of the model. kInvalid where there is neither.
  Result<ChatTemplate> Template(const Model& model) const;
  // kInvalid for options that contradict each other.
  static Status Check(const OptionList& list);
  // Tells the template what stands beside messages. kInvalid for variables that are no JSON object.
  Result<ChatRenderOptions> Render() const;
  // The text of the system's message, "" if there is none.
  Result<std::string> System() const;
  // The ids of a conversation of one message of the user, up to where its answer begins.
  Result<std::vector<TokenId>> Prompt(const Model& model, const std::string& message) const;

 private:
  void AddReasoning(OptionList& list, ThoughtsUse thoughts);
};

struct ChatOptions {
  ModelGroup model;
  TextGroup prompt;  // the first message
  ConversationGroup conversation;
  SessionGroup session;
  SamplingGroup sampling;
  GrammarGroup grammar;
  DraftGroup draft;
  std::optional<std::string> load;
  ToolsGroup tools;
  std::vector<std::string> stop_texts;
  int64_t max_tokens = -1;
  int64_t beams = 1;
  bool ignore_eos = false;
  bool single_turn = false;
  bool context_shift = false;
  bool stats = false;
  bool quiet = false;
  bool no_word_wrap = false;

  void Add(OptionList& list);
  Status Check(const OptionList& list) const;
};

}  // namespace kvant::tools
