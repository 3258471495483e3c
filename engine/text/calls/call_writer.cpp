#include "engine/text/calls/call_writer.h"

#include <nlohmann/json.hpp>

#include "engine/text/calls/call_values.h"

namespace kvant {
namespace {

using Form = ToolFormat::Form;
using CallJson = nlohmann::ordered_json;

std::string DumpCall(const CallJson& json) {
  return json.dump(-1, ' ', false, CallJson::error_handler_t::replace);
}

std::string QuotedForJson(std::string_view text) { return '"' + EscapedForJson(text) + '"'; }

std::string Joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string PythonText(const CallJson& json) {
  if (json.is_boolean()) return json.get<bool>() ? "True" : "False";
  if (json.is_null()) return "None";
  std::vector<std::string> parts;
  if (json.is_array()) {
    for (const CallJson& item : json) parts.push_back(PythonText(item));
    return '[' + Joined(parts) + ']';
  }
  if (!json.is_object()) return DumpCall(json);
  for (const auto& [key, value] : json.items()) {
    parts.push_back(QuotedForJson(key) + ": " + PythonText(value));
  }
  return '{' + Joined(parts) + '}';
}

std::string BracedText(const CallJson& json) {
  const std::string quote(kBracedQuote);
  if (json.is_string()) return quote + json.get<std::string>() + quote;
  std::string out;
  if (json.is_array()) {
    for (const CallJson& item : json) out += (out.empty() ? "" : ",") + BracedText(item);
    return '[' + out + ']';
  }
  if (!json.is_object()) return DumpCall(json);
  for (const auto& [key, value] : json.items()) {
    out += (out.empty() ? "" : ",") + key + ':' + BracedText(value);
  }
  return '{' + out + '}';
}

std::string TaggedText(const ToolFormat& format, const CallJson& arguments) {
  std::string out;
  for (const auto& [key, value] : arguments.items()) {
    out += format.argument_open + key + format.key_close;
    out += value.is_string() ? value.get<std::string>() : DumpCall(value);
    out += format.argument_close;
  }
  return out;
}

std::string ObjectText(const ToolFormat& format, const ToolCall& call, const std::string& text) {
  std::string inner = '{' + QuotedForJson(format.name_key) + ": " + QuotedForJson(call.name) +
                      ", " + QuotedForJson(format.arguments_key) + ": " + text;
  std::string id;
  if (!format.id_key.empty() && !call.id.empty()) {
    id = ", " + QuotedForJson(format.id_key) + ": " + QuotedForJson(call.id);
  }
  if (format.wrapper_key.empty()) return inner + id + '}';
  return '{' + QuotedForJson(format.wrapper_key) + ": " + inner + '}' + id + '}';
}

std::string CallText(const ToolFormat& format, const ToolCall& call) {
  const CallJson json = CallJson::parse(call.arguments, nullptr, false);
  const bool is_object = json.is_object();
  const std::string& text = call.arguments;
  switch (format.form) {
    case Form::kJson: return ObjectText(format, call, text);
    case Form::kNamed: {
      if (format.name_in_id) {
        const std::string id = call.id.empty() ? "functions." + call.name + ":0" : call.id;
        return id + format.name_close + text;
      }
      const bool has_id = !format.id_open.empty() && !call.id.empty();
      return call.name + (has_id ? format.id_open + call.id : "") + format.name_close + text;
    }
    case Form::kTagged:
      return call.name + format.name_close + (is_object ? TaggedText(format, json) : text);
    case Form::kPythonic: {
      std::vector<std::string> parts;
      if (is_object) {
        for (const auto& [key, value] : json.items()) {
          parts.push_back(key + '=' + PythonText(value));
        }
      }
      return call.name + '(' + (is_object ? Joined(parts) : text) + ')';
    }
    case Form::kBraces: return call.name + (is_object ? BracedText(json) : '{' + text + '}');
    case Form::kChannels:
      return "<|channel|>commentary to=functions." + call.name + " <|constrain|>json<|message|>" +
             text + "<|call|>";
  }
  return text;
}

}  // namespace

std::string TextOfCalls(const ToolFormat& format, std::span<const ToolCall> calls) {
  if (calls.empty()) return "";
  std::string out = format.section_open + (format.is_array ? "[" : "");
  const std::string separator =
      format.form == Form::kChannels ? "<|start|>assistant" : format.separator;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) out += format.is_array ? ", " : separator;
    out += format.call_open + CallText(format, calls[i]) + format.call_close;
  }
  return out + (format.is_array ? "]" : "") + format.section_close;
}

}  // namespace kvant
