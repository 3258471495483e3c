#include "tools/chat/chat_options.h"

#include "engine/limits.h"
#include "tools/options/groups/idle_options.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr int64_t kChatBeamsMax = 64;

Status TakeReasoning(const std::string& text, std::optional<ReasoningUse>* use) {
  struct Row {
    const char* name;
    ReasoningUse use;
  };
  constexpr Row kRows[] = {
      {"show", ReasoningUse::kShow}, {"hide", ReasoningUse::kHide}, {"off", ReasoningUse::kOff}};
  for (const Row& row : kRows) {
    if (text != row.name) continue;
    *use = row.use;
    return {};
  }
  return MakeError(ErrorCode::kInvalid, "expected show, hide or off, found '{}'", Visible(text));
}

constexpr std::string_view kNoTemplate =
    "{%- for message in messages %}{{ message.content }}{{ '\n' }}{% endfor -%}";

}  // namespace

void ConversationGroup::Add(OptionList& list, const std::string& group) {
  list.Group(group);
  list.Text("--system-prompt", &system, "TEXT", "The system's message, before all others");
  list.Text("--system-prompt-file", &system_file, "FILE",
            "Read the system's message from a file, as it is");
  list.Text("--chat-template,--chat-template-file", &template_name, "NAME|FILE",
            "Use this template instead of the model's own: one that comes with kvant, such as "
            "chatml, or a file with a Jinja template",
            "the one in the model's file");
  list.Flag(
      "--no-chat-template", &no_template,
      "Use no template: the prompt is the messages as they are, with a line break after each");
}

Status ConversationGroup::Check(const OptionList& list) {
  return list.Exclude({"--chat-template"}, "--no-chat-template");
}

Result<ChatTemplate> ConversationGroup::Template(const Model& model) const {
  if (no_template) return ChatTemplate::Parse(model, "--no-chat-template", kNoTemplate);
  if (template_name.has_value()) return ChatTemplate::Named(model, *template_name);
  auto own = ChatTemplate::OfModel(model);
  if (own.ok() || own.error().code != ErrorCode::kNotSupported) return own;
  return MakeError(own.error().code,
                   "{}; --chat-template chatml takes one that comes with kvant, and 'kvant run' "
                   "continues a text without one",
                   own.error().message);
}

Result<std::string> ConversationGroup::System() const {
  if (system.has_value() && system_file.has_value()) {
    return MakeError(ErrorCode::kInvalid,
                     "--system-prompt and --system-prompt-file exclude each other");
  }
  if (!system_file.has_value()) return system.value_or("");
  TextGroup text;
  text.file = system_file;
  KVANT_ASSIGN(const auto content, text.Read({}));
  return content.value_or("");
}

Result<std::vector<TokenId>> ConversationGroup::Prompt(const Model& model,
                                                       const std::string& message) const {
  KVANT_ASSIGN(const ChatTemplate chat_template, Template(model));
  KVANT_ASSIGN(const std::string system_text, System());
  std::vector<ChatMessage> messages;
  if (!system_text.empty()) {
    messages.push_back({.role = "system", .content = system_text, .reasoning = {}});
  }
  messages.push_back({.role = "user", .content = message, .reasoning = {}});
  return chat_template.Tokens(messages);
}

void ChatOptions::Add(OptionList& list) {
  conversation.Add(list, "Conversation");
  prompt.Add(list, "Conversation", "first message");
  list.Flag("--single-turn", &single_turn, "End after the first answer");
  list.Checked(
      "--reasoning", [this](const std::string& text) { return TakeReasoning(text, &reasoning); },
      "show|hide|off",
      "The thoughts of a model before its answer: show them, hide them, or ask the template for "
      "answers without them (off)",
      "show on a terminal, else hide");
  list.Text("--load", &load, "FILE", "Go on with a conversation that /save has saved");
  list.Flag("--context-shift", &context_shift,
            "When the context is full, forget the oldest messages instead of asking. In the middle "
            "of an answer, forget the earlier half of all that follows the system's message");
  list.Group("Generation");
  list.Integer("-n,--predict,--n-predict", &max_tokens, {-1, kContextMax},
               "Most tokens of an answer; -1 goes on until an end token or a full context");
  list.Texts("--stop,-r,--reverse-prompt", &stop_texts, "TEXT",
             "End an answer before this text, which is not shown; may be repeated");
  list.Flag("--ignore-eos", &ignore_eos, "Never choose an end token");
  list.Integer("--beams", &beams, {1, kChatBeamsMax},
               "Follow N texts at once and show the best one when it is complete; 1 is off");
  list.Group("Output");
  list.Flag("--stats,--json", &stats,
            "Write a line of JSON to stderr for each answer: tokens of the conversation, processed "
            "and reused, seconds");
  list.Flag("-q,--quiet", &quiet, "Show no heading, gauges or notes");
  sampling.Add(list);
  model.AddPath(list);
  model.AddPre(list);
  model.AddLoading(list);
  session.Add(list, SessionUse::kTexts, "the length the model was trained for");
  AddIdleOptions(list, IdleIn::kChat);
}

Status ChatOptions::Check(const OptionList& list) const {
  KVANT_TRY(sampling.Check(list));
  if (conversation.no_template) KVANT_TRY(ConversationGroup::Check(list));
  if (beams > 1) KVANT_TRY(list.Exclude({"--stop"}, "--beams"));
  if (!session.settings.options.kv_cache) {
    KVANT_TRY(list.Exclude({"--context-shift"}, "--no-kv-cache"));
  }
  if (max_tokens == 0) {
    return MakeError(ErrorCode::kInvalid, "-n: expected -1 or at least 1 token, found 0");
  }
  return {};
}

}  // namespace kvant::tools
