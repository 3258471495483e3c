// Changes a text as SentencePiece does before it cuts it into pieces, in SentencePiece's order:
// characters are replaced by the model's table, a byte that is no UTF-8 becomes U+FFFD, spaces at
// both ends go and runs of them become one, a space comes in front, and every space becomes U+2581.
// Pieces that the user defined are not touched by the table, but their spaces count like others.
// Source: SentencePiece, normalizer.cc.
// Thread-safety: const.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/tokenizer/charsmap.h"
#include "engine/tokenizer/piece_prefixes.h"
#include "engine/tokenizer/vocabulary_keys.h"

namespace kvant {

struct UnigramNormalizer {
  std::optional<Charsmap> charsmap;
  PiecePrefixes user_defined;
  bool add_prefix = false;           // a space in front
  bool merge_spaces = false;         // fewer spaces, as above
  bool prefix_unless_space = false;  // kPrefixUnlessSpaceKey

  // Reads add_space_prefix, remove_extra_whitespaces and precompiled_charsmap. kCorrupt for a
  // broken table.
  Status Read(const VocabularyKeys& keys);

  std::string Apply(std::string_view text) const;

 private:
  // The normalized form of a text's beginning.
  struct Part {
    size_t size;  // bytes of the text
    std::string_view text;
  };
  Part First(std::string_view text) const;
};

}  // namespace kvant
