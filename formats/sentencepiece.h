// SentencePiece vocabularies (tokenizer.model): a strict reader of the few fields that a model
// conversion needs from the protobuf message ModelProto.
//
// Fields that are not needed are skipped with their lengths checked; groups, which the message does
// not have, are refused. Source of the layout: sentencepiece_model.proto and the protobuf encoding.
//
// Errors (kCorrupt, kIo) name the file, what was expected and what was found. Thread-safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvant::formats {

struct SentencePiece {
  // The numbers of the file, which are also those of GGUF's tokenizer.ggml.token_type.
  enum class Type : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  std::string text;
  float score = 0;
  Type type = Type::kNormal;
};

// The defaults are those of the message.
struct SentencePieceModel {
  enum class Kind : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

  std::vector<SentencePiece> pieces;  // by token id
  Kind kind = Kind::kUnigram;
  int32_t unk_id = 0;
  int32_t bos_id = 1;
  int32_t eos_id = 2;
  int32_t pad_id = -1;  // negative: none

  std::string normalizer;     // "identity", "nmt_nfkc"
  std::string charsmap;       // the table of replaced characters as it is in the file, may be empty
  bool denormalizes = false;  // there is a table for decoded texts
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;        // spaces are U+2581 in pieces
  bool whitespace_behind_words = false;  // the dummy "prefix" comes behind the text
};

Result<SentencePieceModel> ParseSentencePiece(std::span<const std::byte> bytes,
                                              const std::string& file);
Result<SentencePieceModel> ReadSentencePiece(const std::string& path);

}  // namespace kvant::formats
