// Keeps the lines that were typed, in memory and in a file that outlives the program, as one JSON
// string a line.
//
// A file that cannot be read or written is done without.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvant::tools {

class InputHistory {
 public:
  // Takes over what the file holds; "" keeps the history in memory only.
  explicit InputHistory(std::string path);

  // Adds an entry to memory and to the end of the file, unless it repeats the last one.
  void Add(const std::string& entry);

  const std::vector<std::string>& entries() const { return entries_; }  // oldest first

 private:
  std::string path_;
  std::vector<std::string> entries_;
};

// $XDG_STATE_HOME/kvant/chat_history, or that under ~/.local/state; "" where neither is known. The
// folders are created.
std::string HistoryPath();

}  // namespace kvant::tools
