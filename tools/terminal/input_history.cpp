#include "tools/terminal/input_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "tools/options/json.h"

namespace kvant::tools {
namespace {

constexpr size_t kHistoryEntries = 1000;
constexpr size_t kHistoryFileBytesMax = size_t{4} << 20;  // a longer file begins anew

}  // namespace

InputHistory::InputHistory(std::string path) : path_(std::move(path)) {
  std::error_code error;
  if (path_.empty() || !std::filesystem::is_regular_file(path_, error)) return;
  std::ifstream file(path_, std::ios::binary);
  size_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    bytes += line.size() + 1;
    if (bytes > kHistoryFileBytesMax) break;
    const Json entry = Json::parse(line, nullptr, false);
    if (entry.is_string()) entries_.push_back(entry.get<std::string>());
  }
  if (entries_.size() > kHistoryEntries) {
    entries_.erase(entries_.begin(), entries_.end() - static_cast<std::ptrdiff_t>(kHistoryEntries));
  }
}

void InputHistory::Add(const std::string& entry) {
  if (entry.empty() || (!entries_.empty() && entries_.back() == entry)) return;
  entries_.push_back(entry);
  if (path_.empty()) return;
  std::error_code error;
  const auto size = std::filesystem::file_size(path_, error);
  const int anew = !error && size > kHistoryFileBytesMax / 2 ? O_TRUNC : 0;
  // The file is for its owner alone: people type what concerns nobody else.
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | anew, 0600);
  if (fd < 0) return;
  std::string text;
  for (const std::string& line : anew != 0 ? entries_ : std::vector{entry}) {
    text += Dump(line) + "\n";
  }
  const ssize_t written = write(fd, text.data(), text.size());
  static_cast<void>(written);
  close(fd);
}

std::string HistoryPath() {
  namespace fs = std::filesystem;
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  fs::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = fs::path(home) / ".local" / "state";
  } else {
    return "";
  }
  folder /= "kvant";
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? "" : (folder / "chat_history").string();
}

}  // namespace kvant::tools
