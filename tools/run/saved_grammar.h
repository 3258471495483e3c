// The grammar in the middle of which a saved text stops, as the note of a session file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "kvant/grammar.h"

namespace kvant::tools {

struct SavedGrammar {
  GrammarText text;
  int64_t begin = 0;  // tokens in front of what the grammar describes
  int64_t end = 0;    // all tokens of the saved text
};

std::string NoteOf(const SavedGrammar& saved);
// nullopt for "". kCorrupt names the file and what is wrong with its note.
Result<std::optional<SavedGrammar>> ReadNote(const std::string& path, const std::string& note);

}  // namespace kvant::tools
