// The options of kvant transcribe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/speech.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/transcribe/transcript_format.h"

namespace kvant::tools {

struct TranscribeCommandOptions {
  ModelGroup model;
  SessionGroup session;
  TranscribeOptions transcribe;
  std::optional<TranscriptFormat> format;
  std::optional<std::string> output;  // a file, or a folder
  std::optional<std::string> language;
  std::optional<std::string> prompt;
  std::vector<std::string> suppress_ids;
  int64_t beams = 5;
  int64_t best_of = 5;
  int64_t seed = 0;
  bool translates = false;
  bool no_context = false;
  bool no_timestamps = false;
  bool keep_symbols = false;
  bool quiet = false;

  void Add(OptionList& list);
  // Fills `transcribe` with the values that were typed. kInvalid for those that make no sense.
  Status Finish(const OptionList& list);

 private:
  void AddOutput(OptionList& list);
  void AddChoice(OptionList& list);
  void AddThresholds(OptionList& list);
};

}  // namespace kvant::tools
