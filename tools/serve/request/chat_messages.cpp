#include "tools/serve/request/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/options/json.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {
namespace {

using formats::Shown;

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

// The text of a content that is a text or a list of parts of text.
Refusal ReadContent(const RequestJson& content, const std::string& place, std::string* text) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return {};
  }
  if (!content.is_array()) {
    return WrongValue(place, fmt::format("expected a text or parts, found {}", Shown(content)));
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const RequestJson& part = content[i];
    const std::string where = fmt::format("{}[{}]", place, i);
    const RequestJson* const type = Member(part, "type");
    if (type == nullptr || !type->is_string()) {
      return WrongValue(where + ".type", "expected text, found nothing");
    }
    const std::string& name = type->get_ref<const std::string&>();
    if (name != "text" && name != "input_text" && name != "output_text") {
      return NotSupported(where + ".type", fmt::format("expected text, found {}: images and sound "
                                                       "are not there",
                                                       Shown(*type)));
    }
    const RequestJson* const words = Member(part, "text");
    if (words == nullptr || !words->is_string()) {
      return WrongValue(where + ".text", "expected a text");
    }
    if (!text->empty()) text->push_back('\n');
    *text += words->get_ref<const std::string&>();
  }
  return {};
}

// A call of an earlier answer. Its members have the order in which models write them.
Refusal ReadCall(const RequestJson& call, const std::string& place, Json* out) {
  if (!call.is_object()) return WrongType(place, "an object", call);
  const RequestJson* const type = Member(call, "type");
  if (type != nullptr && *type != "function") {
    return NotSupported(place + ".type", fmt::format("expected function, found {}", Shown(*type)));
  }
  const RequestJson* const id = Member(call, "id");
  if (id != nullptr && !id->is_string()) return WrongType(place + ".id", "a text", *id);
  const RequestJson* const function = Member(call, "function");
  if (function == nullptr || !function->is_object()) {
    return WrongMember(place + ".function", "an object", function);
  }
  const RequestJson* const name = Member(*function, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    return WrongMember(place + ".function.name", "the name of a tool", name);
  }
  Json arguments = "{}";
  if (const RequestJson* const given = Member(*function, "arguments")) {
    if (!given->is_string() && !given->is_object()) {
      return WrongType(place + ".function.arguments", "a text or an object", *given);
    }
    arguments = *given;
  }
  *out = Json::object();
  if (id != nullptr) (*out)["id"] = *id;
  (*out)["type"] = "function";
  (*out)["function"] = {{"name", *name}, {"arguments", std::move(arguments)}};
  return {};
}

// The calls of a message, and the ids that tie results to calls.
Refusal ReadCalls(const RequestJson& message, const std::string& role, const std::string& place,
                  Json& out) {
  if (Member(message, "function_call") != nullptr) {
    return NotSupported(place + ".function_call", "expected tool_calls in its place");
  }
  const RequestJson* const id = Member(message, "tool_call_id");
  if (id != nullptr && !id->is_string()) return WrongType(place + ".tool_call_id", "a text", *id);
  const RequestJson* const calls = Member(message, "tool_calls");
  out.erase("tool_calls");
  if (calls == nullptr) return {};
  const std::string where = place + ".tool_calls";
  if (!calls->is_array()) return WrongType(where, "a list of calls", *calls);
  if (calls->empty()) return {};
  if (role != "assistant") return WrongValue(where, "expected none in a message of this role");
  Json list = Json::array();
  for (size_t i = 0; i < calls->size(); ++i) {
    KVANT_REFUSE(ReadCall((*calls)[i], fmt::format("{}[{}]", where, i), &list.emplace_back()));
  }
  out["tool_calls"] = std::move(list);
  return {};
}

Refusal ReadMessage(const RequestJson& message, const std::string& place, Json& out) {
  if (!message.is_object()) {
    return WrongValue(place, fmt::format("expected an object, found {}", Shown(message)));
  }
  const RequestJson* const role = Member(message, "role");
  const std::string name = role != nullptr && role->is_string() ? role->get<std::string>() : "";
  if (std::ranges::find(kRoles, name) == std::end(kRoles)) {
    return WrongValue(place + ".role",
                      fmt::format("expected system, developer, user, assistant or tool, found {}",
                                  role == nullptr ? "nothing" : Shown(*role)));
  }
  out = message;
  out["role"] = name == "developer" ? "system" : name;
  KVANT_REFUSE(ReadCalls(message, name, place, out));
  std::string text;
  const RequestJson* const content = Member(message, "content");
  if (content != nullptr) {
    KVANT_REFUSE(ReadContent(*content, place + ".content", &text));
  } else if (!out.contains("tool_calls")) {
    return WrongValue(place + ".content", "expected a text, found nothing");
  }
  out["content"] = std::move(text);
  return {};
}

// A last message of the assistant is continued anyway. One that is to be continued cannot have the
// beginning of a new one behind it.
Refusal CheckContinuation(const RequestJson& body) {
  bool continues = false;
  bool begins = false;
  KVANT_REFUSE(ReadFlag(body, "continue_final_message", &continues));
  KVANT_REFUSE(ReadFlag(body, "add_generation_prompt", &begins));
  if (!continues || !begins) return {};
  return WrongValue("continue_final_message",
                    "not possible together with add_generation_prompt: true");
}

}  // namespace

Refusal ReadMessages(const RequestJson& body, ChatMessages* out) {
  KVANT_REFUSE(CheckContinuation(body));
  const RequestJson* const messages = Member(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return WrongValue("messages", "expected a list of at least one message");
  }
  Json array = Json::array();
  for (size_t i = 0; i < messages->size(); ++i) {
    Json& message = array.emplace_back();
    KVANT_REFUSE(ReadMessage((*messages)[i], fmt::format("messages[{}]", i), message));
    out->has_calls |= message.contains("tool_calls") || message["role"] == "tool";
  }
  const auto is_answer = [](const Json& message) {
    return message["role"] == "assistant" && !message.contains("tool_calls");
  };
  if (is_answer(array.back())) {
    if (array.size() > 1 && array[array.size() - 2]["role"] == "assistant") {
      return WrongValue("messages", "expected at most one message of the assistant at the end");
    }
    out->continues = true;
    out->continuation = array.back()["content"].get<std::string>();
    array.erase(array.size() - 1);
    if (array.empty()) return WrongValue("messages", "expected a message before the assistant's");
  }
  out->json = Dump(array);
  return {};
}

}  // namespace kvant::tools
