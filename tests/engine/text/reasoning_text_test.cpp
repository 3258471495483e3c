// Reasoning is told from answers however the text is cut, and only where it stands at the
// beginning.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "kvant/reasoning_text.h"

namespace kvant::test {
namespace {

struct Parts {
  std::string reasoning;
  std::string content;
  bool operator==(const Parts&) const = default;
};

// The parts of a text that comes in pieces of so many bytes; what is handed on must be what is kept
// in the end, but for blanks.
Parts PartsOf(std::string_view prompt, std::string_view text, size_t piece) {
  Parts shown;
  ReasoningText parts(prompt, [&](AnswerPart part, std::string_view more) {
    EXPECT_FALSE(more.empty());
    (part == AnswerPart::kReasoning ? shown.reasoning : shown.content) += more;
    return true;
  });
  for (size_t at = 0; at < text.size(); at += piece) {
    EXPECT_TRUE(parts.Push(text.substr(at, piece)));
  }
  EXPECT_TRUE(parts.Finish());
  EXPECT_TRUE(shown.reasoning.starts_with(parts.reasoning()));
  EXPECT_EQ(shown.content, parts.content());
  return {parts.reasoning(), parts.content()};
}

void ExpectParts(std::string_view text, const Parts& expected, std::string_view prompt = "") {
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Parts found = PartsOf(prompt, text, piece);
    EXPECT_EQ(found.reasoning, expected.reasoning) << text << " in pieces of " << piece;
    EXPECT_EQ(found.content, expected.content) << text << " in pieces of " << piece;
  }
}

TEST(ReasoningText, KnowsTheMarksOfModels) {
  ExpectParts("<think>\nwhy\n</think>\n\nso", {"why", "so"});
  ExpectParts(" [THINK]why[/THINK]so", {"why", "so"});
  ExpectParts("<seed:think>why</seed:think>so", {"why", "so"});
  ExpectParts("<|channel>thought\nwhy<channel|>so", {"why", "so"});
  ExpectParts(
      "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>so",
      {"why", "so"});
  ExpectParts("<|channel|>final<|message|>so", {"", "so"});
}

TEST(ReasoningText, BeginsWhereThePromptEndsWithAMark) {
  ExpectParts("why</think>so", {"why", "so"}, "user\nassistant\n<think>\n");
  ExpectParts("why</think>so", {"", "why</think>so"}, "<think> user");
}

TEST(ReasoningText, LeavesOtherTextAlone) {
  ExpectParts("so <think>not</think>", {"", "so <think>not</think>"});
  ExpectParts("<thin", {"", "<thin"});
  ExpectParts("<think>why</thi", {"why</thi", ""});
  ExpectParts("<think></think>so", {"", "so"});
  ExpectParts("</think>so", {"", "</think>so"});
}

TEST(ReasoningText, EndsWhereItsReceiverDoes) {
  int calls = 0;
  ReasoningText parts("", [&](AnswerPart, std::string_view) { return ++calls < 2; });
  EXPECT_TRUE(parts.Push("<think>a"));
  EXPECT_FALSE(parts.Push("b</think>c"));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(parts.content(), "");
}

}  // namespace
}  // namespace kvant::test
