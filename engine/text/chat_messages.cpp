#include "engine/text/chat_messages.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/jinja/template.h"

namespace kvant {
namespace {

using OrderedJson = nlohmann::ordered_json;  // templates see members in the order of the text

Result<jinja::Value> MemberValues(const ChatMessage& message) {
  KVANT_ASSIGN(jinja::Value members,
               jinja::ValueOfJson(message.members, "the members of a message"));
  if (members.IsDict()) return members;
  return MakeError(ErrorCode::kInvalid,
                   "the members of a message: expected a JSON object, found a {}",
                   members.TypeName());
}

// A message without the members that ChatMessage has by name.
Result<ChatMessage> MessageOf(OrderedJson json) {
  if (!json.is_object()) {
    return MakeError(ErrorCode::kInvalid, "the messages: expected objects, found a JSON {}",
                     json.type_name());
  }
  ChatMessage message;
  const auto take = [&json](const char* key, std::string& to) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return false;
    to = found->get<std::string>();
    json.erase(found);
    return true;
  };
  if (!take("role", message.role)) {
    return MakeError(ErrorCode::kInvalid, "the messages: role: expected a text in each");
  }
  take("content", message.content);
  for (const char* key : {"reasoning_content", "reasoning", "thinking"}) {
    if (message.reasoning.empty()) take(key, message.reasoning);
  }
  if (!json.empty()) {
    message.members = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  return message;
}

}  // namespace

Result<jinja::Value> MessageValues(std::span<const ChatMessage> messages, const char* reasoning) {
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    jinja::DictBuilder builder;
    builder.SetText("role", jinja::Text::Foreign(message.role));
    builder.SetText("content", jinja::Text::Foreign(message.content));
    if (!message.reasoning.empty()) {
      builder.SetText(reasoning, jinja::Text::Foreign(message.reasoning));
    }
    if (!message.members.empty()) {
      KVANT_ASSIGN(const jinja::Value members, MemberValues(message));
      for (const auto& [key, value] : members.dict().items) KVANT_TRY(builder.Set(key, value));
    }
    KVANT_ASSIGN(jinja::Value value, builder.Finish());
    list.push_back(std::move(value));
  }
  return jinja::Value::Make(jinja::Sequence::Kind::kList, std::move(list));
}

Status CheckMembers(const ChatMessage& message) {
  if (message.members.empty()) return {};
  KVANT_TRY(MemberValues(message));
  return {};
}

Result<std::vector<ChatMessage>> MessagesOfJson(std::string_view json) {
  // Checks the text, and that nothing in it is nested too deeply to be written again.
  KVANT_ASSIGN(const jinja::Value checked, jinja::ValueOfJson(json, "the messages"));
  if (!checked.IsSequence()) {
    return MakeError(ErrorCode::kInvalid, "the messages: expected a JSON array, found a {}",
                     checked.TypeName());
  }
  std::vector<ChatMessage> messages;
  for (OrderedJson& item : OrderedJson::parse(json, nullptr, false)) {
    KVANT_ASSIGN(messages.emplace_back(), MessageOf(std::move(item)));
  }
  return messages;
}

std::string JsonOfMessages(std::span<const ChatMessage> messages) {
  OrderedJson json = OrderedJson::array();
  for (const ChatMessage& message : messages) {
    OrderedJson item = {{"role", message.role}, {"content", message.content}};
    if (!message.reasoning.empty()) item["reasoning_content"] = message.reasoning;
    if (!message.members.empty() && CheckMembers(message).ok()) {
      item.update(OrderedJson::parse(message.members, nullptr, false));
    }
    json.push_back(std::move(item));
  }
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace kvant
