#include "tools/serve/request/dialects.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tools/serve/request/ordered_body.h"

namespace kvant::tools {
namespace {

using formats::JsonText;
using formats::Shown;

// Copies members that both interfaces have, under these names.
void CopyMembers(const RequestJson& body,
                 std::initializer_list<std::pair<const char*, const char*>> names,
                 RequestJson& chat) {
  for (const auto& [from, to] : names) {
    if (const RequestJson* const value = Member(body, from)) chat[to] = *value;
  }
}

// The texts of parts of these types, joined by `between`. Others are refused.
Refusal JoinParts(const RequestJson& parts, const std::string& place,
                  std::initializer_list<std::string_view> types, std::string_view between,
                  std::string* out) {
  if (parts.is_string()) {
    *out = parts.get<std::string>();
    return {};
  }
  if (!parts.is_array()) return WrongType(place, "a text or a list of parts", parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string type = JsonText(parts[i], "type");
    const std::string where = fmt::format("{}[{}]", place, i);
    if (std::ranges::find(types, type) == types.end()) {
      return NotSupported(where + ".type",
                          fmt::format("a part of type '{}' is not there yet", type));
    }
    const RequestJson* const text = Member(parts[i], "text");
    if (text == nullptr || !text->is_string()) {
      return WrongMember(where + ".text", "a text", text);
    }
    if (!out->empty()) *out += between;
    *out += text->get_ref<const std::string&>();
  }
  return {};
}

// ---- Messages -----------------------------------------------------------------------------------

// Claude Code begins the system's text with a line that has another number in each request. Without
// the number prompts that are the same otherwise begin alike.
std::string WithoutBilling(std::string text) {
  if (!text.starts_with("x-anthropic-billing-header:")) return text;
  const size_t line = std::min(text.find('\n'), text.size());
  const size_t begin = text.find("cch=");
  if (begin >= line) return text;
  const size_t end = std::min(text.find(';', begin), line);
  return text.erase(begin, end - begin);
}

// A text among the members of an object.
Refusal ReadMemberText(const RequestJson& object, std::string_view name, const std::string& place,
                       std::string* out) {
  const RequestJson* const text = Member(object, name);
  if (text == nullptr || !text->is_string()) {
    return WrongMember(fmt::format("{}.{}", place, name), "a text", text);
  }
  *out = text->get<std::string>();
  return {};
}

RequestJson CallOf(std::string id, std::string name, std::string arguments) {
  return {{"id", std::move(id)},
          {"type", "function"},
          {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}};
}

void AddText(std::string_view more, std::string_view between, std::string& text) {
  if (!text.empty()) text += between;
  text += more;
}

// A message of Messages, block by block. Results of tools become messages before its text.
class BlockReader {
 public:
  // `ordered` is the message with its members in order.
  BlockReader(std::string place, const Json& ordered)
      : place_(std::move(place)), ordered_(ordered) {}

  Refusal Read(const RequestJson& message, RequestJson& messages) {
    role_ = JsonText(message, "role");
    if (role_ != "user" && role_ != "assistant") {
      return WrongValue(place_ + ".role",
                        fmt::format("expected user or assistant, found '{}'", role_));
    }
    const RequestJson* const content = Member(message, "content");
    if (content == nullptr) {
      return WrongValue(place_ + ".content", "expected a text, found nothing");
    }
    if (content->is_string()) text_ = content->get<std::string>();
    if (!content->is_string() && !content->is_array()) {
      return WrongType(place_ + ".content", "a text or a list of parts", *content);
    }
    for (size_t i = 0; content->is_array() && i < content->size(); ++i) {
      KVANT_REFUSE(ReadBlock((*content)[i], i, messages));
    }
    if (has_results_ && text_.empty()) return {};
    RequestJson out = {{"role", role_}, {"content", std::move(text_)}};
    if (!thoughts_.empty()) out["reasoning_content"] = std::move(thoughts_);
    if (!calls_.empty()) out["tool_calls"] = std::move(calls_);
    messages.push_back(std::move(out));
    return {};
  }

