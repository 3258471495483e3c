// Answers with calls as they come: what is handed on, what is held back, and what is no call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/text/calls/call_values.h"
#include "engine/text/calls/call_writer.h"
#include "engine/text/calls/json_scan.h"
#include "kvant/tool_calls.h"

namespace kvant::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Form = ToolFormat::Form;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "text": {"type": "string"}, "count": {"type": "integer"}, "flag": {"type": "boolean"},
    "list": {"type": "array"}, "any": {}, "choice": {"enum": ["1", "two"]},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}},
  {"type": "function", "function": {"name": "g"}}])";

ToolFormat Hermes() {
  return {.name = "hermes",
          .call_open = "<tool_call>\n",
          .call_close = "\n</tool_call>",
          .separator = "\n"};
}
ToolFormat Bare() { return {.name = "bare", .arguments_key = "parameters"}; }
ToolFormat Array() {
  return {.name = "array", .section_open = "[TOOL_CALLS]", .is_array = true, .id_key = "id"};
}
ToolFormat Coder() {
  return {.name = "coder",
          .form = Form::kTagged,
          .call_open = "<tool_call>\n<function=",
          .call_close = "</function>\n</tool_call>",
          .separator = "\n",
          .name_close = ">\n",
          .argument_open = "<parameter=",
          .key_close = ">\n",
          .argument_close = "\n</parameter>\n"};
}
ToolFormat Pythonic() {
  return {.name = "pythonic",
          .form = Form::kPythonic,
          .section_open = "<|tool_call_start|>",
          .section_close = "<|tool_call_end|>",
          .is_array = true};
}
ToolFormat Channels() { return {.name = "channels", .form = Form::kChannels}; }

// An answer as a text: thoughts, content, and calls with a star behind those that are cut.
std::string Shown(const ToolFormat& format, std::string_view text, size_t piece,
                  std::string_view prompt = "") {
  ToolAnswer answer(format, kTools, prompt, {});
  for (size_t at = 0; at < text.size(); at += piece) answer.Push(text.substr(at, piece));
  answer.Finish();
  std::string out;
  if (!answer.reasoning().empty()) out += "{" + answer.reasoning() + "}";
  out += answer.content();
  for (const ToolCall& call : answer.calls()) {
    out += "|" + call.name + (call.id.empty() ? "" : "#" + call.id) + " " + call.arguments;
    if (!call.is_complete) out += "*";
    if (!call.malformed.empty()) out += "!" + call.malformed;
  }
  if (!answer.cut_text().empty()) out += "~" + answer.cut_text();
  return out;
}

void Expect(const ToolFormat& format, std::string_view text, const std::string& expected,
            std::string_view prompt = "") {
  for (size_t piece = 1; piece <= text.size() + 1; ++piece) {
    ASSERT_EQ(Shown(format, text, piece, prompt), expected)
        << format.name << ": " << text << " in pieces of " << piece;
  }
}

TEST(ToolAnswer, TellsCallsFromContent) {
  Expect(Hermes(), "plain text", "plain text");
  Expect(Hermes(), "So:\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
         "So:|f {\"a\": 1}");
  Expect(Hermes(),
         "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\","
         "\"arguments\":{\"x\":\"</tool_call>\"}}</tool_call>\n",
         "|f {}|g {\"x\":\"</tool_call>\"}");
  Expect(Hermes(),
         "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{}}]"
         "</tool_call> then",
         "then|f {}|g {}");
  Expect(Hermes(), "<think>\nwhy\n</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}",
         "{why}|f {}");
  Expect(Hermes(), "why</think><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
         "{why}|f {}", "<think>\n");
}

TEST(ToolAnswer, TakesWhatModelsWriteOtherwise) {
  // Arguments before the name, in a text, none at all, other members, no closing brace.
  Expect(Hermes(), "<tool_call>{\"arguments\":{\"a\":[1]},\"name\":\"f\"}</tool_call>",
         "|f {\"a\":[1]}");
  Expect(Hermes(), "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>",
         "|f {\"a\":1}");
  Expect(Hermes(), "<tool_call>{\"name\":\"f\"}</tool_call>", "|f {}");
  Expect(Hermes(), "<tool_call>{\"type\":\"function\",\"name\":\"f\",\"arguments\":{},\"x\":[{}]}",
         "|f {}");
  Expect(Hermes(), "<tool_call>{\"name\":\"f\",\"arguments\":{}\n</tool_call>ok", "ok|f {}");
  Expect(Array(),
         "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{},\"id\":\"abc\"},"
         "{\"id\":\"d\",\"name\":\"g\",\"arguments\":{}}]",
         "|f#abc {}|g#d {}");
  Expect(Array(), "[TOOL_CALLS] {\"name\":\"f\",\"arguments\":{}}", "|f {}");
}

