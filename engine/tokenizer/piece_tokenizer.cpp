#include "engine/tokenizer/piece_tokenizer.h"

namespace kvant {

void PieceTokenizer::EncodeText(std::string_view text, Encoding& out) const {
  PutOutPieces([&](const VisitPiece& visit) { ForEachPiece(text, visit); }, out);
}

void PieceTokenizer::PutOutPieces(const std::function<void(const VisitPiece&)>& cut,
                                  Encoding& out) const {
  bool after_unknown = false;
  cut([&](TokenId id, std::string_view piece) {
    if (id >= 0) {
      out.ids.push_back(id);
    } else if (has_bytes_) {
      PutOutUnknown(piece, out);
    } else {
      ++out.unknown_characters;
      if (!after_unknown && special_.unk) out.ids.push_back(*special_.unk);
    }
    after_unknown = id < 0;
  });
}

// An unknown character in bytes.
void PieceTokenizer::PutOutUnknown(std::string_view character, Encoding& out) const {
  bool complete = true;
  for (const char c : character) {
    const TokenId id = byte_id(c);
    complete = complete && id >= 0;
    if (id >= 0) {
      out.ids.push_back(id);
    } else if (special_.unk) {
      out.ids.push_back(*special_.unk);
    }
  }
  if (!complete) ++out.unknown_characters;
}

}  // namespace kvant
