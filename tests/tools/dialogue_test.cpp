// The dialogue model that comes with kvant: right answers to questions that it was not trained on,
// through its own vocabulary, template, control tokens and end token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/shared_data.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

// The answers of kvant chat to lines of standard input. Without `model`, kvant chooses one.
std::vector<std::string> Answers(const std::string& lines, const std::vector<std::string>& model) {
  std::vector<std::string> words = {"chat"};
  words.insert(words.end(), model.begin(), model.end());
  words.insert(words.end(), {"--temp", "0", "-t", "1"});
  const ProgramRun run = RunProgram(words, {.text = lines});
  EXPECT_EQ(run.code, 0) << run.error;
  std::vector<std::string> answers;
  std::istringstream out(run.out);
  for (std::string line; std::getline(out, line);) {
    if (!line.empty()) answers.push_back(line);
  }
  return answers;
}

// One talk; what is expected is what comes behind the steps of each answer. The questions are
// among those that its training has left out.
TEST(Dialogue, AnswersInTurn) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string lines =
      "What is 174 + 403?\n"
      "please what is 415 - 126?\n"
      "Today is Sunday. What day will it be in 8 days?\n"
      "How do you spell \"drunken\"?\n"
      "how many letters does the word brave have?\n"
      "Where can I buy young\n";
  const std::vector<std::string> answers =
      Answers(lines, {SourcePath("models/dialogue/dialogue.gguf")});
  ASSERT_EQ(answers.size(), 6u);
  EXPECT_EQ(answers[0], "174 + 403: 4+3=7, 7+0=7, 1+4=5, so 577.");
  EXPECT_THAT(answers[1], testing::EndsWith("so 289."));
  EXPECT_THAT(answers[2], testing::EndsWith("so Monday."));
  EXPECT_EQ(answers[3], "d-r-u-n-k-e-n.");
  EXPECT_THAT(answers[4], testing::EndsWith("so 5."));
  EXPECT_THAT(answers[5], testing::StartsWith("I do not know."));
  EXPECT_EQ(Answers(lines, {}), answers);
}

}  // namespace
}  // namespace kvant::test
