// Tools in conversations: the format of calls, the grammar of answers, and the calls of
// answers as members of their messages.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/result.h"
#include "engine/text/answer_text.h"
#include "kvant/conversation.h"

namespace kvant {
namespace {

using MembersJson = nlohmann::ordered_json;

Error ToolsBesideGrammar() {
  return MakeError(ErrorCode::kInvalid,
                   "tools: not possible together with a grammar: calls have one of their own");
}

}  // namespace

bool HasControlMarks(const ToolFormat& format, const Tokenizer& tokenizer) {
  const std::string marks = format.section_open + format.call_open + format.name_close +
                            format.call_close + format.section_close + format.id_open +
                            (format.form == ToolFormat::Form::kChannels ? "<|channel|>" : "") +
                            format.reasoning_open;
  const auto ids = tokenizer.Encode(marks, {.add_special = false, .parse_special = true});
  if (!ids.ok()) return false;
  for (const TokenId id : *ids) {
    if (tokenizer.is_control(id)) return true;
  }
  return false;
}

FreeThoughts ThoughtsBeforeCalls(const ToolFormat& format, std::string_view prompt,
                                 const ChatTemplate& chat_template) {
  if (format.form == ToolFormat::Form::kChannels) {
    return {.marks = {{"<|channel|>analysis<|message|>", "<|end|><|start|>assistant"}}};
  }
  FreeThoughts thoughts = ThoughtsBehind(prompt, chat_template);
  if (!format.reasoning_open.empty() && thoughts.marks.empty()) {
    thoughts.marks = {{format.reasoning_open, format.reasoning_close}};
  }
  return thoughts;
}

bool Conversation::UsesTools() const {
  return format_.has_value() && options_.tool_choice.kind != ToolChoice::Kind::kNone;
}

Status Conversation::PrepareTools() {
  if (options_.render.tools.empty()) return {};
  KVANT_TRY(CheckTools(options_.render.tools));
  KVANT_ASSIGN(format_, DetectToolFormat(template_));
  return SetToolChoice(options_.tool_choice);
}

// Null where no calls are asked for.
Result<std::shared_ptr<const Grammar>> Conversation::MakeToolGrammar(
    const ToolFormat& format, const std::string& tools, const ToolChoice& choice) const {
  if (choice.kind == ToolChoice::Kind::kNone) return std::shared_ptr<const Grammar>();
  const Tokenizer& tokenizer = model().tokenizer();
  KVANT_ASSIGN(const GrammarText text, ToolGrammar(format, tools, choice, tokenizer));
  return Grammar::Create(text, tokenizer);
}

Status Conversation::SetToolChoice(ToolChoice choice) {
  if (!format_.has_value()) {
    return MakeError(ErrorCode::kInvalid, "tool choice: expected tools, found none");
  }
  if (choice.kind != ToolChoice::Kind::kNone && options_.grammar != nullptr) {
    return ToolsBesideGrammar();
  }
  KVANT_ASSIGN(tool_grammar_, MakeToolGrammar(*format_, options_.render.tools, choice));
  options_.tool_choice = std::move(choice);
  return {};
}

Status Conversation::SetGrammar(std::shared_ptr<const Grammar> grammar) {
  if (grammar != nullptr && UsesTools()) return ToolsBesideGrammar();
  options_.grammar = std::move(grammar);
  follows_file_ = false;
  return {};
}

// Makes for this model and template what answers of a saved conversation followed.
Result<Conversation::Follows> Conversation::FollowsOf(const Saved& saved,
                                                      const std::string& path) const {
  const auto at = [&](const char* key, const Error& error) {
    return MakeError(error.code, "{}: {}: {}", path, key, error.message);
  };
  Follows out;
  if (!saved.tools.empty()) {
    const Status tools = CheckTools(saved.tools);
    if (!tools.ok()) return at("tools", tools.error());
    KVANT_ASSIGN(out.format, DetectToolFormat(template_));
    auto made = MakeToolGrammar(*out.format, saved.tools, saved.tool_choice);
    if (!made.ok()) return at("tools", made.error());
    out.tool_grammar = std::move(*made);
    out.tools = saved.tools;
    out.tool_choice = saved.tool_choice;
  }
  if (saved.grammar.has_value()) {
    if (out.tool_grammar != nullptr) return at("grammar", ToolsBesideGrammar());
    auto made = Grammar::Create(*saved.grammar, model().tokenizer());
    if (!made.ok()) return at("grammar", made.error());
    out.grammar = std::move(*made);
  }
  return out;
}

// Without tools messages go to the template as they are.
Result<ChatText> Conversation::Rendered(std::span<const ChatMessage> messages) const {
  if (!format_.has_value()) return template_.RenderText(messages, options_.render);
  std::string_view tools;
  if (UsesTools()) tools = options_.render.tools;
  KVANT_ASSIGN(const ToolMessages fit, MessagesForTools(*format_, tools, messages));
  ChatRenderOptions render = options_.render;
  render.tools = fit.tools;
  return template_.RenderText(fit.messages, render);
}

Result<std::vector<TokenId>> Conversation::TokensOf(std::span<const ChatMessage> messages) const {
  KVANT_ASSIGN(const ChatText text, Rendered(messages));
  return template_.Tokens(text);
}

// Gives each complete call an id of its own, of nine letters and digits where the model wrote none.
std::string Conversation::MembersOfCalls(std::span<ToolCall> calls) const {
  std::set<std::string> ids;
  size_t number = 0;
  for (const ConversationEntry& entry : entries_) {
    const auto members = MembersJson::parse(entry.message.members, nullptr, false);
    if (!members.is_object() || !members.contains("tool_calls")) continue;
    for (const MembersJson& call : members["tool_calls"]) {
      ++number;
      if (call.is_object() && call.contains("id") && call["id"].is_string()) {
        ids.insert(call["id"].get<std::string>());
      }
    }
  }
  MembersJson list = MembersJson::array();
  for (ToolCall& call : calls) {
    if (!call.is_complete) continue;
    while (call.id.empty() || ids.contains(call.id)) {
      call.id = format_->name_in_id ? fmt::format("functions.{}:{}", call.name, number)
                                    : fmt::format("call{:05}", number % 100000);
      ++number;
    }
    ids.insert(call.id);
    list.push_back({{"id", call.id},
                    {"type", "function"},
                    {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (list.empty()) return "";
  return MembersJson{{"tool_calls", list}}.dump(-1, ' ', false,
                                                MembersJson::error_handler_t::replace);
}

}  // namespace kvant
