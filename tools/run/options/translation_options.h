// The options of a model that has an encoder: it reads a source and writes another text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/text/languages.h"
#include "kvant/token_id.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

struct TranslationOptions {
  std::optional<std::string> prefix;  // the beginning of the text that the model writes
  LanguageNames languages;
  bool has_encoder = false;           // whether the model has an encoder
  std::vector<TokenId> first_tokens;  // the file's tokens behind the first token that is written
  bool writes_text = false;           // one text is sampled or kept in a file: there is no search
  bool draws = false;                 // some option of the samplers was given

  void AddPrefix(OptionList& list);
  void AddLanguages(OptionList& list);
};

}  // namespace kvant::tools
