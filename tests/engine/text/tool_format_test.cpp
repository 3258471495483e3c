// The template itself is the oracle: what it renders of calls is read back as the same calls,
// wherever the text is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/text/calls/call_writer.h"
#include "kvant/tool_calls.h"
#include "tests/engine/text/tool_templates.h"
#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

constexpr const char* kWeatherTools = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {
      "city": {"type": "string", "description": "a city"},
      "days": {"type": "integer", "description": "how many"},
      "exact": {"type": "boolean", "description": "whether"},
      "places": {"type": "array", "items": {"type": "string"}, "description": "several"},
      "more": {"type": "object", "additionalProperties": {"type": "string"}, "description": "x"}},
      "required": ["city"]}}},
  {"type": "function", "function": {"name": "now", "description": "Tells the time.",
    "parameters": {"type": "object", "properties": {}}}}])";

struct Case {
  std::string name;
  std::string format;
  std::string end;
  std::string source;
};

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Case> WrittenCases() {
  std::vector<Case> cases;
  for (const ToolTemplate& row : kToolTemplates) {
    cases.push_back({std::string(row.format), std::string(row.format), std::string(row.end),
                     std::string(row.source)});
  }
  return cases;
}

struct SharedRow {
  const char* file;
  const char* format;
  const char* end;
};
constexpr SharedRow kSharedRows[] = {
    {"CohereForAI-c4ai-command-r-plus-tool_use", "of the template",
     "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Write"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r7b", "<|END_OF_TURN_TOKEN|>"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", "<|im_end|>\n"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", "<|im_end|>\n"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", "<|im_end|>\n"},
    {"fireworks-ai-llama-3-firefunction-v2", "firefunction-2", "<|eot_id|>"},
    {"google-gemma-2-2b-it", "generic", ""},
    {"llama-cpp-deepseek-r1", "deepseek-r1", "<｜end▁of▁sentence｜>"},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama-3", "<|eot_id|>"},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama-3", "<|eot_id|>"},
    {"microsoft-Phi-3.5-mini-instruct", "generic", ""},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", "</s>"},
};

std::vector<Case> SharedCases() {
  std::vector<Case> cases;
  for (const SharedRow& row : kSharedRows) {
    const std::string path = SharedPath(std::string("chat-templates/") + row.file + ".jinja");
    cases.push_back({row.file, row.format, row.end, FileText(path)});
  }
  return cases;
}

const TestTokenizer& AnyTokenizer() {
  static const TestTokenizer tokenizer = MakeTokenizer(VocabularyFile("gpt2")
                                                           .String("tokenizer.ggml.pre", "gpt-2")
                                                           .Tokens({"a", "<s>", "</s>"})
                                                           .Types({kNormal, kControl, kControl})
                                                           .Merges({})
                                                           .U32("tokenizer.ggml.bos_token_id", 1)
                                                           .U32("tokenizer.ggml.eos_token_id", 2));
  return tokenizer;
}

ChatTemplate TemplateOf(const Case& row) {
  auto made = ChatTemplate::Parse(*AnyTokenizer(), row.name, row.source);
  EXPECT_TRUE(made.ok()) << row.name << ": " << (made.ok() ? "" : made.error().message);
  return std::move(*made);
}

// ---- Calls, and how the template writes them ----------------------------------------------------

std::string RandomText(std::mt19937& random, bool is_plain) {
  static const std::vector<std::string> pieces = {
      "a",    "Zürich", " ",       "東京", "it's",   "x=1",          "\"q\"",  "\\",      "\n",
      "{}",   "[1]",    "<b>",     "</",   "True",   "</tool_call>", "```",    "<|eot|>", "\t",
      "null", "12",     "a\nb\nc", "😀",   "{\"a\"", "[TOOL_CALLS]", "</func", ";"};
  std::string text;
  for (size_t count = random() % 5; count > 0; --count) {
    text += pieces[random() % (is_plain ? 4 : pieces.size())];
  }
  return text;
}

// `is_plain`: no text could be taken for a mark of the format.
Json RandomArguments(std::mt19937& random, bool is_plain) {
  Json json = Json::object();
  json["city"] = RandomText(random, is_plain) + "x";
  if (random() % 2 == 0) json["days"] = static_cast<int>(random() % 2000) - 1000;
  if (random() % 2 == 0) json["exact"] = random() % 2 == 0;
  if (random() % 2 == 0) json["places"] = Json::array({RandomText(random, is_plain), "b"});
  if (random() % 2 == 0) json["more"] = {{"k", RandomText(random, is_plain)}, {"l", "m"}};
  return json;
}

