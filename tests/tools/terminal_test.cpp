// Runs the program on a terminal of 40 columns. It shows no wider line, since a line that wraps
// cannot be overwritten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <cstdlib>

#include "tests/tools/program.h"

namespace kvant::test {
namespace {

constexpr unsigned short kColumns = 40;

// Everything that a command writes to stderr, a terminal of 40 columns. Its result goes nowhere.
std::string OnTerminal(const std::string& command, int* code) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_EQ(grantpt(master) + unlockpt(master), 0);
  const winsize size = {.ws_row = 25, .ws_col = kColumns, .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(ioctl(master, TIOCSWINSZ, &size), 0);
  // Holds the other end open until all has been read.
  const int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const ProgramRun run =
      RunShell("\"$KVANT\" " + command + " > /dev/null 2> '" + ptsname(master) + "'");
  *code = run.code;
  fcntl(master, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(master, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  close(slave);
  close(master);
  return text;
}

TEST(Terminal, NothingIsWiderThanIt) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::string command :
       {"run shakespeare -t 1 -p 'ROMEO:' -n 12 --temp 0",
        "run shakespeare -t 1 -p 'ROMEO:' -n 12 --temp 0 --draft ngram",
        "run shakespeare -t 1 -p 'ROMEO:' -n 4 --beams 2", "hash shakespeare"}) {
    int code = 0;
    std::string text = OnTerminal(command, &code);
    EXPECT_EQ(code, 0) << text;
    EXPECT_THAT(text, testing::Not(testing::IsEmpty())) << command;
    // A line begins behind "\r" and the code that clears it.
    for (size_t at; (at = text.find("\x1b[K")) != std::string::npos;) text.replace(at, 3, "\n");
    size_t column = 0;
    for (const char c : text) {
      column = c == '\n' || c == '\r' ? 0 : column + 1;
      ASSERT_LE(column, size_t{kColumns}) << text;
    }
  }
}

}  // namespace
}  // namespace kvant::test
