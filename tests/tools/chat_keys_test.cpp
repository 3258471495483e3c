// kvant chat on a terminal: lines of several rows, words that are broken nowhere, messages that
// were stopped, and the program itself stopped by Ctrl+Z; and kvant run where it was given no
// prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/tools/sequences.h"
#include "tests/tools/terminal_program.h"

namespace kvant::test {
namespace {

class ChatKeys : public Sequences {
 protected:
  Words Arguments(const Words& options = {}) const {
    return With({"chat", Shakespeare(), "-t", "1", "--chat-template", "chatml", "--temp", "0"},
                options);
  }
  Words Environment() const {
    return {"XDG_STATE_HOME=" + (folder_ / "state"), "NO_COLOR=1", "TERM=xterm"};
  }
  // A chat whose prompts take long: a file of many words, one token at a time.
  Words Slow() const {
    return Arguments({"-n", "4", "-c", "200000", "--chunk", "1", "--strict", "--stats"});
  }
  std::string LongFile() const {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += std::to_string(i) + " ";
    return Write("long.txt", text);
  }
};

// The rows of the screen from the last one that begins with the prompt.
Words EditedRows(const TerminalProgram& chat) {
  Words rows = chat.screen().Rows();
  size_t first = rows.size();
  while (first > 0 && !rows[first - 1].starts_with("> ")) --first;
  return first == 0 ? Words()
                    : Words(rows.begin() + static_cast<std::ptrdiff_t>(first - 1), rows.end());
}

TEST_F(ChatKeys, UpAndDownCrossLineBreaks) {
  TerminalProgram chat(Arguments({"-n", "4"}), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Type(
      "ab\x0a"
      "cdef\x1b[AZ");
  chat.Settle();
  EXPECT_THAT(EditedRows(chat), testing::ElementsAre("> abZ", "  cdef"));
  chat.Type("\x1b[BY");  // the third column of the line below
  chat.Settle();
  EXPECT_THAT(EditedRows(chat), testing::ElementsAre("> abZ", "  cdeYf"));
  chat.Type("\x03");
  ASSERT_TRUE(chat.AwaitPrompt());
  // Behind an entry of several lines lies the rest of the history.
  chat.Enter("/stats");
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("one\x0atwo\x0athree");
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Type("\x1b[A");
  chat.Settle();
  EXPECT_THAT(EditedRows(chat), testing::ElementsAre("> one", "  two", "  three"));
  chat.Type("\x1b[A\x1b[A\x1b[A");
  chat.Settle();
  EXPECT_THAT(EditedRows(chat), testing::ElementsAre("> /stats"));
  chat.Type("\x15\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatKeys, AStoppedPromptIsKept) {
  TerminalProgram chat(Slow(), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("Who is there?");
  ASSERT_TRUE(chat.Await("\"turn\":1,\"messages\":2"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/read " + LongFile());
  ASSERT_TRUE(chat.AwaitPrompt());
  const auto stop = [&chat] {
    ASSERT_TRUE(chat.Await("prefill "));
    chat.Type("\x03");
    ASSERT_TRUE(chat.Await("/regen answers the message"));
    ASSERT_TRUE(chat.AwaitPrompt());
  };
  chat.Enter("Speak, man.");
  stop();
  EXPECT_THAT(chat.bytes(), HasSubstr("\"turn\":2,\"messages\":3"));
  // The message that was stopped, not the one that has its answer.
  chat.Enter("/regen");
  stop();
  EXPECT_THAT(chat.bytes(), HasSubstr("\"turn\":3,\"messages\":3"));
  // The typed text can be edited, and the file stays before it.
  chat.Enter("/edit");
  ASSERT_TRUE(chat.Await("> Speak, man."));
  chat.Enter(" Now.");
  stop();
  chat.Enter("/undo");
  ASSERT_TRUE(chat.Await("2 messages left"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("Go on.");
  ASSERT_TRUE(chat.Await("\"messages\":4"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/bye");
  EXPECT_EQ(chat.Wait(), 0);
}

// A shell with jobs, in which the program is stopped while it reads, and goes on.
TEST_F(ChatKeys, CtrlZStopsTheProgram) {
  TerminalProgram shell({"--norc", "--noprofile", "-i"}, With(Environment(), {"PS1=shell$ "}), 80,
                        "/bin/bash");
  ASSERT_TRUE(shell.Await("shell$ "));
  std::string command = kProgramPath;
  for (const std::string& word : Arguments({"-n", "4"})) command += " " + word;
  shell.Enter(command);
  ASSERT_TRUE(shell.AwaitPrompt());
  shell.Type("Who is\x1a");
  ASSERT_TRUE(shell.Await("Stopped"));
  ASSERT_TRUE(shell.Await("shell$ "));
  shell.Enter("echo $((6 * 7))");  // the terminal echoes and collects lines again
  ASSERT_TRUE(shell.Await("42"));
  ASSERT_TRUE(shell.Await("shell$ "));
  shell.Enter("fg");
  ASSERT_TRUE(shell.Await("\x1b[?2004h"));
  ASSERT_TRUE(shell.Await("> Who is"));
  shell.Settle();
  EXPECT_THAT(EditedRows(shell), testing::ElementsAre("> Who is"));
  shell.Enter(" there?");
  ASSERT_TRUE(shell.Await("answer 4"));
  ASSERT_TRUE(shell.AwaitPrompt());
  shell.Enter("/exit");
  ASSERT_TRUE(shell.Await("shell$ "));
  shell.Enter("exit");
  EXPECT_EQ(shell.Wait(), 0);
}

Words WordsOf(const std::string& text) {
  std::istringstream stream(text);
  Words out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

// The answer of a chat between the message and the gauge, row by row.
Words AnswerRows(const TerminalProgram& chat, const std::string& message) {
  Words out;
  bool begun = false;
  for (const std::string& row : chat.screen().Rows()) {
    if (begun && (row.starts_with("[.") || row.starts_with("[#"))) return out;
    if (begun) out.push_back(row);
    begun |= row == "> " + message;
  }
  return out;
}

// A text of verses that the model continues.
TEST_F(ChatKeys, AnswersAreBrokenBetweenWords) {
  const std::string message = "JULIET:";
  const Words talk = {"chat", Shakespeare(), "-t", "1",   "--no-chat-template", "--temp", "0.7",
                      "-s",   "1",           "-n", "100", "--ignore-eos"};
  const ProgramRun piped = RunProgram(talk, {.text = message + "\n"});
  ASSERT_EQ(piped.code, 0) << piped.error;
  ASSERT_GT(WordsOf(piped.out).size(), 40u) << piped.out;
  for (const unsigned short columns : {50, 24}) {
    TerminalProgram chat(talk, Environment(), columns);
    ASSERT_TRUE(chat.AwaitPrompt());
    chat.Enter(message);
    ASSERT_TRUE(chat.Await("answer"));
    ASSERT_TRUE(chat.AwaitPrompt());
    std::string joined;
    for (const std::string& row : AnswerRows(chat, message)) {
      EXPECT_LT(row.size(), columns);
      joined += row + " ";
    }
    EXPECT_EQ(WordsOf(joined), WordsOf(piped.out)) << columns;
    EXPECT_EQ(chat.screen().beyond(), 0u);
    chat.Type("\x04");
    EXPECT_EQ(chat.Wait(), 0);
  }
  // Without it the terminal breaks the lines, which this screen counts.
  TerminalProgram chat(With(talk, {"--no-word-wrap"}), Environment(), 24);
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter(message);
  ASSERT_TRUE(chat.Await("answer"));
  EXPECT_GT(chat.screen().beyond(), 0u);
}

class NoPrompt : public Sequences {
 protected:
  static Words Environment() { return {"NO_COLOR=1", "TERM=xterm"}; }
};

TEST_F(NoPrompt, OffersAConversation) {
  TerminalProgram yes({"run", "dialogue", "-t", "1", "--temp", "0"},
                      With(Environment(), {"XDG_STATE_HOME=" + (folder_ / "state")}));
  ASSERT_TRUE(yes.Await("Talk with it? [Y/n]"));
  yes.Enter("");
  ASSERT_TRUE(yes.AwaitPrompt());
  yes.Enter("What is 174 + 403?");
  ASSERT_TRUE(yes.Await("so 577."));
  yes.Enter("/bye");
  EXPECT_EQ(yes.Wait(), 0);
  TerminalProgram no({"run", "dialogue", "-t", "1"}, Environment());
  ASSERT_TRUE(no.Await("Talk with it? [Y/n]"));
  no.Enter("n");
  ASSERT_TRUE(no.Await("-p TEXT gives one"));
  EXPECT_EQ(no.Wait(), 2);
  TerminalProgram stopped({"run", "dialogue", "-t", "1"}, Environment());
  ASSERT_TRUE(stopped.Await("Talk with it? [Y/n]"));
  stopped.Type("\x03");
  EXPECT_EQ(stopped.Wait(), 130);
}

TEST_F(NoPrompt, TellsHowToGiveOne) {
  TerminalProgram run({"run", Shakespeare(), "-t", "1", "-n", "4"}, Environment());
  ASSERT_TRUE(run.Await("-p TEXT gives one"));
  EXPECT_EQ(run.Wait(), 0);
  // Where there is a prompt, and where a program reads along, nothing is told or asked.
  TerminalProgram prompted({"run", Shakespeare(), "-t", "1", "-n", "4", "-p", "ROMEO:"},
                           Environment());
  EXPECT_EQ(prompted.Wait(), 0);
  EXPECT_EQ(prompted.bytes().find("-p TEXT"), std::string::npos);
  EXPECT_EQ(RunModel({"-n", "4"}).error, "");
}

}  // namespace
}  // namespace kvant::test