std::vector<ToolCall> RandomCalls(std::mt19937& random, const ToolFormat& format) {
  std::vector<ToolCall> calls;
  const bool is_plain = format.form == ToolFormat::Form::kTagged;
  const size_t count = format.is_parallel ? 1 + random() % 3 : 1;
  for (size_t i = 0; i < count; ++i) {
    ToolCall& call = calls.emplace_back();
    const bool has_arguments = random() % 4 != 0;
    call.name = has_arguments ? "get_weather" : "now";
    call.arguments = (has_arguments ? RandomArguments(random, is_plain) : Json::object()).dump();
    call.id = format.name_in_id ? "functions." + call.name + ":" + std::to_string(i)
                                : "abcdefgh" + std::to_string(i);
    call.is_complete = true;
  }
  return calls;
}

// The text of an answer with these calls as the template renders it behind its prompt.
struct Rendered {
  std::string prompt;
  std::string answer;
};

Rendered RenderedCalls(const ChatTemplate& chat_template, const Case& row, const ToolFormat& format,
                       const std::vector<ToolCall>& calls) {
  const ChatMessage user = {.role = "user", .content = "a question", .reasoning = {}};
  Json answer = {{"role", "assistant"}, {"content", ""}};
  if (format.null_content) answer["content"] = nullptr;
  answer["tool_calls"] = Json::array();
  for (const ToolCall& call : calls) {
    const Json object = Json::parse(call.arguments);
    answer["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function",
          {{"name", call.name},
           {"arguments", format.text_arguments ? Json(call.arguments) : object}}}});
  }
  const Json messages = {{{"role", "user"}, {"content", user.content}}, answer};
  const auto prompt = chat_template.Render({&user, 1}, {.tools = kWeatherTools, .now = 0});
  const auto all = chat_template.RenderJson(
      messages.dump(), {.add_generation_prompt = false, .tools = kWeatherTools, .now = 0});
  if (!prompt.ok() || !all.ok()) {
    ADD_FAILURE() << row.name << ": " << (all.ok() ? prompt.error() : all.error()).message;
    return {};
  }
  const std::string& text = all->text;
  size_t begin = std::mismatch(prompt->begin(), prompt->end(), text.begin(), text.end()).first -
                 prompt->begin();
  const size_t mark = text.rfind('<', begin - 1);  // a mark that only begins like the prompt's
  if (mark != std::string::npos && text.find('>', mark) >= begin) begin = mark;
  const size_t end = row.end.empty() ? text.size() : text.rfind(row.end);
  EXPECT_NE(end, std::string::npos) << row.name << ": " << text;
  std::string answered = text.substr(begin, end - begin);
  // This template has another turn behind the answer, and its prompt ends with that.
  constexpr std::string_view kTurn = "<|CHATBOT_TOKEN|>";
  if (answered.starts_with(kTurn)) answered.erase(0, kTurn.size());
  return {text.substr(0, begin), std::move(answered)};
}

// ---- What is read -------------------------------------------------------------------------------

struct Read {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
};

// Checks that events come in their order and say together what is kept.
Read ReadPieces(const ToolFormat& format, std::string_view prompt,
                const std::vector<std::string_view>& pieces) {
  Read shown;
  bool is_open = false;
  ToolAnswer answer(format, kWeatherTools, prompt, [&](const ToolEvent& event) {
    switch (event.kind) {
      case ToolEvent::Kind::kReasoning: shown.reasoning += event.text; break;
      case ToolEvent::Kind::kContent: shown.content += event.text; break;
      case ToolEvent::Kind::kCallBegin:
        EXPECT_FALSE(is_open);
        EXPECT_EQ(event.call, std::ssize(shown.calls));
        EXPECT_FALSE(event.text.empty());
        shown.calls.push_back({std::string(event.id), std::string(event.text), ""});
        is_open = true;
        break;
      case ToolEvent::Kind::kArguments:
        EXPECT_TRUE(is_open);
        EXPECT_FALSE(event.text.empty());
        shown.calls.back().arguments += event.text;
        break;
      case ToolEvent::Kind::kCallEnd:
        EXPECT_TRUE(is_open);
        shown.calls.back().is_complete = event.is_complete;
        shown.calls.back().id = event.id;
        is_open = false;
        break;
    }
    return true;
  });
  for (const std::string_view piece : pieces) EXPECT_TRUE(answer.Push(piece));
  EXPECT_TRUE(answer.Finish());
  EXPECT_FALSE(is_open);
  EXPECT_EQ(shown.content, answer.content());
  EXPECT_TRUE(shown.reasoning.starts_with(answer.reasoning()));
  EXPECT_EQ(shown.calls.size(), answer.calls().size());
  for (size_t i = 0; i < shown.calls.size() && i < answer.calls().size(); ++i) {
    EXPECT_EQ(shown.calls[i].arguments, answer.calls()[i].arguments);
    EXPECT_EQ(shown.calls[i].name, answer.calls()[i].name);
    EXPECT_EQ(shown.calls[i].is_complete, answer.calls()[i].is_complete);
  }
  return shown;
}