 private:
  Refusal ReadBlock(const RequestJson& block, size_t index, RequestJson& messages) {
    const std::string type = JsonText(block, "type");
    const std::string where = fmt::format("{}.content[{}]", place_, index);
    const bool is_answer = role_ == "assistant";
    if (type == "text") {
      std::string text;
      KVANT_REFUSE(ReadMemberText(block, "text", where, &text));
      AddText(text, "\n", text_);
      return {};
    }
    if (is_answer && type == "redacted_thinking") return {};
    if (is_answer && type == "thinking") {
      std::string text;
      KVANT_REFUSE(ReadMemberText(block, "thinking", where, &text));
      thoughts_ += text;
      return {};
    }
    if (is_answer && type == "tool_use") return ReadUse(block, index, where);
    if (!is_answer && type == "tool_result") return ReadResult(block, where, messages);
    return NotSupported(
        where + ".type",
        fmt::format("a part of type '{}' is not there in a message of the {}", type, role_));
  }

  Refusal ReadUse(const RequestJson& block, size_t index, const std::string& where) {
    std::string id;
    std::string name;
    KVANT_REFUSE(ReadMemberText(block, "id", where, &id));
    KVANT_REFUSE(ReadMemberText(block, "name", where, &name));
    const RequestJson* const input = Member(block, "input");
    if (input == nullptr || !input->is_object()) {
      return WrongMember(where + ".input", "an object", input);
    }
    calls_.push_back(CallOf(id, name, Dump(ordered_["content"][index]["input"])));
    return {};
  }

  Refusal ReadResult(const RequestJson& block, const std::string& where, RequestJson& messages) {
    std::string id;
    KVANT_REFUSE(ReadMemberText(block, "tool_use_id", where, &id));
    bool is_error = false;
    if (const RequestJson* const flag = Member(block, "is_error")) {
      if (!flag->is_boolean()) return WrongType(where + ".is_error", "true or false", *flag);
      is_error = flag->get<bool>();
    }
    std::string text;
    if (const RequestJson* const content = Member(block, "content")) {
      KVANT_REFUSE(JoinParts(*content, where + ".content", {"text"}, "\n", &text));
    }
    if (is_error) text = "Error: " + text;
    messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(text)}});
    has_results_ = true;
    return {};
  }

  std::string place_;
  const Json& ordered_;
  std::string role_;
  std::string text_;
  std::string thoughts_;
  RequestJson calls_ = RequestJson::array();
  bool has_results_ = false;
};

// Refuses what would need earlier messages, or other servers. Clients that try threads of messages
// take `details` for the advice to send whole conversations.
Refusal CheckAlone(const RequestJson& body) {
  if (Member(body, "thread") != nullptr) {
    ApiError error =
        NotSupported("thread", "the server keeps no messages; send the whole conversation");
    error.further = {
        {"details",
         {{"error_code", "thread_unsupported_request"}, {"unsupported", Json::array({"thread"})}}}};
    return error;
  }
  const RequestJson* const servers = Member(body, "mcp_servers");
  if (servers != nullptr && !(servers->is_array() && servers->empty())) {
    return NotSupported("mcp_servers", "the server asks no other servers for tools");
  }
  return {};
}

Refusal ReadThinking(const RequestJson& body, RequestJson& chat) {
  const RequestJson* const thinking = Member(body, "thinking");
  if (thinking == nullptr) return {};
  const std::string type = JsonText(*thinking, "type");
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return WrongType("thinking.type", "enabled, adaptive or disabled", *thinking);
  }
  if (type != "adaptive") {
    chat["chat_template_kwargs"] = {{"enable_thinking", type == "enabled"}};
  }
  return {};
}

