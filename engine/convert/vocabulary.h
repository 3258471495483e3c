// The vocabulary of a Hugging Face folder as GGUF stores it: "tokenizer.ggml.*".
//
// tokenizer.json says which kind it is. A byte-level one is taken from there ("gpt2"); a
// SentencePiece one ("llama") from tokenizer.model, which has the scores, or where that is absent
// from tokenizer.json with the negated rank of its merge as the score of a token. Merges over
// SentencePiece-like texts without pieces for bytes are "gpt2", too
// (engine/convert/metaspace_vocabulary.h). A unigram one ("t5") is taken from SentencePiece's file
// (engine/convert/unigram_vocabulary.h); an encoder's, and that of a folder without such a file,
// from tokenizer.json (engine/convert/unigram_json.h), as are WordPiece's ("bert",
// engine/convert/wordpiece_vocabulary.h). RWKV's models have a file of their own
// (engine/convert/rwkv_vocabulary.h).
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/convert/tokenizer_json.h"
#include "formats/gguf_writer.h"
#include "formats/sentencepiece.h"

namespace kvant::convert {

struct Vocabulary {
  using Type = formats::SentencePiece::Type;  // the numbers of tokenizer.ggml.token_type

  std::string model;  // engine/tokenizer/kinds.h
  std::string pre;
  // Tokens by id; as many as config.json says, with unused tokens for ids without one.
  std::vector<std::string> tokens;
  std::vector<Type> types;
  std::vector<float> scores;        // empty for "gpt2"
  std::vector<std::string> merges;  // empty for "llama" and "t5"
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;
  std::vector<uint8_t> charsmap;  // engine/tokenizer/charsmap.h; empty: there is none
  // How added tokens are found, by id. Tokens of the translators' kind have no flags.
  std::map<int64_t, AddedTokenFlags> flags;
  // engine/tokenizer/token_flags.h
  bool normalizer_spells_spaces = false;
  bool prefix_unless_space = false;
  bool byte_pieces_match = false;
  bool fuses_unknown = false;

  // How a WordPiece vocabulary normalizes texts.
  std::optional<bool> lower_case, strip_accents;

  // The special tokens that the vocabulary's own files name; other files may know better.
  std::optional<int32_t> bos, eos, unk, pad, cls, sep, mask;
  // Whether bos is put in front of every text and eos behind it, and whether two texts have one
  // more separator between them.
  std::optional<bool> add_bos, add_eos, add_sep;

  std::optional<int32_t> Find(std::string_view text) const;
  // `prefix` is where the keys stand: engine/tokenizer/vocabulary_keys.h.
  void AddTo(formats::GgufWriter& writer, std::string_view prefix = "tokenizer.ggml") const;

 private:
  void AddFlagsTo(formats::GgufWriter& writer) const;
};

// The score that llama.cpp's converter gives to ids without a token.
inline constexpr float kPaddingScore = -10000;

// A vocabulary of which no id has a token yet.
Vocabulary EmptyVocabulary(std::string_view model, int64_t vocab_size);

// Says how ids follow from the numbers of the pieces in SentencePiece's file.
enum class PieceOrder : uint8_t {
  kOwn,      // they are the same
  kFairseq,  // <s> <pad> </s> <unk>, the pieces from the fourth on, languages, <mask>: mBART, XLM-R
};

// The options that a model's class sets for its vocabulary, beyond the files.
struct VocabularyOptions {
  std::string_view kind = {};                        // HfFamily::tokenizer
  PieceOrder order = PieceOrder::kOwn;               // of unigram vocabularies
  std::span<const std::string_view> languages = {};  // tokens behind the pieces, for kFairseq
  bool has_speech_tokens = false;                    // engine/convert/speech_vocabulary.h
  bool unigram_of_json = false;                      // engine/convert/unigram_json.h
  // A tokenizer.json for a folder that has none; may be null.
  std::shared_ptr<const formats::Json> tokenizer = nullptr;
};

// Reads tokenizer.json, SentencePiece's file (by any of the names that folders give to it) and
// added_tokens.json; `tokenizer_config`, which may be empty, adds tokens too. kIo if there is no
// vocabulary.
Result<Vocabulary> ReadVocabulary(const std::string& folder, const JsonObject& tokenizer_config,
                                  int64_t vocab_size, const VocabularyOptions& options = {});

// Puts the tokens of a tokenizer.json, byte-level or SentencePiece-like, under their ids, and those
// that were added to it.
void PlaceTokens(const TokenizerJson& tokenizer, Vocabulary& vocabulary);

// Puts a token of a list of later ones under its id, which the vocabulary has. The type of the
// unknown token stays as it is.
void PlaceAddedToken(const AddedToken& token, Vocabulary& vocabulary);

// The tokens of added_tokens.json and of "added_tokens_decoder" in tokenizer_config.json; tokens
// beyond the vocabulary are left out, with a warning.
Status PlaceLaterTokens(const std::string& folder, const JsonObject& tokenizer_config,
                        Vocabulary& vocabulary);

// SentencePiece's file of a folder, by any of its usual names; "" if there is none.
std::string FindSentencePieceFile(const std::string& folder);

// The vocabulary that one kind of file alone describes.
Result<Vocabulary> ByteLevelVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size);
Result<Vocabulary> SentencePieceVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size);
// The tokens of a tokenizer.json with scores by the ranks of their merges; what is done to spaces
// is not looked at.
Vocabulary RankedVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size);
Result<Vocabulary> SentencePieceVocabulary(const formats::SentencePieceModel& model,
                                           const std::string& file, int64_t vocab_size);

// The path of the file `name` of a folder.
std::string PathIn(const std::string& folder, std::string_view name);

}  // namespace kvant::convert