TEST(ToolAnswer, NeedsAToolWhereAFormatHasNoMarks) {
  Expect(Bare(), "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "|f {\"a\": 1}");
  Expect(Bare(), "\n{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}",
         "|f {}|g {}");
  for (const char* text : {"{\"name\": \"Bob\", \"parameters\": {}}", "{\"a\": 1}", "{", "[1, 2]",
                           "{\"name\": \"f\"}", "{not JSON}", "  {\"name\"", "{\"name\": 1}"}) {
    Expect(Bare(), text, text);
  }
  Expect(Bare(), "see {\"name\":\"f\",\"parameters\":{}}",
         "see {\"name\":\"f\",\"parameters\":{}}");
}

TEST(ToolAnswer, LeavesWhatIsNoCallInTheContent) {
  for (const char* text :
       {"a <tool_call> b", "<tool_call>", "<tool_call><tool_call>x", "<tool_cal", "a < b",
        "<<tool_", "<tool_call>{\"x\": 1}", "<tool_call>[]", "<tool_call>{\"name\": 5}</tool_call>",
        "a \n", "</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": 7}"}) {
    if (std::string_view(text) == "<tool_call>") continue;  // may be one that was cut
    Expect(Hermes(), text, text);
  }
  Expect(Hermes(), "x<tool_call>no<tool_call>{\"name\":\"f\",\"arguments\":{}}",
         "x<tool_call>no|f {}");
}

TEST(ToolAnswer, SaysWhichCallsAreCut) {
  const std::string text =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b\"}}</tool_call>";
  const size_t name_end = text.find("\"f\", \"arguments\": ") + 18;
  const size_t end = text.find("}}") + 1;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string part = text.substr(0, cut);
    const std::string shown = Shown(Hermes(), part, 3);
    if (cut < std::string_view("<tool_call>").size()) {
      EXPECT_EQ(shown, part);
    } else if (cut <= name_end) {
      EXPECT_THAT(shown, testing::AnyOf("~" + part, "|f *")) << cut;
    } else {
      EXPECT_EQ(shown, "|f " + text.substr(name_end, std::min(cut, end) - name_end) +
                           (cut < end ? "*" : ""))
          << cut;
    }
  }
  EXPECT_EQ(Shown(Coder(), "<tool_call><function=f><parameter=text>\nab", 1),
            "|f {\"text\": \"ab*");
  EXPECT_EQ(Shown(Coder(), "<tool_call><function=f><parameter=count>\n12", 1),
            "|f {\"count\": *~12");
}

TEST(ToolAnswer, KeepsApartWhatNoCallCanHave) {
  Expect(Hermes(), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": oops}}</tool_call>ok",
         "ok|f {\"a\": *!oops}}");
  Expect(Hermes(), "<tool_call>{\"name\":\"f\",\"arguments\":\"no\"}</tool_call>", "|f *!\"no\"}");
  Expect(Bare(), "{\"name\":\"f\",\"parameters\":{1", "|f {*!1");
}