void ExpectCalls(const std::vector<ToolCall>& found, const std::vector<ToolCall>& expected,
                 const ToolFormat& format, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name) << where;
    EXPECT_TRUE(found[i].is_complete) << where << " " << found[i].arguments;
    EXPECT_EQ(nlohmann::json::parse(found[i].arguments, nullptr, false),
              nlohmann::json::parse(expected[i].arguments))
        << where << " " << found[i].arguments;
    const bool has_id = format.name_in_id || !format.id_open.empty();
    EXPECT_EQ(has_id ? found[i].id : "", has_id ? expected[i].id : "") << where;
  }
}

enum class Cuts { kAll, kBytes };

void ExpectRoundTrip(const ToolFormat& format, const Rendered& text,
                     const std::vector<ToolCall>& calls, Cuts cuts, const std::string& where) {
  const std::string_view answer = text.answer;
  const Read whole = ReadPieces(format, text.prompt, {answer});
  ExpectCalls(whole.calls, calls, format, where + " " + text.answer);
  EXPECT_EQ(whole.content, "") << where << " " << text.answer;
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < answer.size(); ++i) bytes.push_back(answer.substr(i, 1));
  const Read bytewise = ReadPieces(format, text.prompt, bytes);
  ExpectCalls(bytewise.calls, calls, format, where + " by bytes " + text.answer);
  EXPECT_EQ(bytewise.content, "") << where;
  for (size_t cut = 1; cut < answer.size() && cuts == Cuts::kAll; ++cut) {
    const Read halves =
        ReadPieces(format, text.prompt, {answer.substr(0, cut), answer.substr(cut)});
    ASSERT_EQ(halves.content, "") << where << " cut at " << cut << " of " << text.answer;
    ASSERT_EQ(halves.calls.size(), calls.size()) << where << " cut at " << cut;
    for (size_t i = 0; i < calls.size(); ++i) {
      ASSERT_EQ(halves.calls[i].arguments, whole.calls[i].arguments) << where << " " << cut;
    }
  }
}

void ExpectCase(const Case& row) {
  SCOPED_TRACE(row.name);
  const ChatTemplate chat_template = TemplateOf(row);
  const auto format = DetectToolFormat(chat_template);
  ASSERT_TRUE(format.ok()) << format.error().message;
  EXPECT_EQ(format->name, row.format);
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    const std::vector<ToolCall> calls = RandomCalls(random, *format);
    const Cuts cuts = i < 3 ? Cuts::kAll : Cuts::kBytes;
    if (format->shows_calls) {
      const Rendered text = RenderedCalls(chat_template, row, *format, calls);
      if (!text.answer.empty()) ExpectRoundTrip(*format, text, calls, cuts, row.name);
    } else {
      ExpectRoundTrip(*format, {"", TextOfCalls(*format, calls)}, calls, cuts, row.name);
    }
  }
}

TEST(ToolFormat, ReadsBackWhatTemplatesRender) {
  for (const Case& row : WrittenCases()) ExpectCase(row);
}

TEST(ToolFormat, ReadsBackWhatTemplatesOfModelsRender) {
  KVANT_SKIP_WITHOUT(SharedPath("chat-templates"));
  const std::vector<Case> cases = SharedCases();
  for (const Case& row : cases) ExpectCase(row);
  // Every template there is in the list.
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(SharedPath("chat-templates"))) {
    ++files;
  }
  EXPECT_EQ(files, cases.size());
}

// Calls that kvant itself writes, for templates that write none, are read back, too.
TEST(ToolFormat, ReadsBackWhatItWrites) {
  std::mt19937 random(11);
  for (const Case& row : WrittenCases()) {
    const auto format = DetectToolFormat(TemplateOf(row));
    ASSERT_TRUE(format.ok());
    for (int i = 0; i < 20; ++i) {
      const std::vector<ToolCall> calls = RandomCalls(random, *format);
      const std::string text = TextOfCalls(*format, calls);
      const Read read = ReadPieces(*format, "", {text});
      ExpectCalls(read.calls, calls, *format, row.name + " " + text);
    }
  }
}

}  // namespace
}  // namespace kvant::test
