// Messages with calls and results as a template takes them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/result.h"
#include "engine/jinja/template.h"
#include "engine/text/calls/call_writer.h"
#include "engine/text/calls/tool_list.h"
#include "kvant/tool_calls.h"

namespace kvant {
namespace {

using HistoryJson = nlohmann::ordered_json;

std::string DumpHistory(const HistoryJson& json) {
  return json.dump(-1, ' ', false, HistoryJson::error_handler_t::replace);
}

Result<HistoryJson> MembersOf(const ChatMessage& message) {
  if (message.members.empty()) return HistoryJson::object();
  KVANT_TRY(jinja::ValueOfJson(message.members, "the members of a message"));
  HistoryJson json = HistoryJson::parse(message.members, nullptr, false);
  if (json.is_object()) return json;
  return MakeError(ErrorCode::kInvalid,
                   "the members of a message: expected a JSON object, found a {}",
                   json.type_name());
}

// The calls of a message in the form that templates know, each with type, id and function.
class CallsOfHistory {
 public:
  explicit CallsOfHistory(const ToolFormat& format) : format_(format) {}

  Status Normalize(HistoryJson& calls, size_t message) {
    if (!calls.is_array()) {
      return MakeError(ErrorCode::kInvalid,
                       "messages: /{}/tool_calls: expected an array, found a {}", message,
                       calls.type_name());
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      HistoryJson& call = calls[i];
      const bool has_function = call.is_object() && call.contains("function");
      const bool has_name = has_function && call["function"].is_object() &&
                            call["function"].contains("name") &&
                            call["function"]["name"].is_string();
      if (!has_name) {
        return MakeError(ErrorCode::kInvalid,
                         "messages: /{}/tool_calls/{}/function/name: expected a text, found none",
                         message, i);
      }
      HistoryJson& function = call["function"];
      function["arguments"] = Arguments(function.value("arguments", HistoryJson("{}")));
      const std::string given =
          call.contains("id") && call["id"].is_string() ? call["id"].get<std::string>() : "";
      const std::string id = given.empty() ? NewId(function["name"].get<std::string>()) : given;
      call = {{"id", id}, {"type", "function"}, {"function", function}};
      ++number_;
    }
    return {};
  }

 private:
  HistoryJson Arguments(const HistoryJson& given) const {
    HistoryJson object = given;
    if (given.is_string()) {
      const auto text = given.get<std::string>();
      object = HistoryJson::parse(text, nullptr, false);
      if (text.find_first_not_of(" \t\r\n") == std::string::npos) object = HistoryJson::object();
      const bool is_shallow = jinja::ValueOfJson(text, "arguments").ok();
      if (!object.is_object() || !is_shallow) {
        return WantsText() ? given : HistoryJson{{"text", text}};
      }
      if (WantsText()) return given;
    }
    if (!object.is_object()) object = {{"text", DumpHistory(given)}};
    return WantsText() ? HistoryJson(DumpHistory(object)) : object;
  }

  bool WantsText() const { return format_.text_arguments || !format_.shows_calls; }

  // Nine letters and digits, as some templates want them.
  std::string NewId(const std::string& name) const {
    if (format_.name_in_id) return fmt::format("functions.{}:{}", name, number_);
    return fmt::format("call{:05}", number_ % 100000);
  }

  const ToolFormat& format_;
  size_t number_ = 0;  // of calls so far
};

std::vector<ToolCall> CallsAsTexts(const HistoryJson& calls) {
  std::vector<ToolCall> out;
  for (const HistoryJson& call : calls) {
    const HistoryJson& function = call["function"];
    const HistoryJson& arguments = function["arguments"];
    out.push_back(
        {.id = call["id"].get<std::string>(),
         .name = function["name"].get<std::string>(),
         .arguments = arguments.is_string() ? arguments.get<std::string>() : DumpHistory(arguments),
         .is_complete = true});
  }
  return out;
}

std::string ToolsAsText(const ToolFormat& format, const ToolList& tools) {
  std::string text = "You can call these tools:\n";
  for (const ToolEntry& tool : tools.tools()) {
    HistoryJson json = {{"name", tool.name}};
    if (!tool.description.empty()) json["description"] = tool.description;
    if (!tool.parameters.is_null()) json["parameters"] = tool.parameters;
    text += DumpHistory(json) + "\n";
  }
  const ToolCall example = {
      .id = "", .name = tools.tools().front().name, .arguments = "{}", .is_complete = true};
  text += "To call a tool, write its name and arguments in this form, and nothing behind it:\n" +
          TextOfCalls(format, {&example, 1}) +
          "\nThe results come in the next message. Without a need for a tool, answer as usual.";
  return text;
}

void PutInFront(const std::string& text, const ToolFormat& format,
                std::vector<ChatMessage>& messages) {
  const char* role = format.takes_system ? "system" : "user";
  if (!messages.empty() && messages.front().role == role) {
    messages.front().content = text + "\n\n" + messages.front().content;
  } else {
    messages.insert(messages.begin(), {.role = role, .content = text, .reasoning = {}});
  }
}

}  // namespace

Result<ToolMessages> MessagesForTools(const ToolFormat& format, std::string_view tools,
                                      std::span<const ChatMessage> messages) {
  KVANT_ASSIGN(const ToolList list, ToolList::Parse(tools));
  ToolMessages out;
  CallsOfHistory history(format);
  for (size_t i = 0; i < messages.size(); ++i) {
    ChatMessage message = messages[i];
    KVANT_ASSIGN(HistoryJson members, MembersOf(message));
    const bool has_calls = members.contains("tool_calls") && !members["tool_calls"].is_null();
    if (has_calls) KVANT_TRY(history.Normalize(members["tool_calls"], i));
    if (has_calls && !format.shows_calls) {
      const std::string calls = TextOfCalls(format, CallsAsTexts(members["tool_calls"]));
      message.content += (message.content.empty() ? "" : "\n") + calls;
      members.erase("tool_calls");
    } else if (has_calls && format.null_content && message.content.empty()) {
      members["content"] = nullptr;
    }
    message.members = members.empty() ? "" : DumpHistory(members);
    if (message.role == "tool" && !format.shows_calls) {
      const std::string result = "<tool_response>\n" + message.content + "\n</tool_response>";
      const bool joins = i > 0 && messages[i - 1].role == "tool";
      if (joins) {
        out.messages.back().content += "\n" + result;
        continue;
      }
      message = {.role = "user", .content = result, .reasoning = {}};
    }
    out.messages.push_back(std::move(message));
  }
  if (list.empty()) return out;
  if (format.shows_tools) {
    out.tools = tools;
  } else {
    PutInFront(ToolsAsText(format, list), format, out.messages);
  }
  return out;
}

}  // namespace kvant
