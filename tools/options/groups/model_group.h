// The options of a model's file, and the arguments that belong to no option: MODEL, and - for
// standard input.
//
// A group is a struct of plain values. Add binds the values to the options of a command before
// parsing; other members turn the values into the library's structs. Errors name the option.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvant/model.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

// The model file and how it is opened.
struct ModelGroup {
  std::optional<std::string> option_path;  // -m
  std::optional<std::string> pre;
  std::vector<std::string> ignored_keys;  // lists with commas
  bool lock_memory = false;
  bool no_mmap = false;

  void AddPath(OptionList& list);  // -m alone; the positional MODEL belongs to CommandLine
  void AddPre(OptionList& list);
  void AddIgnoredKeys(OptionList& list);  // --ignore-keys
  void AddLoading(OptionList& list);      // that, --mlock, --no-mmap

  ModelOptions Options() const;
};

// The arguments that belong to no option: MODEL, and "-" for standard input where a command takes
// it.
struct Positionals {
  std::string model;  // "" if absent
  bool stdin_text = false;
};

// Sorts them out together with -m, and finds the model. Returns the exit code of what was wrong and
// has been reported: an argument too many, no model although it is required, no such model.
enum class ModelNeed : uint8_t { kRequired, kOptional };
enum class StdinUse : uint8_t { kAccepted, kNone };
std::optional<int> TakePositionals(const CommandLine& line, const ModelGroup& model, ModelNeed need,
                                   StdinUse stdin_use, Positionals* out);

}  // namespace kvant::tools
