#include "tools/serve/answer/chat_prompt.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/result.h"
#include "tools/serve/request/chat_messages.h"

namespace kvant::tools {
namespace {

// Messages without calls go to the template as they are. Others are made to fit what it expects.
Result<ChatText> Render(ServedModel& served, const ToolFields& tools, const ChatMessages& messages,
                        ChatRenderOptions render) {
  const ChatTemplate& chat_template = *served.chat_template();
  if (!tools.are_used() && !messages.has_calls) {
    return chat_template.RenderJson(messages.json, render);
  }
  const Result<ToolFormat>& format = served.tools().format();
  if (!format.ok()) return format.error();
  KVANT_ASSIGN(const auto list, MessagesOfJson(messages.json));
  const std::string_view shown = tools.are_used() ? std::string_view(tools.tools) : "";
  KVANT_ASSIGN(const ToolMessages fit, MessagesForTools(*format, shown, list));
  render.tools = fit.tools;
  return chat_template.RenderText(fit.messages, render);
}

// The library's message begins with the name of a tool: "tool order: /parameters/...".
ApiError SchemaError(const ToolFields& tools, const std::string& message) {
  for (const auto& [name, field] : tools.schemas) {
    if (message.starts_with("tool " + name + ": ")) return WrongValue(field, message);
  }
  return WrongValue("tools", message);
}

void AddIds(const RequestJson& messages, std::set<std::string>& ids) {
  for (const RequestJson& message : messages) {
    const RequestJson* const calls = Member(message, "tool_calls");
    if (calls == nullptr) continue;
    for (const RequestJson& call : *calls) {
      if (const RequestJson* const id = Member(call, "id")) ids.insert(id->get<std::string>());
    }
  }
}

}  // namespace

Refusal MakeChatPrompt(ServedModel& served, const ChatRequest& chat,
                       const ChatRenderOptions& render, JobPrompt* out) {
  const auto& chat_template = served.chat_template();
  if (!chat_template.ok()) return ApiErrorOf(chat_template.error());
  ChatMessages messages;
  KVANT_REFUSE(ReadMessages(chat.body, &messages));
  auto text = Render(served, chat.tools, messages, render);
  if (!text.ok()) return ApiErrorOf(text.error(), "messages");
  if (messages.continues && !messages.continuation.empty()) {
    const size_t begin = text->text.size();
    text->text += messages.continuation;
    text->foreign.push_back({begin, text->text.size()});
  }
  auto tokens = chat_template->Tokens(*text);
  if (!tokens.ok()) return ApiErrorOf(tokens.error(), "messages");
  out->tokens = std::move(*tokens);
  out->text = std::move(text->text);
  if (out->tokens.empty()) {
    return WrongValue("messages", "the template makes an empty text of them");
  }
  return {};
}

Refusal PrepareTools(ServedModel& served, const ChatRequest& chat, std::optional<ToolUse>* out) {
  const ToolFields& tools = chat.tools;
  if (!tools.are_used()) return {};
  const Result<ToolFormat>& format = served.tools().format();
  if (!format.ok()) return ApiErrorOf(format.error(), "tools");
  auto grammar = served.tools().GrammarOf(tools.callable, tools.choice);
  if (!grammar.ok()) return SchemaError(tools, grammar.error().message);
  ToolUse& use = out->emplace();
  use.format = &*format;
  use.tools = tools.callable;
  use.grammar = std::move(*grammar);
  use.marks_are_control = served.tools().marks_are_control();
  AddIds(*Member(chat.body, "messages"), use.ids);
  return {};
}

}  // namespace kvant::tools