TEST(ToolAnswer, MakesJsonOfValuesBetweenTags) {
  const auto call = [](const std::string& key, const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  Expect(Coder(), call("text", "a \"b\"\n\\ \t<c>"), R"(|f {"text": "a \"b\"\n\\ \t<c>"})");
  Expect(Coder(), call("text", "12"), R"(|f {"text": "12"})");
  Expect(Coder(), call("text", ""), R"(|f {"text": ""})");
  Expect(Coder(), call("text", "\n two\n\n"), R"(|f {"text": "\n two\n\n"})");
  Expect(Coder(), call("count", "12"), R"(|f {"count": 12})");
  Expect(Coder(), call("count", "twelve"), R"(|f {"count": "twelve"})");
  Expect(Coder(), call("flag", "True"), R"(|f {"flag": true})");
  Expect(Coder(), call("list", "[1, {\"a\": null}]"), R"(|f {"list": [1, {"a": null}]})");
  Expect(Coder(), call("any", "{\"a\": 1}"), R"(|f {"any": {"a": 1}})");
  Expect(Coder(), call("any", "{a: 1}"), R"(|f {"any": "{a: 1}"})");
  Expect(Coder(), call("other", "null"), R"(|f {"other": null})");
  Expect(Coder(), call("choice", "1"), R"(|f {"choice": "1"})");
  Expect(Coder(), call("maybe", "None"), R"(|f {"maybe": null})");
  Expect(Coder(), call("maybe", "5"), R"(|f {"maybe": "5"})");
  Expect(Coder(), "<tool_call><function=g></function></tool_call>", "|g {}");
  Expect(Coder(),
         "<function=f><parameter=count>1</parameter><parameter=text>x</parameter></function>",
         "<function=f><parameter=count>1</parameter><parameter=text>x</parameter></function>");
}

TEST(ToolAnswer, ReadsTheNotationOfPython) {
  Expect(Pythonic(),
         "<|tool_call_start|>[f(text='it\\'s', count=-1, flag=True, list=[1, (2, None)], "
         "any={'a': \"\\u00e9\\n\"}), g()]<|tool_call_end|>",
         R"(|f {"text": "it's", "count": -1, "flag": true, "list": [1, [2, null]], )"
         "\"any\": {\"a\": \"\xc3\xa9\\n\"}}|g {}");
  Expect(Pythonic(), "<|tool_call_start|>[f(text=open)]", "|f *!text=open)]");
  Expect({.name = "bare", .form = Form::kPythonic, .is_array = true}, "[f(count=1)]",
         "|f {\"count\": 1}");
  Expect({.name = "bare", .form = Form::kPythonic, .is_array = true}, "[h(count=1)]",
         "[h(count=1)]");
}

TEST(ToolAnswer, ReadsChannels) {
  const std::string answer =
      "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>";
  Expect(Channels(), answer, "{why}|f {\"a\": 1}", "<|start|>assistant");
  Expect(Channels(), "<|channel|>final<|message|>so<|return|>", "so");
  Expect(Channels(),
         "<|channel|>commentary<|message|>first<|end|><|start|>assistant<|channel|>final<|message|>"
         "so",
         "first\n\nso");
  Expect(Channels(), " to=functions.f<|channel|>commentary json<|message|>{}", "|f {}");
  Expect(Channels(), "<|channel|>commentary to=functions.f<|message|>{\"a\": ", "|f {\"a\": *");
  Expect(Channels(), "plain < text", "plain < text");
  Expect(Channels(), "why<|end|>", "{why}", "<|start|>assistant<|channel|>analysis<|message|>");
}

TEST(ToolAnswer, EndsWhereTheReceiverWantsNoMore) {
  int events = 0;
  ToolAnswer answer(Hermes(), kTools, "", [&](const ToolEvent&) { return ++events < 2; });
  EXPECT_TRUE(answer.Push("a"));
  EXPECT_FALSE(answer.Push("b"));
  EXPECT_FALSE(answer.Push("<tool_call>{\"name\":\"f\",\"arguments\":{}}"));
  EXPECT_FALSE(answer.Finish());
  EXPECT_EQ(events, 2);
}

