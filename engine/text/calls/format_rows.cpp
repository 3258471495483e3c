#include "engine/text/calls/format_rows.h"

#include <algorithm>
#include <array>
#include <vector>

namespace kvant {
namespace {

using Form = ToolFormat::Form;

struct FormatRow {
  std::array<std::string_view, 2> marks;  // the source of a template has both; "": no second one
  bool is_certain;
  ToolFormat format;
};

ToolFormat Tagged(ToolFormat format, const char* argument_open, const char* key_close,
                  const char* argument_close) {
  format.form = Form::kTagged;
  format.argument_open = argument_open;
  format.key_close = key_close;
  format.argument_close = argument_close;
  return format;
}

ToolFormat HermesFormat(const char* name) {
  return {.name = name,
          .call_open = "<tool_call>\n",
          .call_close = "\n</tool_call>",
          .separator = "\n"};
}

std::vector<FormatRow> CertainRows() {
  return {
      {{"<|channel|>", "<|message|>"},
       true,
       {.name = "gpt-oss", .form = Form::kChannels, .is_parallel = false}},
      {{"<|tool_call_argument_begin|>", ""},
       true,
       {.name = "kimi-k2",
        .form = Form::kNamed,
        .section_open = "<|tool_calls_section_begin|>",
        .call_open = "<|tool_call_begin|>",
        .call_close = "<|tool_call_end|>",
        .section_close = "<|tool_calls_section_end|>",
        .name_close = "<|tool_call_argument_begin|>",
        .name_in_id = true}},
      {{"<|tool_call>call:", ""},
       true,
       {.name = "gemma-4",
        .form = Form::kBraces,
        .call_open = "<|tool_call>call:",
        .call_close = "<tool_call|>"}},
      {{"<|tool_list_start|>", ""},
       true,
       {.name = "lfm2-calls",
        .form = Form::kPythonic,
        .section_open = "<|tool_call_start|>",
        .section_close = "<|tool_call_end|>",
        .is_array = true}},
      {{">>>all", ""},
       true,
       {.name = "functionary-3.2",
        .form = Form::kNamed,
        .call_open = ">>>",
        .name_close = "\n",
        .skipped = {">>>all\n"}}},
  };
}

// Marks in < and > with words of English. The first row whose marks are there counts.
std::vector<FormatRow> TagRows() {
  return {
      {{"<tool_call>", "<function="},
       false,
       Tagged({.name = "qwen3-coder",
               .call_open = "<tool_call>\n<function=",
               .call_close = "</function>\n</tool_call>",
               .separator = "\n",
               .name_close = ">\n"},
              "<parameter=", ">\n", "\n</parameter>\n")},
      {{"<tool_call>", "<arg_key>"},
       false,
       Tagged({.name = "glm-4.5",
               .call_open = "<tool_call>",
               .call_close = "</tool_call>",
               .separator = "\n",
               .name_close = "\n"},
              "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n")},
      {{"<minimax:tool_call>", ""},
       false,
       Tagged({.name = "minimax-m2",
               .section_open = "<minimax:tool_call>\n",
               .call_open = "<invoke name=\"",
               .call_close = "</invoke>\n",
               .section_close = "</minimax:tool_call>",
               .name_close = "\">\n"},
              "<parameter name=\"", "\">", "</parameter>\n")},
      {{"<tool_call>", ""}, false, HermesFormat("hermes")},
  };
}

std::vector<FormatRow> OtherRows() {
  return {
      {{"[TOOL_CALLS]", "[ARGS]"},
       false,
       {.name = "mistral-args",
        .form = Form::kNamed,
        .call_open = "[TOOL_CALLS]",
        .name_close = "[ARGS]",
        .id_open = "[CALL_ID]"}},
      {{"[TOOL_CALLS]", ""},
       false,
       {.name = "mistral", .section_open = "[TOOL_CALLS]", .is_array = true, .id_key = "id"}},
      {{"<｜tool▁calls▁begin｜>", "```json"},
       false,
       {.name = "deepseek-r1",
        .form = Form::kNamed,
        .section_open = "<｜tool▁calls▁begin｜>",
        .call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        .call_close = "\n```<｜tool▁call▁end｜>",
        .separator = "\n",
        .section_close = "<｜tool▁calls▁end｜>",
        .name_close = "\n```json\n"}},
      {{"<｜tool▁calls▁begin｜>", ""},
       false,
       {.name = "deepseek-v3.1",
        .form = Form::kNamed,
        .section_open = "<｜tool▁calls▁begin｜>",
        .call_open = "<｜tool▁call▁begin｜>",
        .call_close = "<｜tool▁call▁end｜>",
        .section_close = "<｜tool▁calls▁end｜>",
        .name_close = "<｜tool▁sep｜>"}},
      {{"<function=", ""},
       false,
       {.name = "functionary-3.1",
        .form = Form::kNamed,
        .call_open = "<function=",
        .call_close = "</function>",
        .name_close = ">"}},
      {{"<|START_ACTION|>", ""},
       false,
       {.name = "command-r7b",
        .section_open = "<|START_ACTION|>",
        .section_close = "<|END_ACTION|>",
        .is_array = true,
        .name_key = "tool_name",
        .arguments_key = "parameters",
        .id_key = "tool_call_id",
        .id_is_first = true,
        .reasoning_open = "<|START_THINKING|>",
        .reasoning_close = "<|END_THINKING|>",
        .skipped = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}}},
      {{"functools[", ""},
       false,
       {.name = "firefunction-2", .section_open = " functools", .is_array = true}},
      {{"\"parameters\"", "<|eot_id|>"},
       false,
       {.name = "llama-3",
        .arguments_key = "parameters",
        .skipped = {"<|python_tag|>"},
        .is_parallel = false}},
  };
}

std::vector<FormatRow> MakeFormatRows() {
  std::vector<FormatRow> rows = CertainRows();
  for (const auto& more : {TagRows(), OtherRows()})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

const std::vector<FormatRow>& FormatRows() {
  static const std::vector<FormatRow> rows = MakeFormatRows();
  return rows;
}

const ToolFormat* FindFormatRow(std::string_view source, bool is_certain) {
  for (const FormatRow& row : FormatRows()) {
    const bool has_all = std::ranges::all_of(row.marks, [&](std::string_view mark) {
      return source.find(mark) != std::string_view::npos;
    });
    if (has_all && row.is_certain == is_certain) return &row.format;
  }
  return nullptr;
}

std::string MarksOfFormat(const ToolFormat& format) {
  std::string marks;
  for (const auto* part : {&format.section_open, &format.call_open, &format.name_close,
                           &format.argument_open, &format.key_close}) {
    marks.append(*part);
  }
  return marks;
}

}  // namespace

const ToolFormat* CertainFormat(std::string_view source) { return FindFormatRow(source, true); }
const ToolFormat* LikelyFormat(std::string_view source) { return FindFormatRow(source, false); }

const ToolFormat& GenericFormat() {
  static const ToolFormat format = [] {
    ToolFormat generic = HermesFormat("generic");
    generic.shows_tools = false;
    generic.shows_calls = false;
    return generic;
  }();
  return format;
}

std::string_view NameOfFound(const ToolFormat& format) {
  std::string marks = MarksOfFormat(format);
  if (format.is_array) marks += '[';
  for (const FormatRow& row : FormatRows()) {
    const ToolFormat& known = row.format;
    const bool is_like = known.form == format.form && !MarksOfFormat(known).empty() &&
                         std::ranges::all_of(row.marks, [&](std::string_view mark) {
                           return marks.find(mark) != std::string::npos;
                         });
    if (is_like) return known.name;
  }
  if (!marks.empty()) return "of the template";
  return format.arguments_key == "parameters" ? "llama-3" : "plain JSON";
}

}  // namespace kvant
