#include "engine/convert/unigram_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "engine/convert/piece_steps.h"
#include "engine/convert/text_frame.h"
#include "engine/convert/tokenizer_json.h"
#include "engine/tokenizer/byte_piece.h"
#include "engine/tokenizer/kinds.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonObject;
using Type = Vocabulary::Type;

constexpr size_t kByteValues = 256;

Status PlacePieces(const JsonObject& model, int64_t vocab_size, Vocabulary& vocabulary) {
  const Json* list = model.Find("vocab");
  if (list == nullptr || !list->is_array() || list->empty()) {
    return model.Wrong("vocab", "an array of pieces and their scores");
  }
  if (std::ssize(*list) > vocab_size) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} pieces, but config.json says that there are {} tokens",
                     model.Where("vocab"), list->size(), vocab_size);
  }
  for (size_t id = 0; id < list->size(); ++id) {
    const Json& piece = (*list)[id];
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number()) {
      return MakeError(ErrorCode::kCorrupt, "{}[{}] is {}, expected a piece and its score",
                       model.Where("vocab"), id, formats::Shown(piece));
    }
    vocabulary.tokens[id] = piece[0].get<std::string>();
    vocabulary.types[id] = Type::kNormal;
    vocabulary.scores[id] = piece[1].get<float>();
  }
  KVANT_ASSIGN(const auto unknown, model.Integer("unk_id", std::ssize(*list) - 1));
  if (!unknown) return {};
  vocabulary.unk = static_cast<int32_t>(*unknown);
  vocabulary.types[static_cast<size_t>(*unknown)] = Type::kUnknown;
  return {};
}

// Bytes of characters without a piece. The tokenizers library finds the pieces of bytes in texts,
// too, as SentencePiece does not.
Status PlaceBytes(const JsonObject& model, Vocabulary& vocabulary) {
  KVANT_ASSIGN(const auto falls_back, model.Bool("byte_fallback"));
  if (!falls_back.value_or(false)) return {};
  std::set<int> found;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const int byte = BytePieceValue(vocabulary.tokens[id]);
    if (byte < 0) continue;
    vocabulary.types[id] = Type::kByte;
    found.insert(byte);
  }
  if (found.size() != kByteValues) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: true cannot be converted, expected a piece for each byte, found {}",
                     model.Where("byte_fallback"), found.size());
  }
  vocabulary.byte_pieces_match = true;
  return {};
}

// Where texts are cut in front of each space, no piece with a space further on is ever found.
void LeaveOutPiecesAcrossWords(Vocabulary& vocabulary) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.types[id] != Type::kNormal) continue;
    const bool crosses = vocabulary.tokens[id].find(kSpacePiece, 1) != std::string::npos;
    if (crosses) vocabulary.types[id] = Type::kUnused;
  }
}

}  // namespace

Result<Vocabulary> UnigramJsonVocabulary(const JsonObject& tokenizer, int64_t vocab_size) {
  KVANT_ASSIGN(const auto model, tokenizer.Object("model"));
  Vocabulary vocabulary = EmptyVocabulary(kUnigramKind, vocab_size);
  vocabulary.pre = "default";
  vocabulary.scores.assign(vocabulary.tokens.size(), kPaddingScore);
  KVANT_TRY(PlacePieces(*model, vocab_size, vocabulary));
  KVANT_TRY(PlaceBytes(*model, vocabulary));
  KVANT_ASSIGN(const PieceSteps steps, ReadPieceSteps(tokenizer));
  if (steps.cuts_words) LeaveOutPiecesAcrossWords(vocabulary);
  KVANT_ASSIGN(const auto added, TokenizerJson::AddedTokens(tokenizer, vocab_size));
  for (const AddedToken& token : added) PlaceAddedToken(token, vocabulary);
  KVANT_TRY(UsePieceSteps(tokenizer, steps, vocabulary));
  ReadTextFrame(tokenizer, vocabulary);
  return vocabulary;
}

}  // namespace kvant::convert
