// The special tokens that a tokenizer.json puts around a text, by its "post_processor": a template,
// or "cls" in front and "sep" behind, as BART's and RoBERTa's tokenizers have it. Thread-safety:
// pure.
#pragma once

#include "engine/convert/vocabulary.h"
#include "formats/json_object.h"

namespace kvant::convert {

// Sets bos and eos of the vocabulary where they stand around texts, and in any case whether they
// do; and whether two texts have two separators between them, where the step says it.
void ReadTextFrame(const formats::JsonObject& tokenizer, Vocabulary& vocabulary);

}  // namespace kvant::convert
