// The texts of embed and rerank: from the command line, from lines of a file, from lines of JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/json.h"

namespace kvant::tools {

struct InputText {
  std::string text;
  std::string where;            // for messages: "texts.txt: line 3"
  std::optional<Json> id = {};  // as a line of JSON has it
};

struct TextInput {
  std::vector<std::string> texts;  // -p
  std::optional<std::string> file;
  std::optional<std::string> lines_of_json;

  // `what` names the texts in the help: "texts". -p is there where `with_texts` says so.
  enum class Texts : uint8_t { kAccepted, kFromFilesOnly };
  void Add(OptionList& list, const std::string& what, Texts accepted);

  // All texts, from one of the ways: a line of a file is a text, without its end of line, and a
  // line of JSON is a string or an object with "text" and, if wanted, "id". kInvalid for no texts,
  // for more than one way and for an empty line.
  Result<std::vector<InputText>> Read(const Positionals& positionals) const;
};

}  // namespace kvant::tools
