// Says how special tokens are found: whether they take the white space beside them with them, stand
// as words alone, and are looked for in a text before or after its normalization. GGUF has no
// fields for it. Files that kvant makes have keys of its own, each a list of ids; in other files
// white space is known by the names of models and of pre-tokenizers, as in llama.cpp: a list with a
// row for each.
//
// The flags mean what they mean in Hugging Face's added tokens. Thread-safety: const after Read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/vocabulary_keys.h"

namespace kvant {

enum class TokenFlag : uint8_t {
  kStripLeft,
  kStripRight,
  kSingleWord,
  kNormalized,
  kCutOut,  // of users, in a vocabulary whose other tokens of users are found by SentencePiece
};

// The keys, by the numbers of the flags.
inline constexpr std::array<std::string_view, 5> kTokenFlagKeys = {
    "tokenizer.kvant.lstrip_ids", "tokenizer.kvant.rstrip_ids", "tokenizer.kvant.single_word_ids",
    "tokenizer.kvant.normalized_ids", "tokenizer.kvant.cut_out_ids"};

// True where normalizing a text spells its spaces as pieces do.
inline constexpr std::string_view kNormalizerSpellsKey = "tokenizer.kvant.normalizer_spells_spaces";

// True where a text that begins with a space gets no further one in front.
inline constexpr std::string_view kPrefixUnlessSpaceKey = "tokenizer.kvant.prefix_unless_space";

// True where a text that spells a byte piece, such as "<0x0A>", may become that piece.
inline constexpr std::string_view kBytePiecesMatchKey = "tokenizer.kvant.byte_pieces_match";

// True where neighbouring characters without a piece become one unknown token, and not one each.
inline constexpr std::string_view kFusesUnknownKey = "tokenizer.kvant.fuses_unknown";

struct StrippingRow;  // of the list

class TokenFlags {
 public:
  // `pre` is the name in tokenizer.ggml.pre. kCorrupt for lists of anything but ids below `vocab`.
  // Only the vocabulary under kVocabularyPrefix has the keys.
  static Result<TokenFlags> Read(const VocabularyKeys& keys, std::string_view pre, size_t vocab);

  bool Has(TokenFlag flag, TokenId id) const;
  bool HasAny(TokenId id) const;

  // Sets the flags of a token, whose id and text are set.
  void Mark(SpecialToken& token) const;

 private:
  std::array<std::vector<TokenId>, kTokenFlagKeys.size()> ids_;  // each ascending
  const StrippingRow* row_ = nullptr;                            // where the file has no keys
};

}  // namespace kvant