// A format of the answer beside tools, whose calls have a form of their own.
Refusal CheckFormat(const std::string& place, const ChatRequest& chat) {
  const RequestJson* const format = Member(chat.body, "response_format");
  if (format == nullptr || *format == RequestJson{{"type", "text"}} || !chat.tools.are_used()) {
    return {};
  }
  return WrongValue(place, "not possible together with tools");
}

// A format whose member `schema` is a JSON schema.
Refusal TakeSchema(const RequestJson& format, const std::string& place, RequestJson& chat) {
  const RequestJson* const schema = Member(format, "schema");
  if (schema == nullptr) {
    return WrongValue(place + ".schema", "expected a JSON schema, found nothing");
  }
  chat["response_format"] = {{"type", "json_schema"}, {"schema", *schema}};
  return {};
}

Refusal ReadOutputConfig(const RequestJson& body, RequestJson& chat) {
  const RequestJson* const config = Member(body, "output_config");
  if (config == nullptr) return {};
  if (!config->is_object()) return WrongType("output_config", "an object", *config);
  if (const RequestJson* const format = Member(*config, "format")) {
    if (JsonText(*format, "type") != "json_schema") {
      return WrongType("output_config.format.type", "json_schema", *format);
    }
    KVANT_REFUSE(TakeSchema(*format, "output_config.format", chat));
  }
  CopyMembers(*config, {{"effort", "reasoning_effort"}}, chat);
  return {};
}

// ---- Responses ----------------------------------------------------------------------------------

// The items of an input as messages. Thoughts, text and calls of one answer are items that follow
// each other, and become one message.
class ItemReader {
 public:
  explicit ItemReader(RequestJson& messages) : messages_(messages) {}

  Refusal Add(const RequestJson& item, const std::string& place) {
    const std::string type = JsonText(item, "type", "message");
    if (type == "message") return AddMessage(item, place);
    if (type == "reasoning") return AddThoughts(item, place);
    if (type == "function_call") return AddCall(item, place);
    if (type == "function_call_output") return AddResult(item, place);
    return NotSupported(place + ".type", fmt::format("items of type '{}' are not there yet", type));
  }

  // Ends the answer whose items came last. One that has only thoughts is left out.
  void EndAnswer() {
    if (!std::exchange(is_open_, false)) return;
    const RequestJson& answer = messages_.back();
    if (answer["content"] == "" && !answer.contains("tool_calls")) {
      messages_.erase(messages_.size() - 1);
    }
  }

 private:
  RequestJson& Answer() {
    if (!std::exchange(is_open_, true)) {
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
    }
    return messages_.back();
  }

  Refusal AddMessage(const RequestJson& item, const std::string& place) {
    const RequestJson* const content = Member(item, "content");
    if (content == nullptr) return WrongValue(place + ".content", "expected a text, found nothing");
    std::string text;
    KVANT_REFUSE(JoinParts(*content, place + ".content", {"input_text", "output_text", "text"},
                           "\n", &text));
    const RequestJson* const given = Member(item, "role");
    const RequestJson role = given == nullptr ? RequestJson("user") : *given;
    if (role == "assistant") {
      if (is_open_ && messages_.back()["content"] != "") EndAnswer();
      Answer()["content"] = std::move(text);
      return {};
    }
    EndAnswer();
    const bool is_system = role == "system" || role == "developer";
    if (is_system && messages_.size() == 1 && messages_[0]["role"] == "system") {
      // The first texts are one message, since many templates take no second one.
      std::string& first = messages_[0]["content"].get_ref<std::string&>();
      AddText(text, "\n\n", first);
      return {};
    }
    messages_.push_back(
        {{"role", is_system ? RequestJson("system") : role}, {"content", std::move(text)}});
    return {};
  }

