// Makes a byte-level tokenizer of a list of its tokens alone, where the tokens stand in the order
// in which training made them, as in GPT-2's vocabulary and Whisper's: each token is then two
// older ones, and cutting its text by the older tokens finds them.
//
// Thread-safety: pure.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "formats/json.h"

namespace kvant::convert {

// The tokenizer.json of the first `texts` tokens, which are texts in the characters that stand for
// bytes ("" is no token), and of the tokens behind them, which are special. kNotSupported, naming
// the token, where the order of the list does not say what a token was made of.
Result<formats::Json> TokenizerOfRanks(std::span<const std::string> tokens, size_t texts,
                                       const std::string& file);

}  // namespace kvant::convert
