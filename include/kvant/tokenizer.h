// Text to token ids and back, as the model's vocabulary defines it.
//
// Kinds: spm (SentencePiece BPE with byte fallback), bpe (BPE by merges with a named pre-tokenizer,
// of bytes or for gemma4 of characters), wordpiece (BERT), unigram (SentencePiece unigram), rwkv
// (the longest piece from each place on) and marian (pieces of spm or unigram, whose ids stand in a
// list of their own). All data comes from the GGUF metadata under "tokenizer.ggml.*". Input text is
// any byte string; what has no token of its own, invalid UTF-8 included, is spelt in bytes where
// the vocabulary has them and else becomes the unknown token.
//
// Thread-safety: const after Create; Encode and Decode may run concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

namespace formats {
class GgufFile;
}
namespace grammar {
class TokenTrie;
}

struct EncodeOptions {
  bool add_special = false;    // BOS, EOS (or CLS, SEP) where the model's metadata asks for them
  bool parse_special = false;  // control tokens such as <|im_end|> in the text become their ids
};

struct Encoding {
  std::vector<TokenId> ids;
  // Characters of the text that the vocabulary cannot spell: the ids hold the unknown token or
  // nothing in their place, and decoding does not give them back.
  int64_t unknown_characters = 0;
};

struct DecodeOptions {
  bool special = false;  // control tokens such as <|im_end|> appear as their names, else not at all
};

// Ids that the metadata names; absent ones are nullopt.
struct SpecialTokens {
  std::optional<TokenId> bos, eos, eot, unk, sep, pad, mask, cls;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = true;
  std::vector<TokenId> end_of_generation;  // eos, eot, and known end-of-turn tokens, ascending
  std::vector<TokenId> suppressed;         // never to be generated: tokenizer.ggml.suppress_tokens
};

struct TokenizerOptions {
  std::string pre_override;  // --pre NAME: use this pre-tokenizer whatever the file says
};

class Tokenizer {
 public:
  // kCorrupt for contradicting metadata (an index beyond the vocabulary, arrays of different
  // lengths), kNotSupported for an unknown model or pre-tokenizer, with the list of known ones.
  static Result<std::unique_ptr<Tokenizer>> Create(const formats::GgufFile& file,
                                                   const TokenizerOptions& options = {});
  // Creates the tokenizer of the texts that a translator writes, where it differs from that of the
  // texts that it reads: "tokenizer.target.*". Null where it does not differ.
  static Result<std::unique_ptr<Tokenizer>> CreateTarget(const formats::GgufFile& file);
  virtual ~Tokenizer() = default;

  virtual Result<std::vector<TokenId>> Encode(std::string_view text,
                                              const EncodeOptions& options) const = 0;

  // Encodes a text as Encode does, and counts the characters that got lost.
  virtual Result<Encoding> EncodeAndCount(std::string_view text,
                                          const EncodeOptions& options) const;

  // The bytes that one token stands for in running text; they may be part of a UTF-8 sequence. `id`
  // must be valid.
  virtual std::string TokenBytes(TokenId id, DecodeOptions options) const = 0;

  // The text of a whole sequence: the text that Encode was given, less the parts that the
  // vocabulary cannot spell and that the kind of tokenizer changes (WordPiece: case and white
  // space). A space that Encode put in front is removed again. Ids outside the vocabulary, as rows
  // have them (Runner::AddRows), have no text.
  virtual std::string Decode(std::span<const TokenId> ids, DecodeOptions options) const;

  // Whether Decode takes white space away at both ends of a text. A text that arrives token by
  // token then goes through a TrimStream.
  virtual bool trims_texts() const { return false; }

  // "spm", "bpe", "wordpiece", "unigram", "rwkv", "marian"
  virtual const char* kind() const = 0;
  virtual std::string pre_tokenizer() const { return ""; }
  int32_t vocab_size() const { return static_cast<int32_t>(pieces_.size()); }
  std::string_view piece(TokenId id) const {
    return pieces_[static_cast<size_t>(id)];
  }  // raw vocabulary entry
  bool is_control(TokenId id) const;
  bool is_end_of_generation(TokenId id) const;
  const SpecialTokens& special() const { return special_; }

  // The tokens that are text as a tree of bytes, made at the first call.
  std::shared_ptr<const grammar::TokenTrie> trie() const;

 protected:
  // tokenizer.ggml.token_type values.
  enum class PieceType : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

  bool HasText(TokenId id) const { return id >= 0 && id < vocab_size(); }

  std::vector<std::string_view> pieces_;  // views into the mapped file
  std::vector<PieceType> types_;
  SpecialTokens special_;

 private:
  mutable std::once_flag has_trie_;
  mutable std::shared_ptr<const grammar::TokenTrie> trie_;
};

// Turns a stream of tokens into text that is always complete UTF-8: bytes of an unfinished sequence
// are held back until they are complete, and replaced by U+FFFD when they cannot become so.
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);  // what can be shown now
  std::string Finish();                      // what was held back

 private:
  std::string pending_;
};

// Takes white space away at both ends of a text that arrives in pieces of complete UTF-8. White
// space that may be the end is held back until something follows.
class TrimStream {
 public:
  std::string Push(std::string_view text);  // what can be shown now

 private:
  bool begun_ = false;
  std::string held_;
};

}  // namespace kvant
