// RWKV's "world" tokenizer: from each place of a text the longest piece that fits, whatever
// follows. Pieces are bytes, which the file spells as Python does: \t, \n, \r, \xHH, and a
// backslash in front of a character that stands for itself.
//
// Time is linear in the text times the length of the longest pieces that occur in it.
#include <algorithm>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The bytes that a piece spells. What is no escape stands for itself.
std::string BytesOfPiece(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size(); ++i) {
    if (piece[i] != '\\' || i + 1 == piece.size()) {
      bytes += piece[i];
      continue;
    }
    const char c = piece[++i];
    const int high = i + 2 < piece.size() ? HexDigit(piece[i + 1]) : -1;
    const int low = i + 2 < piece.size() ? HexDigit(piece[i + 2]) : -1;
    if (c == 'x' && high >= 0 && low >= 0) {
      bytes += static_cast<char>(16 * high + low);
      i += 2;
    } else {
      bytes += c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
    }
  }
  return bytes;
}

class RwkvTokenizer final : public VocabularyTokenizer {
 public:
  Status Init(const formats::GgufFile& file);

  std::string TokenBytes(TokenId id, DecodeOptions options) const override;
  const char* kind() const override { return "rwkv"; }

 protected:
  void EncodeText(std::string_view text, Encoding& out) const override;

 private:
  // A piece of ordinary text at the beginning of `text`, the longest one.
  struct Match {
    TokenId id = PieceIndex::kNone;
    size_t size = 0;
  };
  Match Longest(std::string_view text) const;
  const std::string& bytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }

  std::vector<std::string> bytes_;  // by id
  std::vector<TokenId> sorted_;     // the pieces of ordinary text in order of their bytes
};

Status RwkvTokenizer::Init(const formats::GgufFile& file) {
  SpecialTokens defaults;
  defaults.add_space_prefix = false;
  KVANT_TRY(Load(VocabularyKeys(file), defaults, ""));
  special_.add_space_prefix = false;
  for (TokenId id = 0; id < vocab_size(); ++id) {
    bytes_.push_back(BytesOfPiece(piece(id)));
    const bool ordinary = type(id) == PieceType::kNormal || type(id) == PieceType::kUserDefined;
    if (ordinary && !bytes(id).empty()) sorted_.push_back(id);
  }
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [this](TokenId a, TokenId b) { return bytes(a) < bytes(b); });
  return {};
}

RwkvTokenizer::Match RwkvTokenizer::Longest(std::string_view text) const {
  Match best;
  auto low = sorted_.begin();
  auto high = sorted_.end();
  for (size_t size = 1; size <= text.size() && low != high; ++size) {
    // The pieces whose byte at size - 1 is the text's; all of them agree before it.
    const auto byte = static_cast<uint8_t>(text[size - 1]);
    const auto at = [&](TokenId id) {
      return bytes(id).size() < size ? -1 : int{static_cast<uint8_t>(bytes(id)[size - 1])};
    };
    low = std::partition_point(low, high, [&](TokenId id) { return at(id) < byte; });
    high = std::partition_point(low, high, [&](TokenId id) { return at(id) == byte; });
    // Where pieces are equal, the first id is the one.
    if (low != high && bytes(*low).size() == size) best = {*low, size};
  }
  return best;
}

void RwkvTokenizer::EncodeText(std::string_view text, Encoding& out) const {
  while (!text.empty()) {
    const Match match = Longest(text);
    if (match.size > 0) {
      out.ids.push_back(match.id);
    } else {
      ++out.unknown_characters;
      if (special_.unk) out.ids.push_back(*special_.unk);
    }
    text.remove_prefix(std::max<size_t>(match.size, 1));
  }
}

std::string RwkvTokenizer::TokenBytes(TokenId id, DecodeOptions options) const {
  const PieceType kind = type(id);
  if (kind == PieceType::kControl || kind == PieceType::kUnknown) {
    return std::string(options.special ? piece(id) : "");
  }
  return bytes(id);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> CreateRwkv(const formats::GgufFile& file) {
  auto tokenizer = std::make_unique<RwkvTokenizer>();
  KVANT_TRY(tokenizer->Init(file));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kvant
