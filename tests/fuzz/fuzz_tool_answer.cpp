// Fuzzes answers with calls: in whatever pieces a text comes, the same is read, complete calls have
// a JSON object as arguments, and nothing is lost.
//
// The first byte chooses the format, the second one the pieces; the rest is the text.
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kvant/tokenizer.h"
#include "kvant/tool_calls.h"

namespace {

using kvant::ToolAnswer;
using kvant::ToolEvent;
using kvant::ToolFormat;
using Form = ToolFormat::Form;

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "f", "parameters": {
  "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {}}}}}])";

const ToolFormat kFormats[] = {
    {.name = "hermes", .call_open = "<tool_call>\n", .call_close = "\n</tool_call>"},
    {.name = "bare", .arguments_key = "parameters", .skipped = {"<|python_tag|>"}},
    {.name = "array", .section_open = "[TOOL_CALLS]", .is_array = true, .id_key = "id"},
    {.name = "named",
     .form = Form::kNamed,
     .section_open = "<s>",
     .call_open = "<c>",
     .call_close = "</c>",
     .section_close = "</s>",
     .name_close = "|",
     .id_open = "#"},
    {.name = "tagged",
     .form = Form::kTagged,
     .call_open = "<c>\n<f=",
     .call_close = "</f>\n</c>",
     .name_close = ">\n",
     .argument_open = "<p=",
     .key_close = ">\n",
     .argument_close = "\n</p>\n"},
    {.name = "pythonic", .form = Form::kPythonic, .section_open = "<c>", .is_array = true},
    {.name = "braces", .form = Form::kBraces, .call_open = "<c>call:", .call_close = "<c|>"},
    {.name = "channels", .form = Form::kChannels},
    {.name = "wrapped",
     .call_open = "<c>",
     .call_close = "</c>",
     .wrapper_key = "function",
     .reasoning_open = "<r>",
     .reasoning_close = "</r>",
     .skipped = {"<x>", "<xy>"}},
};

// All that is read, as one text.
std::string Read(const ToolFormat& format, std::string_view text, size_t piece) {
  std::string content;
  std::string thoughts;
  ToolAnswer answer(format, kTools, "", [&](const ToolEvent& event) {
    if (event.kind == ToolEvent::Kind::kContent) content += event.text;
    if (event.kind == ToolEvent::Kind::kReasoning) thoughts += event.text;
    return true;
  });
  for (size_t at = 0; at < text.size(); at += piece) answer.Push(text.substr(at, piece));
  answer.Finish();
  if (content != answer.content() || !thoughts.starts_with(answer.reasoning())) __builtin_trap();
  std::string out = answer.reasoning() + '\1' + content;
  for (const kvant::ToolCall& call : answer.calls()) {
    if (call.is_complete && !nlohmann::json::parse(call.arguments, nullptr, false).is_object()) {
      __builtin_trap();
    }
    out += '\1' + call.name + '\2' + call.id + '\2' + call.arguments + '\2' + call.malformed;
  }
  return out + '\1' + answer.cut_text();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3 || size > 2000) return 0;
  const ToolFormat& format = kFormats[data[0] % std::size(kFormats)];
  kvant::Utf8Stream stream;
  std::string text = stream.Push({reinterpret_cast<const char*>(data) + 2, size - 2});
  text += stream.Finish();
  const std::string whole = Read(format, text, text.size() + 1);
  if (whole != Read(format, text, 1)) __builtin_trap();
  if (whole != Read(format, text, 1 + data[1] % 13)) __builtin_trap();
  return 0;
}
