// Says which special tokens take the white space beside them with them. GGUF has no field for it,
// so it is known by the names of models and of pre-tokenizers, as in llama.cpp: a list with a row
// for each.
//
// Thread-safety: pure.
#pragma once

#include <string_view>
#include <vector>

#include "engine/tokenizer/special_tokens.h"
#include "formats/gguf.h"

namespace kvant {

// Sets strip_left and strip_right of the tokens. `pre` is the name in tokenizer.ggml.pre.
void MarkStripping(const formats::GgufFile& file, std::string_view pre,
                   std::vector<SpecialToken>& tokens);

}  // namespace kvant
