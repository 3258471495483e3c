// Endpoints of Anthropic's Messages and OpenAI's Responses, which are chats in another form.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "tools/serve/answer/messages_format.h"
#include "tools/serve/answer/responses_format.h"
#include "tools/serve/endpoints.h"
#include "tools/serve/request/dialect_names.h"
#include "tools/serve/request/dialects.h"

namespace kvant::tools {
namespace {

Json Copied(const RequestJson& object, std::string_view name) {
  const RequestJson* const value = Member(object, name);
  return value == nullptr ? Json(nullptr) : Json::parse(value->dump());
}

// Tools in the form of Responses.
Json ToolsOf(const ToolFields& fields) {
  Json out = Json::array();
  if (fields.tools.empty()) return out;
  for (const Json& tool : Json::parse(fields.tools)) {
    const Json& function = tool["function"];
    out.push_back({{"type", "function"},
                   {"name", function["name"]},
                   {"description", function.value("description", Json())},
                   {"parameters", function.value("parameters", Json())},
                   {"strict", function.value("strict", Json(false))}});
  }
  return out;
}

ResponseSettings SettingsOf(const ServedModel& served, const RequestJson& body,
                            const ToolFields& tools, const TextFields& fields) {
  ResponseSettings out;
  out.model = served.options().alias;
  out.instructions = Copied(body, "instructions");
  out.max_output_tokens = Copied(body, "max_output_tokens");
  if (const RequestJson* const text = Member(body, "text")) {
    if (Member(*text, "format") != nullptr) out.text_format = Copied(*text, "format");
  }
  if (const RequestJson* const reasoning = Member(body, "reasoning")) {
    out.reasoning_effort = Copied(*reasoning, "effort");
  }
  out.temperature = static_cast<double>(fields.sampling.temperature);
  out.top_p = static_cast<double>(fields.sampling.top_p);
  out.tools = ToolsOf(tools);
  if (const Json choice = Copied(body, "tool_choice"); !choice.is_null()) out.tool_choice = choice;
  out.is_parallel = tools.choice.is_parallel;
  return out;
}

// Tells which tools were skipped, in a header. Their types are words of the client.
void WarnOfSkipped(const std::vector<std::string>& types, Exchange& exchange) {
  constexpr size_t kTypesMax = 16;
  constexpr size_t kTypeBytesMax = 64;
  if (types.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(types.size(), kTypesMax); ++i) {
    if (i > 0) list += ", ";
    for (const char c : types[i].substr(0, kTypeBytesMax)) {
      const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
      list += is_plain ? c : '?';
    }
  }
  exchange.headers.push_back(
      {"Warning", fmt::format("299 kvant \"skipped tools of other types: {}\"", list)});
}

// Sends how many tokens a request's prompt is, as the members in `answer`.
void AnswerTokensOf(EndpointContext& context, Exchange& exchange, ToChat convert,
                    std::span<const DialectName> names, Json answer) {
  RequestJson body;
  ChatRequest chat;
  JobPrompt prompt;
  Refusal refusal = ReadChatBody(exchange, convert, &body, &chat);
  if (!refusal.has_value()) refusal = ReadPrompt(context, exchange, chat, &prompt);
  answer["input_tokens"] = prompt.tokens.size();
  SendOrRefuse(exchange, InNames(std::move(refusal), names), answer);
}

}  // namespace

void AnswerMessages(EndpointContext& context, Exchange exchange) {
  RequestJson body;
  ChatRequest chat;
  Refusal refusal = ReadChatBody(exchange, ChatOfMessages, &body, &chat);
  if (!refusal.has_value()) {
    const auto make = [&](const TextFields&) {
      return std::make_unique<MessagesFormat>(context.served.options().alias);
    };
    refusal = InNames(StartChat(context, chat, make, exchange), kMessagesNames);
  }
  if (refusal.has_value()) exchange.Refuse(*refusal);
}

void AnswerMessagesTokens(EndpointContext& context, Exchange exchange) {
  AnswerTokensOf(context, exchange, CountedMessages, kMessagesNames, Json::object());
}

void AnswerResponses(EndpointContext& context, Exchange exchange) {
  RequestJson body;
  ChatRequest chat;
  Refusal refusal = ReadChatBody(exchange, ChatOfResponses, &body, &chat);
  if (!refusal.has_value()) {
    const auto make = [&](const TextFields& fields) {
      return std::make_unique<ResponsesFormat>(
          SettingsOf(context.served, body, chat.tools, fields));
    };
    WarnOfSkipped(chat.tools.skipped, exchange);
    refusal = InNames(StartChat(context, chat, make, exchange), kResponsesNames);
  }
  if (refusal.has_value()) exchange.Refuse(*refusal);
}

void AnswerResponsesTokens(EndpointContext& context, Exchange exchange) {
  AnswerTokensOf(context, exchange, ChatOfResponses, kResponsesNames,
                 {{"object", "response.input_tokens"}});
}

}  // namespace kvant::tools
