// The options of output that follows a grammar.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/grammar.h"
#include "tools/options/command_line.h"

namespace kvant {
class Tokenizer;
}  // namespace kvant

namespace kvant::tools {

struct GrammarGroup {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::string> regex;
  std::vector<std::string> choices;
  std::optional<std::string> choice_list;
  std::optional<std::string> json_schema;
  std::optional<std::string> json_schema_file;
  bool json_object = false;
  bool json_compact = false;
  bool json_any_keywords = false;
  std::vector<std::string> triggers;
  std::vector<std::string> trigger_patterns;

  void Add(OptionList& list);
  // kInvalid where two of the options are given.
  static Status Check(const OptionList& list);
  // Null where none is given. Errors of Grammar::Create, which name the option.
  Result<std::shared_ptr<const Grammar>> Make(const Tokenizer& tokenizer) const;
};

}  // namespace kvant::tools
