#include "tools/run/no_prompt.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "kvant/chat.h"
#include "tools/commands.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr int kSignalCheckMs = 50;

bool LacksPrompt(const RunOptions& options, const Positionals& positionals) {
  return !options.prompt.text && !options.prompt.file && !positionals.stdin_text &&
         !options.continuation.File() && !options.batch.prompts && !options.frames.file &&
         !options.translation.has_encoder;
}

bool OnTerminal(const RunOptions& options) {
  return isatty(STDIN_FILENO) == 1 && StdoutIsTerminal() && StderrIsTerminal() && !options.json &&
         !options.quiet;
}

// A line of the terminal without its end; nullopt at the end of the input, with its exit code in
// `code`, and after a signal.
std::optional<std::string> ReadAnswer(int* code) {
  std::string line;
  while (!CancelFlag().load()) {
    // A signal may come before the wait, which is therefore short.
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kSignalCheckMs) <= 0) continue;
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      *code = (input.revents & POLLHUP) != 0 ? HangUpExitCode() : kExitUsage;
      return std::nullopt;
    }
    if (byte == '\n') return line;
    line += byte;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> OfferPrompt(const CommandLine& line, const RunOptions& options,
                               const Positionals& positionals, const RunModel& opened) {
  if (!LacksPrompt(options, positionals) || !OnTerminal(options)) return std::nullopt;
  if (!ChatTemplate::OfModel(*opened.model).ok()) {
    Note("no prompt was given, so the text begins on its own; -p TEXT gives one");
    return std::nullopt;
  }
  WriteError("No prompt was given, and this model holds conversations. Talk with it? [Y/n] ");
  int code = kExitUsage;
  const auto answer = ReadAnswer(&code);
  if (!answer.has_value()) {
    WriteError("\n");
    return CancelFlag().load() ? SignalExitCode() : code;
  }
  if (answer->empty() || *answer == "y" || *answer == "Y" || *answer == "yes") {
    CommandLine talk("chat", line.arguments());
    return ChatCommand(talk);
  }
  return line.UsageError("no prompt given: -p TEXT gives one, and --chat makes a message of it");
}

}  // namespace kvant::tools
