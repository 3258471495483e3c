// The tokens by which a model is told to fill a gap in a text ("fill in the middle"), as a file
// names them by keys, or by the names that published models give them.
//
// Thread-safety: pure.
#pragma once

#include <optional>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct FillTokens {
  // In front of the text before the gap, before the text behind it, and before what fills it.
  std::optional<TokenId> prefix, suffix, middle;
  // In front of the name of a repository, and of the name of each of its files.
  std::optional<TokenId> repository, file;
  std::optional<TokenId> padding;

  bool can_fill() const { return prefix && suffix && middle; }
};

// A key counts before a name. A name counts where the file does not say that the piece is ordinary
// text. kCorrupt for a key with an id that the vocabulary does not have.
Result<FillTokens> FindFillTokens(const formats::GgufFile& file, const Tokenizer& tokenizer);

}  // namespace kvant
