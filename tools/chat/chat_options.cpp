#include "tools/chat/chat_options.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/limits.h"
#include "formats/json.h"
#include "tools/options/groups/idle_options.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr int64_t kChatBeamsMax = 64;

struct ReasoningRow {
  const char* name;
  ReasoningUse use;
};
// llama.cpp's word for showing thoughts comes last, so that it is read and never written.
constexpr ReasoningRow kReasoningRows[] = {{"show", ReasoningUse::kShow},
                                           {"hide", ReasoningUse::kHide},
                                           {"off", ReasoningUse::kOff},
                                           {"on", ReasoningUse::kShow}};

constexpr std::string_view kNoTemplate =
    "{%- for message in messages %}{{ message.content }}{{ '\n' }}{% endfor -%}";

}  // namespace

Result<ReasoningUse> ParseReasoning(const std::string& text) {
  for (const ReasoningRow& row : kReasoningRows) {
    if (text == row.name) return row.use;
  }
  return MakeError(ErrorCode::kInvalid, "expected show, hide or off, found '{}'", Visible(text));
}

const char* ReasoningName(ReasoningUse use) {
  for (const ReasoningRow& row : kReasoningRows) {
    if (use == row.use) return row.name;
  }
  return "";
}

void ConversationGroup::AddReasoning(OptionList& list, ThoughtsUse thoughts) {
  const bool apart = thoughts == ThoughtsUse::kToldApart;
  const auto take = [this, apart](const std::string& text) -> Status {
    reasoning.reset();
    if (text == "auto") return {};
    if (!apart && (text == "show" || text == "hide")) {
      return MakeError(ErrorCode::kInvalid, "expected on, off or auto, found '{}'", text);
    }
    KVANT_ASSIGN(reasoning, ParseReasoning(text));
    return {};
  };
  list.Checked("--reasoning", take, apart ? "show|hide|off|auto" : "on|off|auto",
               apart ? "The thoughts of a model before its answer: show them, hide them, or ask "
                       "the template for answers without them (off)"
                     : "off asks the template for an answer without thoughts before it",
               apart ? "show on a terminal, else hide" : "auto");
  const auto take_budget = [this](int64_t tokens) {
    if (tokens == 0) reasoning = ReasoningUse::kOff;
  };
  list.Integer("--reasoning-budget", take_budget, {-1, 0},
               "0 is --reasoning off, -1 sets no limit; others are not there", "-1");
}

void ConversationGroup::Add(OptionList& list, const std::string& group, ThoughtsUse thoughts) {
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
  list.Text("--chat-template-kwargs", &variables, "JSON",
            "Further variables of the template: {\"enable_thinking\": false}");
  std::vector<std::string> names;
  for (const std::string_view name : ChatTemplate::BuiltInNames()) names.emplace_back(name);
  list.Values("--chat-template", std::move(names));
  AddReasoning(list, thoughts);
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

Result<ChatRenderOptions> ConversationGroup::Render() const {
  ChatRenderOptions out;
  if (variables.has_value()) {
    const auto object = formats::ParseJson(*variables, "--chat-template-kwargs");
    if (!object.ok() || !object->is_object()) {
      return MakeError(ErrorCode::kInvalid,
                       "--chat-template-kwargs: expected a JSON object such as "
                       "{{\"enable_thinking\": false}}, found '{}'",
                       Visible(*variables));
    }
    out.variables = *variables;
  }
  if (reasoning == ReasoningUse::kOff) out.enable_thinking = false;
  return out;
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
  KVANT_ASSIGN(const ChatRenderOptions render, Render());
  return chat_template.Tokens(messages, render);
}

void ChatOptions::Add(OptionList& list) {
  conversation.Add(list, "Conversation", ThoughtsUse::kToldApart);
  prompt.Add(list, "Conversation", "first message");
  list.Flag("--single-turn", &single_turn, "End after the first answer");
  list.Text("--load", &load, "FILE", "Go on with a conversation that /save has saved");
  tools.Add(list,
            "Calls are shown, and what you type, or the next line of standard input, is a call's "
            "result");
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
  list.Flag("--no-word-wrap", &no_word_wrap,
            "On a terminal, break the lines of answers anywhere instead of between words");
  list.Flag("--stats,--json", &stats,
            "Write a line of JSON to stderr for each answer: tokens of the conversation, processed "
            "and reused, seconds");
  list.Flag("-q,--quiet", &quiet, "Show no heading, gauges or notes");
  sampling.Add(list);
  grammar.Add(list);
  list.Group("Long texts and speed");
  draft.Add(list);
  model.AddPath(list);
  model.AddPre(list);
  model.AddLoading(list);
  session.Add(list, SessionUse::kTexts, "the length the model was trained for");
  AddIdleOptions(list, IdleIn::kChat);
}

Status ChatOptions::Check(const OptionList& list) const {
  KVANT_TRY(sampling.Check(list));
  KVANT_TRY(GrammarGroup::Check(list));
  if (conversation.no_template) KVANT_TRY(ConversationGroup::Check(list));
  KVANT_TRY(draft.Check(list));
  if (beams > 1) KVANT_TRY(list.Exclude({"--stop", "--draft"}, "--beams"));
  if (!session.settings.options.kv_cache) {
    KVANT_TRY(list.Exclude({"--context-shift", "--draft"}, "--no-kv-cache"));
  }
  KVANT_TRY(tools.Check());
  if (max_tokens == 0) {
    return MakeError(ErrorCode::kInvalid, "-n: expected -1 or at least 1 token, found 0");
  }
  return {};
}

}  // namespace kvant::tools
