// tokenizer.json of the Hugging Face tokenizers library: the parts of it that say what a vocabulary
// is. Of model type BPE two kinds can be converted: byte-level, and byte-fallback with U+2581 for
// spaces, which is how SentencePiece vocabularies are stored there. WordPiece is read by
// wordpiece_vocabulary.h and Unigram by unigram_json.h. Of others, the added tokens can be read.
//
// Errors: kCorrupt for what contradicts the format, kNotSupported for other kinds; all name the
// file and the key. Thread-safety: const after Parse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/json_object.h"

namespace kvant::convert {

using formats::JsonObject;

// How an added token is found in a text; engine/tokenizer/token_flags.h says what the flags do.
struct AddedTokenFlags {
  bool strip_left = false;
  bool strip_right = false;
  bool single_word = false;
  bool normalized = false;
  bool cut_out = false;
};

// Reads "lstrip", "rstrip", "single_word" and "normalized" of a token; where the last one is
// absent, tokens that are not special have it.
AddedTokenFlags ReadTokenFlags(const formats::Json& token);

struct AddedToken {
  int64_t id = 0;
  std::string text;
  bool special = false;
  AddedTokenFlags flags = {};
};

// Tokens and their ids, by id.
using IdList = std::vector<std::pair<std::string, int64_t>>;

// Reads {"text": id}. kCorrupt, with `where` in front, for ids that are not below `ids_max` or
// occur twice.
Result<IdList> ReadIdList(const formats::Json& tokens, const std::string& where, int64_t ids_max);

struct TokenizerJson {
  std::string file;
  JsonObject root;
  IdList vocab;                                             // texts and ids are unique
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<AddedToken> added;                            // may repeat tokens of the vocabulary
  std::string unk_token;                                    // "" if there is none
  bool byte_fallback = false;
  bool ignore_merges = false;

  // Spaces are U+2581 and unknown characters become byte tokens.
  bool is_sentencepiece() const { return byte_fallback; }

  // Ids at or above `ids_max` are kCorrupt.
  static Result<TokenizerJson> Parse(std::string_view text, const std::string& file,
                                     int64_t ids_max);
  static Result<TokenizerJson> FromObject(JsonObject object, int64_t ids_max);

  // "BPE", "Unigram".
  static Result<std::string> ModelType(const JsonObject& object);
  static Result<std::vector<AddedToken>> AddedTokens(JsonObject object, int64_t ids_max);

 private:
  explicit TokenizerJson(JsonObject object) : file(object.where()), root(std::move(object)) {}
  Status ReadModel(int64_t ids_max);
  Status ReadVocab(const JsonObject& model, int64_t ids_max);
  Status ReadMerges(const JsonObject& model);
  Status ReadAdded(int64_t ids_max);
};

}  // namespace kvant::convert
