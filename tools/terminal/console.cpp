#include "tools/terminal/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/log.h"
#include "kvant/tokenizer.h"

namespace kvant::tools {
namespace {

std::atomic<bool> cancel_flag{false};
volatile std::sig_atomic_t caught_signal = 0;

static_assert(std::atomic<bool>::is_always_lock_free, "the flag is set in a signal handler");

// A second signal ends the program at once, unless it comes with the first: timeout(1) sends each
// twice, to the program and to its group.
constexpr int64_t kSameSignalMs = 500;
std::atomic<int64_t> caught_ms{0};

static_assert(std::atomic<int64_t>::is_always_lock_free, "used in a signal handler");

void OnSignal(int number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (!cancel_flag.load()) {
    caught_signal = number;
    caught_ms.store(now_ms);
    cancel_flag.store(true);
  } else if (now_ms - caught_ms.load() > kSameSignalMs) {
    std::signal(number, SIG_DFL);
    raise(number);  // takes effect when the handler returns
  }
}

void PrintLine(std::string_view line) { WriteError(fmt::format("kvant: {}\n", Visible(line))); }

// The first `columns` characters of valid UTF-8.
std::string_view FirstColumns(std::string_view text, size_t columns) {
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (begins && seen++ == columns) break;
  }
  return text.substr(0, end);
}

size_t StderrColumns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

}  // namespace

void OpenStandardStreams() {
  // The lowest free number is taken, which is the one that was found closed. Each is opened for the
  // other direction, so that using it is an error; only stderr swallows what it gets.
  for (const auto& [fd, mode] :
       {std::pair{STDIN_FILENO, O_WRONLY}, {STDOUT_FILENO, O_RDONLY}, {STDERR_FILENO, O_WRONLY}}) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", mode);
  }
}

void WriteError(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

int Fail(std::string_view message, int code) {
  PrintLine(message);
  return code;
}

int Fail(const Error& error) {
  if (error.code == ErrorCode::kCancelled) return SignalExitCode();
  return Fail(error.message, error.code == ErrorCode::kInvalid ? kExitUsage : kExitFailed);
}

void Note(std::string_view message) { PrintLine(fmt::format("note: {}", message)); }

std::string Visible(std::string_view text) {
  Utf8Stream stream;
  const std::string valid = stream.Push(text) + stream.Finish();
  std::string out;
  for (size_t i = 0; i < valid.size(); ++i) {
    const unsigned char byte = static_cast<unsigned char>(valid[i]);
    const unsigned char next = i + 1 < valid.size() ? static_cast<unsigned char>(valid[i + 1]) : 0;
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\r') {
      out += "\\r";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // C1 controls, U+0080 to U+009F
      out += fmt::format("\\x{:02x}", next);
      ++i;
    } else {
      out += valid[i];
    }
  }
  return out;
}

void CatchSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = 0;  // no SA_RESTART: a blocked read returns
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    // A program started with the signal ignored (nohup) keeps ignoring it.
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
  // Writing then fails with a reason instead.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

const std::atomic<bool>& CancelFlag() { return cancel_flag; }

void TakeSignal() { cancel_flag.store(false); }

int HangUpExitCode() { return CancelFlag().load() ? SignalExitCode() : 128 + SIGHUP; }

int SignalExitCode() { return caught_signal == 0 ? kExitFailed : 128 + caught_signal; }

bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) == 1; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

bool ResultStream::Write(std::string_view text) {
  if (failed()) return false;
  if (!text.empty()) at_line_start_ = text.back() == '\n';
  while (!text.empty()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      error_number_ = errno;
      return false;
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

void ResultStream::EndLineOnTerminal() {
  if (!at_line_start_ && StdoutIsTerminal()) Write("\n");
}

int ResultStream::Finish(int code) const {
  if (!failed()) return code;
  if (error_number_ == EPIPE) return kExitDone;
  if (error_number_ == EIO && is_terminal_) return HangUpExitCode();
  return Fail(fmt::format("cannot write to standard output: {}", std::strerror(error_number_)));
}

void StatusLine::Set(std::string_view text) {
  if (!enabled_) return;
  const std::string shown = Visible(text);
  WriteError(fmt::format("\r\x1b[K{}", FirstColumns(shown, StderrColumns() - 1)));
  shown_ = true;
}

void StatusLine::Clear() {
  if (!shown_) return;
  WriteError("\r\x1b[K");
  shown_ = false;
}

void ShowLog() {
  SetLogSink([](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) PrintLine(fmt::format("warning: {}", line));
  });
}

}  // namespace kvant::tools
