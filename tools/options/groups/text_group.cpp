#include "tools/options/groups/text_group.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/result.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

Result<std::string> ReadAll(int fd, const std::string& name) {
  std::string text;
  std::string buffer(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return MakeError(ErrorCode::kIo, "{}: cannot read: {}", name, std::strerror(errno));
    }
    if (count == 0) return text;
    text.append(buffer, 0, static_cast<size_t>(count));
  }
}

Result<std::string> ReadFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return MakeError(ErrorCode::kIo, "{}: cannot open: {}", path, std::strerror(errno));
  }
  auto text = ReadAll(fd, path);
  close(fd);
  return text;
}

}  // namespace

void TextGroup::Add(OptionList& list, const std::string& group, const std::string& what) {
  list.Group(group);
  list.Text("-p,--prompt", &text, "TEXT", "The " + what);
  list.Text("-f,--file", &file, "FILE",
            "Read the " + what + " from a file, as it is; - is standard input");
  list.Flag(
      "-e,--escape", &escape,
      "Read \\n, \\t, \\r, \\', \\\", \\\\ and \\xHH in TEXT as the characters they stand for");
}

Result<std::optional<std::string>> TextGroup::Read(const Positionals& positionals) const {
  const bool from_stdin = positionals.stdin_text || file == "-";
  const bool from_file = file.has_value() && file != "-";
  if ((text.has_value() ? 1 : 0) + (from_file ? 1 : 0) + (from_stdin ? 1 : 0) > 1) {
    return MakeError(ErrorCode::kInvalid,
                     "-p, -f and - exclude each other: give the text in one way");
  }
  if (text.has_value()) return std::optional(escape ? Unescape(*text) : *text);
  if (!from_file && !from_stdin) return std::optional<std::string>();
  KVANT_ASSIGN(std::string content,
               from_file ? ReadFile(*file) : ReadAll(STDIN_FILENO, "standard input"));
  return std::optional(std::move(content));
}

}  // namespace kvant::tools
