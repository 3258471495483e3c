// Finds which of kvant's pre-tokenizers (engine/tokenizer/pre_tokenizers.h) a tokenizer.json
// describes.
//
// Its steps are written out as the expressions they stand for and compared with the rows of that
// table, so a new row is recognised without a line here. (llama.cpp's converter compares the tokens
// of a test text with recorded hashes instead, and knows only the vocabularies it has seen.)
//
// Thread-safety: pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/convert/tokenizer_json.h"

namespace kvant::convert {

// The name for tokenizer.ggml.pre. kNotSupported, with the steps, for normalizers and
// pre-tokenizers that no row describes.
Result<std::string> PreTokenizerName(const TokenizerJson& tokenizer);

// One spelling for expressions that differ only in how characters are escaped: \n, \x{4E00} and the
// like become the characters.
std::string CanonicalPattern(std::string_view pattern);

}  // namespace kvant::convert
