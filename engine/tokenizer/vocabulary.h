// The kinds of tokenizer share this part: the vocabulary read and checked from GGUF metadata, the
// special tokens cut out of a text before anything else, and the tokens put around it.
//
// Every value is checked here once (lengths, types, ids within the vocabulary), so that the kinds
// can index without checking again.
// Thread-safety: const after Load.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/piece_index.h"
#include "engine/tokenizer/special_tokens.h"
#include "engine/tokenizer/token_flags.h"
#include "engine/tokenizer/vocabulary_keys.h"
#include "formats/gguf.h"
#include "kvant/tokenizer.h"

namespace kvant {

// Who finds the pieces that users define.
enum class UserDefined : uint8_t {
  kCutOut,     // they are cut out of a text before anything else, like control tokens
  kOfTheKind,  // EncodeText, which gets them with the text around them
};

class VocabularyTokenizer : public Tokenizer {
 public:
  Result<std::vector<TokenId>> Encode(std::string_view text,
                                      const EncodeOptions& options) const final;
  Result<Encoding> EncodeAndCount(std::string_view text, const EncodeOptions& options) const final;

  // Encodes with parse_special. In the ranges of `plain`, ascending and disjoint, names of control
  // tokens are text like any other, and so are names that reach into a range.
  Result<Encoding> EncodeAround(std::string_view text, std::span<const TextRange> plain) const;

 protected:
  // Reads tokens, types and special tokens. `defaults` holds for what the metadata leaves out;
  // a default id beyond the vocabulary is dropped. `pre` is the name in tokenizer.ggml.pre.
  Status Load(const VocabularyKeys& keys, const SpecialTokens& defaults, std::string_view pre,
              UserDefined user_defined = UserDefined::kCutOut);

  // Appends the tokens of a text without special tokens; it is not empty and stands at the start
  // or behind a special token.
  virtual void EncodeText(std::string_view text, Encoding& out) const = 0;

  // EncodeText in two steps, for files with tokens that are looked for between the two: a text is
  // normalized, and what is left between such tokens is encoded. Kinds whose normalization changes
  // nothing that such tokens could meet have one step. Load calls the first one.
  virtual std::string Normalized(std::string_view text) const { return std::string(text); }
  virtual void EncodeNormalized(std::string_view text, Encoding& out) const {
    EncodeText(text, out);
  }

  PieceType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }

  // Texts that ordinary text can become: normal, user-defined and unused pieces. Control, unknown
  // and byte pieces are never found by their name.
  PieceIndex index_;

  // The tokens that EncodeOptions::add_special puts around a text.
  std::optional<TokenId> first_token_;
  std::optional<TokenId> last_token_;

 private:
  Result<Encoding> EncodePieces(std::string_view text, const EncodeOptions& options,
                                std::span<const TextRange> plain) const;
  Status ReadPieces(const VocabularyKeys& keys);
  Status ReadSpecialIds(const VocabularyKeys& keys, const SpecialTokens& defaults);
  Status ReadIdList(const VocabularyKeys& keys, const char* name, std::vector<TokenId>* ids) const;
  void FindNamedTokens(const formats::GgufFile& file);
  void DropMisnamedEnds(const std::vector<TokenId>& own);
  Status BuildMatchers(const VocabularyKeys& keys, std::string_view pre, UserDefined user_defined);

  void EncodeFragment(std::string_view text, const SpecialTokenMatcher& normalized,
                      std::span<const TextRange> plain, Encoding& out) const;

  // Two steps of the search: in a text, and in what is left, normalized. The second one finds
  // nothing in most vocabularies.
  struct Matchers {
    SpecialTokenMatcher first;
    SpecialTokenMatcher normalized;
    bool has_normalized = false;
  };
  Matchers MakeMatchers(const std::vector<SpecialToken>& tokens, const TokenFlags& flags);

  bool has_types_ = false;        // whether the file tells types of pieces apart
  Matchers user_defined_;         // without EncodeOptions::parse_special
  Matchers all_special_;          // with it: control and unknown tokens as well
  std::list<std::string> spelt_;  // the normalized texts of tokens
};

// Creates a tokenizer of a kind; `file` has tokenizer.ggml.model of the kind. SentencePiece's kinds
// are in engine/tokenizer/piece_tokenizer.h.
Result<std::unique_ptr<Tokenizer>> CreateBpe(const formats::GgufFile& file,
                                             const TokenizerOptions& options);
Result<std::unique_ptr<Tokenizer>> CreateWordPiece(const formats::GgufFile& file);
Result<std::unique_ptr<Tokenizer>> CreateMarian(const VocabularyKeys& keys);
Result<std::unique_ptr<Tokenizer>> CreateRwkv(const formats::GgufFile& file);

}  // namespace kvant
