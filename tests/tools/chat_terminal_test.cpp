// kvant chat on a terminal: turns, editing, wide characters, resizing, pasting, Ctrl+C, going back,
// saving and loading, hanging up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/tools/sequences.h"
#include "tests/tools/terminal_program.h"

namespace kvant::test {
namespace {

class ChatTerminal : public Sequences {
 protected:
  Words Arguments(const Words& options = {}) const {
    return With(
        {"chat", Shakespeare(), "-t", "1", "--chat-template", "chatml", "--temp", "0", "-n", "12"},
        options);
  }
  // No history but the test's, and no colours, so that texts can be found.
  Words Environment() const {
    return {"XDG_STATE_HOME=" + (folder_ / "state"), "NO_COLOR=1", "TERM=xterm"};
  }

  // The answer of the same talk through pipes.
  static std::string LastLine(const std::string& text) {
    const size_t end = text.find_last_not_of('\n');
    const size_t begin = text.rfind('\n', end);
    return text.substr(begin == std::string::npos ? 0 : begin + 1,
                       end - (begin == std::string::npos ? -1 : begin));
  }
  std::string Answers(const std::string& lines, const Words& options = {}) const {
    const ProgramRun run = RunProgram(Arguments(options), {.text = lines});
    EXPECT_EQ(run.code, 0) << run.error;
    return run.out;
  }
};

TEST_F(ChatTerminal, Talks) {
  TerminalProgram chat(Arguments(), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("Who is there?");
  ASSERT_TRUE(chat.Await(LastLine(Answers("Who is there?\n"))));
  ASSERT_TRUE(chat.Await("kept 0"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("Speak.");
  ASSERT_TRUE(chat.Await(LastLine(Answers("Who is there?\nSpeak.\n"))));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/undo");
  ASSERT_TRUE(chat.Await("2 messages left"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/regen");
  ASSERT_TRUE(chat.Await("new 1 "));
  ASSERT_TRUE(chat.AwaitPrompt());
  EXPECT_THAT(chat.screen().Text(), HasSubstr("> Who is there?\n"));
  EXPECT_EQ(chat.screen().beyond(), 0u) << chat.bytes();
  EXPECT_EQ(chat.bytes().find("\x1b[1m"), std::string::npos) << "colours in spite of NO_COLOR";
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, EditsLines) {
  TerminalProgram chat(Arguments(), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  // Home, a word, end; erase a word and bring it back; a character of two columns, and an emoji.
  chat.Type("is there?\x01Who \x05\x17\x19");
  chat.Type(" \xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80\x7f\x1b[D\x1b[C");
  chat.Settle();
  EXPECT_THAT(chat.screen().Text(), HasSubstr("> Who is there? \xe6\x97\xa5\xe6\x9c\xac\n"));
  EXPECT_EQ(chat.screen().column(), 2 + 14 + 4u);
  chat.Type("\x03");  // the text is dropped
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Type("/un\t");
  ASSERT_TRUE(chat.Await("/undo"));
  chat.Enter("");
  ASSERT_TRUE(chat.Await("there is no message to take back"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Type("/re\t");
  ASSERT_TRUE(chat.Await("/regen"));
  chat.Type("\x15\x1b[A");  // from the history
  chat.Settle();
  EXPECT_EQ(chat.screen().Rows().at(chat.screen().row()), "> /undo");
  chat.Type("\x15/exit\r");
  EXPECT_EQ(chat.Wait(), 0);
  TerminalProgram again(Arguments(), Environment());
  ASSERT_TRUE(again.AwaitPrompt());
  again.Type("\x1b[A");
  ASSERT_TRUE(again.Await("/exit"));
  again.Enter("");
  EXPECT_EQ(again.Wait(), 0);
}

TEST_F(ChatTerminal, DrawsAgainWhenResized) {
  TerminalProgram chat(Arguments(), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  std::string text;
  for (int i = 0; i < 12; ++i) text += "\xe6\x97\xa5\xe6\x9c\xac word ";
  std::string expected = text;
  std::erase(expected, ' ');
  chat.Type(text);
  chat.Settle();
  EXPECT_EQ(chat.screen().beyond(), 0u);
  for (const unsigned short columns : {31, 20, 119, 5, 80}) {
    chat.Resize(columns);
    chat.Settle();
    EXPECT_EQ(chat.screen().beyond(), 0u) << columns;
    if (columns < 20) continue;  // too many rows for this screen: those around the cursor
    // The text is there, on rows of this width.
    const auto rows = chat.screen().Rows();
    size_t first = rows.size();
    while (first > 0 && !rows[first - 1].starts_with("> ")) --first;
    ASSERT_GT(first, 0u) << chat.screen().Text();
    std::string shown;
    for (size_t row = first - 1; row < rows.size(); ++row) {
      if (rows[row].size() > 2) shown += rows[row].substr(2);
    }
    std::erase(shown, ' ');
    EXPECT_EQ(shown, expected) << columns;
  }
  chat.Type("\x15\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, TakesAPasteOfManyLines) {
  TerminalProgram chat(Arguments({"--stats"}), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  std::string lines;
  std::string joined;
  for (int i = 1; i <= 60; ++i) {
    lines += (i > 1 ? "\r" : "") + std::string("line ") + std::to_string(i);
    joined += (i > 1 ? "\\\n" : "") + std::string("line ") + std::to_string(i);
  }
  chat.Type("\x1b[200~" + lines + "\x1b[201~");
  ASSERT_TRUE(chat.Await("line 60"));
  EXPECT_EQ(chat.bytes().find("\"turn\""), std::string::npos);  // nothing was sent
  chat.Enter("");
  ASSERT_TRUE(chat.Await("\"turn\":1,\"messages\":2"));
  ASSERT_TRUE(chat.AwaitPrompt());
  const ProgramRun piped = RunProgram(Arguments({"--stats"}), {.text = joined + "\n"});
  const json stats = Lines(piped.error).front();
  EXPECT_THAT(chat.bytes(),
              HasSubstr("\"conversation_tokens\":" + stats["conversation_tokens"].dump()));
  chat.Type("one\x0atwo\\\r");
  chat.Type("three\r");
  ASSERT_TRUE(chat.Await("\"turn\":2,\"messages\":4"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, CtrlCStopsTheAnswer) {
  TerminalProgram chat(
      Arguments({"-n", "-1", "--ignore-eos", "-c", "200000", "--temp", "0.8", "-s", "1"}),
      Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("Speak.");
  ASSERT_TRUE(chat.Await("[?2004l"));
  ASSERT_TRUE(chat.Await(":"));
  chat.Type("\x03");
  ASSERT_TRUE(chat.Await("[stopped]"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/stats");
  ASSERT_TRUE(chat.Await("\"messages\":2"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Type("\x03");
  ASSERT_TRUE(chat.Await("/exit ends the program"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/exit");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, SavedConversationsSurviveARestart) {
  const std::string path = folder_ / "talk.json";
  {
    TerminalProgram chat(Arguments(), Environment());
    ASSERT_TRUE(chat.AwaitPrompt());
    chat.Enter("Who is there?");
    ASSERT_TRUE(chat.AwaitPrompt());
    chat.Enter("/save " + path);
    ASSERT_TRUE(chat.Await("saved 2 messages"));
    ASSERT_TRUE(chat.AwaitPrompt());
    chat.Type("\x04");
    EXPECT_EQ(chat.Wait(), 0);
  }
  TerminalProgram chat(Arguments({"--stats"}), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/load " + path);
  ASSERT_TRUE(chat.Await("2 messages of "));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("Speak.");
  ASSERT_TRUE(chat.Await(LastLine(Answers("Who is there?\nSpeak.\n"))));
  ASSERT_TRUE(chat.Await("\"messages\":4"));
  EXPECT_EQ(chat.bytes().find("\"reused_tokens\":0,"), std::string::npos);
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/edit");
  ASSERT_TRUE(chat.Await("> Speak."));
  chat.Type("\x15/exit\r");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, AsksWhenTheContextIsFull) {
  TerminalProgram chat(Arguments({"-c", "96"}), Environment());
  const std::string line = "Who is there, and what does he want of us?";
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter(line);
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter(line);
  ASSERT_TRUE(chat.Await("Forget the oldest messages? [y/N]"));
  chat.Enter("n");
  ASSERT_TRUE(chat.Await("[not sent; /edit changes the message]"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter(line);
  ASSERT_TRUE(chat.Await("Forget the oldest messages? [y/N]"));
  chat.Enter("y");
  ASSERT_TRUE(chat.Await("2 messages left out"));
  ASSERT_TRUE(chat.Await("answer 12"));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("/exit");
  EXPECT_EQ(chat.Wait(), 0);
}

// All words of it, on lines of the terminal's width.
TEST_F(ChatTerminal, WrapsItsHelp) {
  for (const unsigned short columns : {80, 40, 24}) {
    TerminalProgram chat(Arguments(), Environment());
    ASSERT_TRUE(chat.AwaitPrompt());
    chat.Resize(columns);
    chat.Settle();
    chat.Enter("/help");
    ASSERT_TRUE(chat.AwaitPrompt());
    std::istringstream words(chat.bytes());
    std::string text;
    for (std::string word; words >> word;) text += word + " ";
    for (const char* part :
         {"/read FILE Put the text of a file before the next message ",
          "/beams N Answer with the best of N texts that are followed at once; 1 is off ",
          "Ctrl+C stops an answer, Ctrl+D ends the program, Tab completes commands and files. "}) {
      EXPECT_THAT(text, HasSubstr(part)) << columns;
    }
    EXPECT_EQ(chat.screen().beyond(), 0u) << columns;
    chat.Type("\x04");
    EXPECT_EQ(chat.Wait(), 0);
  }
}

TEST_F(ChatTerminal, CountsNoMoreThanTheContextHolds) {
  TerminalProgram chat(Arguments({"-c", "96", "-n", "-1", "--ignore-eos"}), Environment());
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Enter("Speak.");
  ASSERT_TRUE(chat.Await("[##########] 96/96 "));
  ASSERT_TRUE(chat.AwaitPrompt());
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, EndsWhenTheTerminalIsGone) {
  TerminalProgram idle(Arguments(), Environment());
  ASSERT_TRUE(idle.AwaitPrompt());
  idle.HangUp();
  EXPECT_EQ(idle.Wait(), 128 + SIGHUP);
  TerminalProgram busy(Arguments({"-n", "-1", "--ignore-eos", "-c", "200000"}), Environment());
  ASSERT_TRUE(busy.AwaitPrompt());
  busy.Enter("Speak.");
  ASSERT_TRUE(busy.Await("[?2004l"));
  busy.HangUp();
  EXPECT_EQ(busy.Wait(), 128 + SIGHUP);
  TerminalProgram told(Arguments(), Environment());
  ASSERT_TRUE(told.AwaitPrompt());
  told.Signal(SIGTERM);
  EXPECT_EQ(told.Wait(), 128 + SIGTERM);
}

// The end of the input may be seen before the signal is. A program that ignores SIGHUP sees no
// other.
TEST_F(ChatTerminal, KnowsAGoneTerminalWithoutASignal) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  TerminalProgram idle(Arguments(), Environment());
  TerminalProgram asked({"run", "dialogue", "-t", "1"}, Environment());
  std::signal(SIGHUP, before);
  ASSERT_TRUE(idle.AwaitPrompt());
  idle.HangUp();
  EXPECT_EQ(idle.Wait(), 128 + SIGHUP);
  ASSERT_TRUE(asked.Await("Talk with it? [Y/n]"));
  asked.HangUp();
  EXPECT_EQ(asked.Wait(), 128 + SIGHUP);
}

}  // namespace
}  // namespace kvant::test
