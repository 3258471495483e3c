// The program's side of the terminal: results to stdout, everything else to stderr, signals.
//
// stdout carries only the result. A reader that goes away (`kvant run … | head -1`) ends the
// program quietly with success; any other failure to write is an error. Text that cannot be written
// to stderr is lost, and the work goes on. Errors are one line.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvant::tools {

// The exit codes of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
// An interruption gives 128 + the signal's number: 130 for Ctrl+C.

// Opens what the program was started without of standard input, output and error, so that no file
// takes their place; reading and writing there then fail. Before anything else is opened.
void OpenStandardStreams();

// Writes to stderr as far as that is possible.
void WriteError(std::string_view text);

// Prints "kvant: message" as one line, control characters made visible, and returns the code.
int Fail(std::string_view message, int code = kExitFailed);

// Prints an error of the library in that form and returns its code: kExitUsage for kInvalid, the
// signal's code for kCancelled, which prints nothing, and kExitFailed for the rest.
int Fail(const Error& error);

// "kvant: note: message" on stderr.
void Note(std::string_view message);

// Text of a file or of the command line with control characters as \n, \t, \x1b, and nothing that
// a terminal would obey. Valid UTF-8 stays as it is.
std::string Visible(std::string_view text);

// After this, the first Ctrl+C (or SIGTERM, SIGHUP) sets the flag and one half a second later or
// more kills; a write to a closed pipe is an error instead of a signal.
void CatchSignals();
const std::atomic<bool>& CancelFlag();
// The signal has been obeyed: what is left to do, such as saving, is not cancelled by it, but by
// another one.
void TakeSignal();
int SignalExitCode();  // 130 for SIGINT; kExitFailed if no signal has come
// The terminal is gone. Its signal may not have come yet, or may have gone to another thread that
// has not run: SignalExitCode() after a signal, else 129.
int HangUpExitCode();

bool StdoutIsTerminal();
bool StderrIsTerminal();

// Standard output, unbuffered: what is written is visible at once.
class ResultStream {
 public:
  // False once writing has failed, for whatever reason.
  bool Write(std::string_view text);

  // Ends the last line if stdout is a terminal, so that the prompt of the shell starts on its own.
  void EndLineOnTerminal();

  // The exit code of a command that has finished with `code`: a reader that went away is no
  // failure, anything else that kept text from arriving is, and is reported.
  int Finish(int code) const;

  bool failed() const { return error_number_ != 0; }

 private:
  int error_number_ = 0;
  bool at_line_start_ = true;
  bool is_terminal_ = StdoutIsTerminal();  // at first
};

enum class StatusUse : uint8_t {
  kHidden,
  kShown,  // if stderr is a terminal
};

// A line on stderr that is overwritten as work proceeds; nothing if stderr is no terminal. A line
// wider than the terminal is cut off, since a line that wraps could not be overwritten.
class StatusLine {
 public:
  explicit StatusLine(StatusUse use) : enabled_(use == StatusUse::kShown && StderrIsTerminal()) {}
  ~StatusLine() { Clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void Set(std::string_view text);
  void Clear();
  bool enabled() const { return enabled_; }

 private:
  bool enabled_;
  bool shown_ = false;
};

// Shows the library's warnings on stderr.
void ShowLog();

}  // namespace kvant::tools
