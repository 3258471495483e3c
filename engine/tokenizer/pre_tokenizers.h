// Pre-tokenizers of byte-level BPE: how a text is cut into words before merging. Each is a row of a
// table: the names it has in tokenizer.ggml.pre, and a list of regular expressions. Every
// expression is applied to the words that the ones before it left, on its own: a match becomes a
// word, and so does what lies between matches.
//
// Expressions are those of the models' Hugging Face tokenizer.json, in PCRE2's syntax; \s and \S
// mean the Unicode property White_Space, as there. Bytes that are not UTF-8 are cut as U+FFFD
// would be. Time is linear in the text for every row.
//
// "(*threes)" in front of an expression cuts what it matches into threes from the right, unless its
// group matched; "(*open-threes)" in front of one sets no end to the last three.
// Thread-safety: const after Create; Split may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant {

struct PreTokenizerRow {
  std::span<const std::string_view> names;  // the first is the canonical one
  std::span<const std::string_view> patterns;
  bool normalize_nfc = false;  // the model normalizes text to NFC before cutting it
  bool ignore_merges = false;  // a word that is in the vocabulary becomes that token unmerged
  bool add_bos = false;        // where the metadata does not say

  // How the vocabulary spells a word, whose pieces merge.
  enum class Spelling : uint8_t {
    kBytes,            // each byte by a character of GPT-2's alphabet
    kCharacters,       // as it is, a space as U+2581, a character without a token by <0xHH> bytes
    kPlainCharacters,  // as kCharacters, a space as a space
    // As SentencePiece normalizes it, a space as U+2581; a character without a token is unknown.
    kNormalized,
  };
  Spelling spelling = Spelling::kBytes;
};

class PreTokenizer {
 public:
  // kNotSupported for an unknown name, with the list of known ones. "" is "default".
  static Result<std::unique_ptr<PreTokenizer>> Create(std::string_view name);
  ~PreTokenizer();

  const PreTokenizerRow& row() const { return row_; }

  // The ends of the words of `text`, ascending; the last is text.size(). Empty for an empty text.
  std::vector<size_t> Split(std::string_view text) const;

 private:
  class Pattern;

  explicit PreTokenizer(const PreTokenizerRow& row);
  std::vector<size_t> SplitValid(std::string_view text) const;

  const PreTokenizerRow& row_;
  std::vector<std::unique_ptr<Pattern>> patterns_;
};

std::span<const PreTokenizerRow> PreTokenizerRows();

}  // namespace kvant