  // The text of thoughts, or else their summary.
  Refusal AddThoughts(const RequestJson& item, const std::string& place) {
    std::string text;
    for (const char* const name : {"content", "summary"}) {
      const RequestJson* const parts = Member(item, name);
      if (parts == nullptr || !text.empty()) continue;
      KVANT_REFUSE(JoinParts(*parts, fmt::format("{}.{}", place, name),
                             {"reasoning_text", "summary_text", "text"}, "\n", &text));
    }
    if (text.empty()) return {};
    RequestJson& answer = Answer();
    std::string thoughts = JsonText(answer, "reasoning_content");
    AddText(text, "\n", thoughts);
    answer["reasoning_content"] = std::move(thoughts);
    return {};
  }

  Refusal AddCall(const RequestJson& item, const std::string& place) {
    std::string id;
    std::string name;
    std::string arguments;
    KVANT_REFUSE(ReadMemberText(item, "call_id", place, &id));
    KVANT_REFUSE(ReadMemberText(item, "name", place, &name));
    KVANT_REFUSE(ReadMemberText(item, "arguments", place, &arguments));
    Answer()["tool_calls"].push_back(CallOf(id, name, arguments));
    return {};
  }

  Refusal AddResult(const RequestJson& item, const std::string& place) {
    EndAnswer();
    std::string id;
    KVANT_REFUSE(ReadMemberText(item, "call_id", place, &id));
    const RequestJson* const output = Member(item, "output");
    if (output == nullptr) return WrongValue(place + ".output", "expected a text, found nothing");
    std::string text;
    KVANT_REFUSE(
        JoinParts(*output, place + ".output", {"input_text", "output_text", "text"}, "\n", &text));
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(text)}});
    return {};
  }

  RequestJson& messages_;
  bool is_open_ = false;  // the last message is an answer that may go on
};

Refusal ReadTextOptions(const RequestJson& body, RequestJson& chat) {
  const RequestJson* const text = Member(body, "text");
  if (text == nullptr) return {};
  if (!text->is_object()) return WrongType("text", "an object", *text);
  const RequestJson* const format = Member(*text, "format");
  if (format == nullptr) return {};
  const std::string type = JsonText(*format, "type");
  if (type == "json_schema") return TakeSchema(*format, "text.format", chat);
  if (type != "text" && type != "json_object") {
    return WrongType("text.format.type", "text, json_object or json_schema", *format);
  }
  chat["response_format"] = {{"type", type}};
  return {};
}

// Refuses what would need an earlier answer, or an answer that is fetched later.
Refusal CheckStateless(const RequestJson& body) {
  for (const char* const name : {"previous_response_id", "conversation", "prompt"}) {
    if (Member(body, name) != nullptr) {
      return NotSupported(name, "the server keeps no answers; send the whole conversation");
    }
  }
  bool background = false;
  KVANT_REFUSE(ReadFlag(body, "background", &background));
  if (background) return NotSupported("background", "answers come at once or not at all");
  const RequestJson* const log_probs = Member(body, "top_logprobs");
  if (log_probs != nullptr && *log_probs != 0) {
    return NotSupported("top_logprobs", "log-probabilities are in /v1/chat/completions");
  }
  return {};
}

}  // namespace

Refusal ReadChat(const RequestJson& body, std::string_view text, ChatRequest* chat) {
  chat->body = body;
  for (const char* const name : {"tools", "tool_choice"}) chat->body.erase(name);
  Json ordered;
  if (Member(body, "tools") != nullptr) KVANT_REFUSE(ParseInOrder(body, text, &ordered));
  return ToolsOfChat(body, ordered, &chat->tools);
}

Refusal CountedMessages(const RequestJson& body, std::string_view text, ChatRequest* chat) {
  RequestJson with_limit = body;
  with_limit["max_tokens"] = 1;
  return ChatOfMessages(with_limit, text, chat);
}

