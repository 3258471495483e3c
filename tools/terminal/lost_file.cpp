#include "tools/terminal/lost_file.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "kvant/lost_mapping.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

volatile std::sig_atomic_t clear_line = 0;  // there may be a status line

// Appends as much of the text as fits; control characters of a path become '?'.
size_t Append(char* line, size_t size, size_t size_max, const char* text) {
  for (; *text != '\0' && size < size_max; ++text) {
    const auto byte = static_cast<unsigned char>(*text);
    line[size++] = byte < 0x20 || byte == 0x7f ? '?' : *text;
  }
  return size;
}

// Calls only what a signal handler may call.
void OnBusError(int number, siginfo_t* fault, void* /*context*/) {
  const char* const path = MappedFileAt(fault->si_addr);
  if (path == nullptr) {  // a defect of this program: dies as it would without the handler
    std::signal(number, SIG_DFL);
    raise(number);
    return;
  }
  static std::atomic_flag told;
  while (told.test_and_set()) pause();  // another thread is about to end the program
  static char line[8192];
  constexpr size_t kPathEnd = sizeof(line) - 256;
  constexpr const char* kReason =
      ": has become shorter while it was in use, or cannot be read any more";
  size_t size = 0;
  if (clear_line != 0) {
    std::memcpy(line, "\r\x1b[K", 4);
    size = 4;
  }
  size = Append(line, size, kPathEnd, "kvant: ");
  size = Append(line, size, kPathEnd, path);
  size = Append(line, size, sizeof(line) - 1, kReason);
  line[size++] = '\n';
  static_cast<void>(!write(STDERR_FILENO, line, size));
  _exit(kExitFailed);
}

}  // namespace

void EndAtLostFiles() {
  clear_line = StderrIsTerminal() ? 1 : 0;
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigfillset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace kvant::tools
