// The steps of a tokenizer.json in front of a model of pieces that spell a space U+2581: a table of
// characters, what is done to runs of spaces, and the space in front of a text. GGUF has keys for
// what SentencePiece does, and kvant has one for the rest.
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include "base/result.h"
#include "engine/convert/vocabulary.h"
#include "formats/json_object.h"

namespace kvant::convert {

struct PieceSteps {
  bool marks_spaces = false;  // " " becomes U+2581
  bool prefix = false;        // a space in front
  bool unless_space = false;  // but of texts that begin with one
  bool behind_tokens = true;  // also of what stands behind an added token
  bool merges_spaces = false;
  bool strips_end = false;
  bool cuts_words = false;        // in front of each U+2581
  bool cuts_white_space = false;  // at any white space, which goes
  bool has_table = false;         // of characters
};

// kNotSupported, with the key, for a step that is not understood, and where nothing marks spaces.
Result<PieceSteps> ReadPieceSteps(const formats::JsonObject& tokenizer);

// Gives a vocabulary what the steps do, and the table of characters. Warns of small differences.
Status UsePieceSteps(const formats::JsonObject& tokenizer, const PieceSteps& steps,
                     Vocabulary& vocabulary);

}  // namespace kvant::convert
