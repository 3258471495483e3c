// Shared by the commands that run a text through a model: MODEL and TEXT, the size of windows, and
// the line of progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/evaluate/windows.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/stopwatch.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

struct EvaluationGroup {
  ModelGroup model;
  SessionGroup session;
  std::optional<std::string> text_option;  // -f
  std::optional<int64_t> chunks;

  // Everything but -c, whose default is the command's.
  void Add(OptionList& list);

  // MODEL and TEXT from the arguments and the options. Returns the exit code of wrong usage; TEXT
  // may be missing.
  std::optional<int> TakeFiles(const CommandLine& line, std::string* model_path,
                               std::optional<std::string>* text_path) const;
};

// The file, or standard input for "-".
Result<std::string> ReadText(const std::string& path);

// The tokens of a text as llama.cpp's tools see it: without its last line break, with what the
// vocabulary puts in front.
Result<std::vector<TokenId>> TokenizeText(const std::string& path, const Tokenizer& tokenizer);

// Session options for windows of `size` tokens.
Result<SessionOptions> WindowSessionOptions(const SessionGroup& group, int64_t size);

// "3 of 16 windows, 2100 tokens/s, 12 s left (perplexity 69.56)"
class EvaluationProgress {
 public:
  // `unit` is what is counted: "windows".
  EvaluationProgress(const char* unit, int64_t total)
      : unit_(unit), total_(total), status_(StatusUse::kShown) {}

  // kCancelled after Ctrl+C. `tokens` is how many went through the model so far.
  Status Update(int64_t done, int64_t tokens, const std::string& what);

  double seconds() const { return SecondsSince(start_); }
  void Clear() { status_.Clear(); }

 private:
  const char* unit_;
  int64_t total_;
  StatusLine status_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace kvant::tools
