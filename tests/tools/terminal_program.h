// Runs the built program on a terminal of its own, types, and looks at what it shows.
//
// The program begins with the signals of a shell, whatever this process ignores. Every wait has a
// bound, after which the program is killed and the test fails.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/tools/program.h"
#include "tests/tools/terminal_screen.h"

namespace kvant::test {

class TerminalProgram {
 public:
  static constexpr int kWaitMs = 20'000;

  // `environment` is "NAME=VALUE". `path`: of another program than kvant.
  explicit TerminalProgram(std::vector<std::string> arguments,
                           const std::vector<std::string>& environment = {},
                           unsigned short columns = 80, const char* path = kProgramPath)
      : screen_(columns) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    EXPECT_EQ(grantpt(master_) + unlockpt(master_), 0);
    Resize(columns);
    const std::string slave = ptsname(master_);
    arguments.insert(arguments.begin(), path);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) Become(slave.c_str(), argv.data(), environment);
    fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~TerminalProgram() {
    if (child_ > 0) Kill();
    if (master_ >= 0) close(master_);
  }
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void Type(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const ssize_t count = write(master_, text.data() + at, text.size() - at);
      if (count > 0) at += static_cast<size_t>(count);
      if (count < 0 && errno != EAGAIN) return;
      Read(10);
    }
  }
  void Enter(const std::string& line) { Type(line + "\r"); }

  // Whether `text` comes in what is shown from now on; what is behind it is left for the next call.
  bool Await(const std::string& text) {
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      const size_t at = bytes_.find(text, seen_);
      if (at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (std::chrono::steady_clock::now() - start > std::chrono::milliseconds(kWaitMs) ||
          !Read(50)) {
        ADD_FAILURE() << "'" << text << "' has not come behind: " << bytes_;
        Kill();
        return false;
      }
    }
  }
  // The prompt, where the program awaits a text.
  bool AwaitPrompt() { return Await("\x1b[?2004h") && Await("\x1b[2C"); }

  // The bytes that the program wrote from the last call of Await but one to the present place.
  std::string bytes() const { return bytes_; }
  const TerminalScreen& screen() const { return screen_; }

  // Looks at the terminal until nothing has come for a while.
  void Settle() {
    while (Read(300)) {
      if (!read_) return;
    }
  }

  void Resize(unsigned short columns) {
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(master_, TIOCSWINSZ, &size), 0);
    screen_.SetColumns(columns);
  }
  void HangUp() {
    close(master_);
    master_ = -1;
  }
  void Signal(int number) const { kill(child_, number); }

  // The exit code, or 128 + the signal that ended the program.
  int Wait() {
    const auto start = std::chrono::steady_clock::now();
    int status = 0;
    while (waitpid(child_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() - start > std::chrono::milliseconds(kWaitMs)) {
        ADD_FAILURE() << "the program does not end: " << bytes_;
        Kill();
        return -1;
      }
      if (master_ < 0 || !Read(10)) usleep(10'000);
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  // In the child: a session of its own with this terminal.
  [[noreturn]] static void Become(const char* slave, char** argv,
                                  const std::vector<std::string>& environment) {
    setsid();
    for (const int number :
         {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGWINCH, SIGTSTP, SIGCONT}) {
      std::signal(number, SIG_DFL);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int terminal = open(slave, O_RDWR);
    ioctl(terminal, TIOCSCTTY, 0);
    for (const int fd : {0, 1, 2}) dup2(terminal, fd);
    for (const std::string& entry : environment) putenv(const_cast<char*>(entry.c_str()));
    execv(argv[0], argv);
    _exit(127);
  }

  // False where the terminal is closed on the other side.
  bool Read(int timeout_ms) {
    read_ = false;
    if (master_ < 0) return false;
    pollfd wait = {master_, POLLIN, 0};
    if (poll(&wait, 1, timeout_ms) <= 0) return true;
    char buffer[65536];
    const ssize_t count = read(master_, buffer, sizeof(buffer));
    if (count <= 0) return count < 0 && errno == EAGAIN;
    read_ = true;
    bytes_.append(buffer, static_cast<size_t>(count));
    screen_.Show({buffer, static_cast<size_t>(count)});
    return true;
  }

  void Kill() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

  int master_ = -1;
  pid_t child_ = -1;
  bool read_ = false;
  size_t seen_ = 0;
  std::string bytes_;
  TerminalScreen screen_;
};

}  // namespace kvant::test
