// Both models of SentencePiece share this part: a text is cut into pieces and characters that no
// piece covers. Such a character becomes bytes where the vocabulary has them, else the unknown
// token, one for neighbours.
//
// Who has another list of ids takes the pieces themselves (engine/tokenizer/marian.cpp).
// Thread-safety: const after Create.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/tokenizer/vocabulary.h"

namespace kvant {

class PieceTokenizer : public VocabularyTokenizer {
 public:
  // A piece, by its number and as it is spelt; no number (PieceIndex::kNone): one character of the
  // normalized text that no piece covers.
  using VisitPiece = std::function<void(TokenId id, std::string_view text)>;
  virtual void ForEachPiece(std::string_view text, const VisitPiece& visit) const = 0;

  bool has_bytes() const { return has_bytes_; }
  // The piece of a byte, or none.
  TokenId byte_id(char byte) const { return byte_ids_[static_cast<uint8_t>(byte)]; }
  PieceType type_of(TokenId id) const { return type(id); }
  using VocabularyTokenizer::PieceType;

 protected:
  PieceTokenizer() { byte_ids_.fill(PieceIndex::kNone); }
  void EncodeText(std::string_view text, Encoding& out) const final;

  // Appends the tokens of the pieces that `cut` visits.
  void PutOutPieces(const std::function<void(const VisitPiece&)>& cut, Encoding& out) const;

  std::array<TokenId, 256> byte_ids_;
  bool has_bytes_ = false;

 private:
  void PutOutUnknown(std::string_view character, Encoding& out) const;
};

// Creates tokenizers of the kinds "llama" and "t5".
Result<std::unique_ptr<PieceTokenizer>> CreateSpm(const VocabularyKeys& keys);
Result<std::unique_ptr<PieceTokenizer>> CreateUnigram(const VocabularyKeys& keys);

}  // namespace kvant
