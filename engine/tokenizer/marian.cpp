// Translators' vocabularies, in which pieces and ids are two things: SentencePiece cuts a text, and
// a list by the model's ids says what a piece is to the model; what is not in it becomes the
// unknown token. Marian has such vocabularies, with other pieces for texts that it writes than for
// texts that it reads; M2M-100 and NLLB have one set of pieces. The list and its special tokens
// stand under "tokenizer.ggml", the pieces under "tokenizer.ggml.pieces"; "tokenizer.target.pieces"
// and, where the list differs, too, "tokenizer.target" belong to the texts that are written.
// Source: MarianTokenizer, M2M100Tokenizer and NllbTokenizer of transformers 4.57.1, whose texts
// lose white space at both ends when they are decoded.
//
// In Marian's texts ">>xx<<" at the beginning is a token whether the vocabulary has it or not.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/byte_piece.h"
#include "engine/tokenizer/kinds.h"
#include "engine/tokenizer/piece_tokenizer.h"
#include "engine/tokenizer/text_edges.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/quoted.h"

namespace kvant {
namespace {

class MarianTokenizer final : public VocabularyTokenizer {
 public:
  Status Init(const VocabularyKeys& keys);

  std::string TokenBytes(TokenId id, DecodeOptions options) const override;
  std::string Decode(std::span<const TokenId> ids, DecodeOptions options) const override;
  bool trims_texts() const override { return true; }
  const char* kind() const override { return "marian"; }
  std::string pre_tokenizer() const override { return pre_; }

 protected:
  void EncodeText(std::string_view text, Encoding& out) const override;

 private:
  Status LoadPieces(const VocabularyKeys& keys);
  void FindIdsOfPieces();
  void PutOutNamed(std::string_view text, Encoding& out) const;

  std::string pre_;
  std::unique_ptr<PieceTokenizer> pieces_of_texts_;
  std::vector<TokenId> ids_of_pieces_;  // kNone: not in the list
  PieceIndex by_name_;                  // all tokens, whatever their type
};

Status MarianTokenizer::Init(const VocabularyKeys& keys) {
  const bool own_list = keys.Find("tokens") != nullptr;
  const VocabularyKeys list = own_list ? keys : VocabularyKeys(keys.file());
  KVANT_ASSIGN(const auto pre, list.GetString("pre"));
  pre_ = std::string(pre.value_or(""));
  SpecialTokens defaults;
  defaults.add_eos = true;
  KVANT_TRY(Load(list, defaults, pre_));
  special_.add_space_prefix = false;  // nothing that decoding has to take away: texts are trimmed
  by_name_ = PieceIndex(pieces_);
  for (TokenId id = 0; id < vocab_size(); ++id) {
    if (type(id) != PieceType::kUnused) by_name_.Insert(id);
  }
  KVANT_TRY(LoadPieces(VocabularyKeys(keys.file(), keys.Key(kPiecesSuffix.substr(1)))));
  FindIdsOfPieces();
  return {};
}

Status MarianTokenizer::LoadPieces(const VocabularyKeys& keys) {
  KVANT_ASSIGN(const auto model, keys.GetString("model"));
  if (model == kUnigramKind) {
    KVANT_ASSIGN(pieces_of_texts_, CreateUnigram(keys));
  } else if (model == kSentencePieceKind) {
    KVANT_ASSIGN(pieces_of_texts_, CreateSpm(keys));
  } else {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}, expected \"{}\" or \"{}\"", keys.path(),
                     keys.Key("model"), model ? formats::Quoted(*model) : "absent", kUnigramKind,
                     kSentencePieceKind);
  }
  return {};
}

// The list is by names, so what SentencePiece knows of a piece holds for the token of its name.
void MarianTokenizer::FindIdsOfPieces() {
  const PieceTokenizer& pieces = *pieces_of_texts_;
  for (TokenId piece_id = 0; piece_id < pieces.vocab_size(); ++piece_id) {
    const TokenId id = by_name_.Find(pieces.piece(piece_id));
    ids_of_pieces_.push_back(id);
    if (id < 0 || type(id) != PieceType::kNormal) continue;
    const PieceType found = pieces.type_of(piece_id);
    const bool has_no_text = found == PieceType::kControl || found == PieceType::kByte;
    if (has_no_text) types_[static_cast<size_t>(id)] = found;
  }
}

// The ">>xx<<" that a text begins with.
std::string_view LanguageCode(std::string_view text) {
  if (!text.starts_with(">>")) return {};
  const size_t end = text.find("<<");
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end + 2);
}

int64_t CharactersOf(std::string_view text) {
  int64_t count = 0;
  while (!text.empty()) {
    if (!text.starts_with(kSpacePiece)) ++count;
    text.remove_prefix(DecodeUtf8(text).size);
  }
  return count;
}

// A text that is one token, if the list has it.
void MarianTokenizer::PutOutNamed(std::string_view text, Encoding& out) const {
  const TokenId id = by_name_.Find(text);
  const bool known = id >= 0 && id != special_.unk;
  if (!known) out.unknown_characters += CharactersOf(text);
  if (known) {
    out.ids.push_back(id);
  } else if (special_.unk) {
    out.ids.push_back(*special_.unk);
  }
}

void MarianTokenizer::EncodeText(std::string_view text, Encoding& out) const {
  if (pre_ == kMarianKind) {
    const std::string_view code = LanguageCode(text);
    if (!code.empty()) PutOutNamed(code, out);
    text.remove_prefix(code.size());
  }
  // Neighbours that no piece covers are one text, which may still be a token.
  std::string unknown;
  const auto put_out_unknown = [&] {
    if (!unknown.empty()) PutOutNamed(unknown, out);
    unknown.clear();
  };
  pieces_of_texts_->ForEachPiece(text, [&](TokenId piece_id, std::string_view piece) {
    if (piece_id < 0 && !pieces_of_texts_->has_bytes()) {
      unknown += piece;
      return;
    }
    put_out_unknown();
    if (piece_id < 0) {
      for (const char c : piece) {
        const TokenId byte = pieces_of_texts_->byte_id(c);
        PutOutNamed(byte < 0 ? piece : pieces_of_texts_->piece(byte), out);
      }
      return;
    }
    const TokenId id = ids_of_pieces_[static_cast<size_t>(piece_id)];
    if (id >= 0) {
      out.ids.push_back(id);
    } else {
      PutOutNamed(piece, out);
    }
  });
  put_out_unknown();
}

std::string MarianTokenizer::TokenBytes(TokenId id, DecodeOptions options) const {
  switch (type(id)) {
    case PieceType::kControl:
    case PieceType::kUnknown:
    case PieceType::kUnused: return std::string(options.special ? piece(id) : "");
    case PieceType::kByte: {
      const int byte = BytePieceValue(piece(id));
      return byte < 0 ? std::string(piece(id)) : std::string(1, static_cast<char>(byte));
    }
    case PieceType::kNormal:
    case PieceType::kUserDefined: break;
  }
  return WithSpaces(piece(id));
}

std::string MarianTokenizer::Decode(std::span<const TokenId> ids, DecodeOptions options) const {
  Utf8Stream stream;
  std::string text;
  for (const TokenId id : ids) {
    if (HasText(id)) text += stream.Push(TokenBytes(id, options));
  }
  text += stream.Finish();
  return std::string(TrimText(text));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> CreateMarian(const VocabularyKeys& keys) {
  auto tokenizer = std::make_unique<MarianTokenizer>();
  KVANT_TRY(tokenizer->Init(keys));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kvant