Refusal ChatOfMessages(const RequestJson& body, std::string_view text, ChatRequest* request) {
  RequestJson* const chat = &request->body;
  *chat = RequestJson::object();
  Json ordered;
  KVANT_REFUSE(ParseInOrder(body, text, &ordered));
  KVANT_REFUSE(CheckAlone(body));
  KVANT_REFUSE(ToolsOfMessages(body, ordered, &request->tools));
  if (Member(body, "max_tokens") == nullptr) {
    return WrongValue("max_tokens", "expected a whole number of 1 or more, found nothing");
  }
  if (Member(body, "max_tokens")->is_number() && *Member(body, "max_tokens") < 1) {
    return WrongType("max_tokens", "a whole number of 1 or more", *Member(body, "max_tokens"));
  }
  RequestJson messages = RequestJson::array();
  if (const RequestJson* const system = Member(body, "system")) {
    std::string words;
    KVANT_REFUSE(JoinParts(*system, "system", {"text"}, "\n", &words));
    messages.push_back({{"role", "system"}, {"content", WithoutBilling(std::move(words))}});
  }
  const RequestJson* const given = Member(body, "messages");
  if (given == nullptr || !given->is_array() || given->empty()) {
    return WrongValue("messages", "expected a list of at least one message");
  }
  for (size_t i = 0; i < given->size(); ++i) {
    BlockReader reader(fmt::format("messages[{}]", i), ordered["messages"][i]);
    KVANT_REFUSE(reader.Read((*given)[i], messages));
  }
  (*chat)["messages"] = std::move(messages);
  if (const RequestJson* const stops = Member(body, "stop_sequences")) {
    if (!stops->is_array()) return WrongType("stop_sequences", "a list of texts", *stops);
  }
  CopyMembers(body,
              {{"model", "model"},
               {"max_tokens", "max_tokens"},
               {"stop_sequences", "stop"},
               {"temperature", "temperature"},
               {"top_p", "top_p"},
               {"top_k", "top_k"},
               {"stream", "stream"}},
              *chat);
  KVANT_REFUSE(ReadThinking(body, *chat));
  KVANT_REFUSE(ReadOutputConfig(body, *chat));
  return CheckFormat("output_config.format", *request);
}

Refusal ChatOfResponses(const RequestJson& body, std::string_view text, ChatRequest* request) {
  RequestJson* const chat = &request->body;
  *chat = RequestJson::object();
  Json ordered;
  if (Member(body, "tools") != nullptr) KVANT_REFUSE(ParseInOrder(body, text, &ordered));
  KVANT_REFUSE(ToolsOfResponses(body, ordered, &request->tools));
  KVANT_REFUSE(CheckStateless(body));
  RequestJson messages = RequestJson::array();
  if (const RequestJson* const instructions = Member(body, "instructions")) {
    if (!instructions->is_string()) return WrongType("instructions", "a text", *instructions);
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const RequestJson* const input = Member(body, "input");
  if (input != nullptr && input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (input != nullptr && input->is_array() && !input->empty()) {
    ItemReader reader(messages);
    for (size_t i = 0; i < input->size(); ++i) {
      KVANT_REFUSE(reader.Add((*input)[i], fmt::format("input[{}]", i)));
    }
    reader.EndAnswer();
  } else {
    return WrongMember("input", "a text or a list of items", input);
  }
  (*chat)["messages"] = std::move(messages);
  CopyMembers(body,
              {{"model", "model"},
               {"max_output_tokens", "max_completion_tokens"},
               {"temperature", "temperature"},
               {"top_p", "top_p"},
               {"stream", "stream"}},
              *chat);
  if (const RequestJson* const reasoning = Member(body, "reasoning")) {
    if (!reasoning->is_object()) return WrongType("reasoning", "an object", *reasoning);
    CopyMembers(*reasoning, {{"effort", "reasoning_effort"}}, *chat);
  }
  KVANT_REFUSE(ReadTextOptions(body, *chat));
  return CheckFormat("text.format", *request);
}

}  // namespace kvant::tools