// 500 calls of random arguments between random texts that look nearly like marks, in random pieces:
// the name comes first, and the pieces of the arguments are one JSON object.
TEST(ToolAnswer, ReadsManyCallsInManyPieces) {
  std::mt19937 random(3);
  const std::vector<std::string> nearly = {"<tool",       "_call>", "<tool_call", "{\"name\"",
                                           "[TOOL_",      "<",      "\n",         " ",
                                           "</tool_call", "a",      "<|",         "["};
  for (int i = 0; i < 500; ++i) {
    const ToolFormat format = std::vector{Hermes(), Array(), Coder(), Pythonic()}[random() % 4];
    std::string content = "x";
    for (size_t count = random() % 6; count > 0; --count)
      content += nearly[random() % nearly.size()];
    content += "y";
    nlohmann::ordered_json arguments;
    arguments["text"] = content.substr(0, content.size() / 2) + "\"\\z";
    arguments["count"] = i;
    if (i % 3 == 0) arguments["list"] = {1, "two", {{"three", nullptr}}};
    std::vector<ToolCall> calls = {{"id" + std::to_string(i), "f", arguments.dump()}};
    if (i % 2 == 0) calls.push_back({"", "g", "{}"});
    const std::string text = content + "\n" + TextOfCalls(format, calls);
    std::string name;
    std::string pieces;
    ToolAnswer answer(format, kTools, "", [&](const ToolEvent& event) {
      if (event.call > 0) return true;
      if (event.kind == ToolEvent::Kind::kCallBegin) name = event.text;
      if (event.kind == ToolEvent::Kind::kArguments) {
        EXPECT_EQ(name, "f");
        pieces += event.text;
      }
      return true;
    });
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 9;
      answer.Push(std::string_view(text).substr(at, size));
      at += size;
    }
    answer.Finish();
    ASSERT_EQ(answer.content(), content) << text;
    ASSERT_EQ(answer.calls().size(), calls.size()) << text;
    ASSERT_TRUE(answer.calls()[0].is_complete) << text;
    ASSERT_EQ(nlohmann::json::parse(pieces, nullptr, false), nlohmann::json(arguments)) << text;
  }
}

TEST(ToolAnswer, RefusesToolsThatAreNone) {
  EXPECT_TRUE(CheckTools(kTools).ok());
  EXPECT_TRUE(CheckTools("").ok());
  const auto message = [](const char* tools) { return CheckTools(tools).error().message; };
  EXPECT_THAT(message("{}"), HasSubstr("expected a JSON array"));
  EXPECT_THAT(message("[1]"), HasSubstr("/0: expected an object, found 1"));
  EXPECT_THAT(message(R"([{"type": "x"}])"), HasSubstr("/0/type: expected \"function\""));
  EXPECT_THAT(message(R"([{"function": {}}])"), HasSubstr("/0/function/name"));
  EXPECT_THAT(message(R"([{"function": {"name": "a b"}}])"), HasSubstr("/0/function/name"));
  EXPECT_THAT(message(R"([{"function": {"name": "a", "parameters": 1}}])"),
              HasSubstr("/0/function/parameters"));
  EXPECT_THAT(message(R"([{"function": {"name": "a"}}, {"function": {"name": "a"}}])"),
              HasSubstr("/1/function/name: expected a name that no other tool has"));
}

// The scan finds the ends and the errors that a parser of JSON finds.
TEST(JsonScan, AgreesWithAParser) {
  std::mt19937 random(5);
  const std::vector<std::string> pieces = {
      "{", "}", "[", "]", ",", ":", "\"", "a",  "\\",   "u",     "0041",  "d83d",    "de0", "true",
      "-", "1", "0", ".", "e", "+", " ",  "\n", "null", "false", "\"k\"", "\"v\": ", "12",  "\\n"};
  int whole = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (size_t count = 1 + random() % 8; count > 0; --count)
      text += pieces[random() % pieces.size()];
    JsonScan scan;
    const size_t taken = scan.Take(text);
    bool is_good = taken == text.size() && scan.state() != JsonScan::State::kBad;
    if (is_good && scan.state() == JsonScan::State::kMore) scan.Take(" ");
    is_good = is_good && scan.state() == JsonScan::State::kDone;
    // Blanks behind a value are not a part of it, and this parser has no numbers above 1e308.
    if (std::ranges::count(text, 'e') > 0 &&
        text.find_first_of("+0123456789") != std::string::npos) {
      continue;
    }
    const std::string_view parsed =
        std::string_view(text).substr(0, text.find_last_not_of(" \n") + 1);
    if (parsed.size() == text.size()) {
      ASSERT_EQ(is_good, nlohmann::json::accept(text)) << text;
      whole += is_good ? 1 : 0;
    }
    // A text of which the beginning was taken can become JSON; one byte more of it cannot.
    if (scan.state() == JsonScan::State::kBad) {
      ASSERT_FALSE(nlohmann::json::accept(text)) << text;
    }
  }
  EXPECT_GT(whole, 1000);
}

}  // namespace
}  // namespace kvant::test
