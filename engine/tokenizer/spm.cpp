// SentencePiece BPE: the characters of a text are its first symbols; of all neighbours whose
// concatenation is in the vocabulary, the pair with the highest score merges first (the leftmost of
// equals). A symbol that is no token in the end becomes its bytes (<0x00> to <0xFF>), and in a
// vocabulary without them the unknown token, one for a run of such symbols.
// Source: SentencePiece, bpe_model.cc and sentencepiece_processor.cc.
//
// A space is spelt U+2581. Merging is O(n log n) by a heap of (score, position). Where the file
// says what SentencePiece does to characters and spaces, this is done before
// (unigram_normalizer.h), and pieces that the user defined are symbols that do not merge; otherwise
// they are cut out.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/result.h"
#include "engine/tokenizer/byte_piece.h"
#include "engine/tokenizer/piece_tokenizer.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/unigram_normalizer.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

using formats::GgufArray;
using formats::GgufType;

class SpmTokenizer final : public PieceTokenizer {
 public:
  Status Init(const VocabularyKeys& keys);

  void ForEachPiece(std::string_view text, const VisitPiece& visit) const override {
    CutSpelt(Spell(text), visit);
  }
  std::string TokenBytes(TokenId id, DecodeOptions options) const override;
  const char* kind() const override { return "spm"; }

 protected:
  std::string Normalized(std::string_view text) const override {
    return normalizer_spells_ ? Spell(text) : std::string(text);
  }
  void EncodeNormalized(std::string_view text, Encoding& out) const override;

 private:
  struct Symbol {
    uint32_t begin;  // in the text
    uint32_t size;   // 0: it has become part of the one before it
    int32_t previous;
    int32_t next;
    TokenId id;           // PieceIndex::kNone if it is no token
    bool frozen = false;  // does not merge
  };
  struct Candidate {
    float score;
    int32_t left;
    uint32_t size;  // of both symbols together; another one means the candidate is obsolete
    TokenId id;

    // Heap order: the best is the greatest.
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  // Buffers of one EncodeText, reused for every piece of the text.
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    // How an unused piece came about: it may be formed on the way but must not be put out.
    std::unordered_map<TokenId, std::pair<TokenId, TokenId>> unused_parts;
    std::vector<TokenId> stack;
  };
  Status ReadScores(const VocabularyKeys& keys);
  Status FindByteTokens(const VocabularyKeys& keys);
  Status ReadNormalizer(const VocabularyKeys& keys);
  std::string Spell(std::string_view text) const;
  void CutSpelt(std::string_view spelt, const VisitPiece& visit) const;
  void CutPart(std::string_view part, Scratch& scratch, const VisitPiece& visit) const;
  void CutSymbols(std::string_view part, Scratch& scratch) const;
  void PushCandidate(std::string_view part, int32_t left, Scratch& scratch) const;
  void PutOut(std::string_view text, TokenId id, Scratch& scratch, const VisitPiece& visit) const;

  std::vector<float> scores_;
  std::optional<UnigramNormalizer> normalizer_;  // where the file says what SentencePiece does
  bool normalizer_spells_ = false;               // kNormalizerSpellsKey
  // No piece has U+2581 behind another character, so no merge crosses the start of a word and
  // words can be merged on their own, which keeps the heap small.
  bool words_are_separate_ = true;
};

constexpr int32_t kNoPiece = -1;

Status SpmTokenizer::Init(const VocabularyKeys& keys) {
  SpecialTokens defaults;
  defaults.bos = 1;
  defaults.eos = 2;
  defaults.unk = 0;
  defaults.add_bos = true;
  const bool says_all = keys.Find("remove_extra_whitespaces") != nullptr;
  KVANT_ASSIGN(const std::optional<bool> prefix, keys.GetBool("add_space_prefix"));
  defaults.add_space_prefix = prefix.value_or(true);
  KVANT_ASSIGN(const std::optional<bool> spells, keys.file().GetBool(kNormalizerSpellsKey));
  normalizer_spells_ = spells.value_or(false) && !says_all;
  KVANT_TRY(Load(keys, defaults, "", says_all ? UserDefined::kOfTheKind : UserDefined::kCutOut));
  KVANT_TRY(ReadScores(keys));
  KVANT_TRY(FindByteTokens(keys));
  if (says_all) KVANT_TRY(ReadNormalizer(keys));
  for (TokenId id = 0; id < vocab_size() && words_are_separate_; ++id) {
    std::string_view text = piece(id);
    if (index_.Find(text) < 0) continue;
    while (text.starts_with(kSpacePiece)) text.remove_prefix(kSpacePiece.size());
    words_are_separate_ = text.find(kSpacePiece) == std::string_view::npos;
  }
  return {};
}

Status SpmTokenizer::ReadNormalizer(const VocabularyKeys& keys) {
  normalizer_.emplace();
  KVANT_TRY(normalizer_->Read(keys));
  std::vector<TokenId> user_defined;
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const bool found = type(id) == PieceType::kUserDefined && index_.Find(piece(id)) == id;
    if (found) user_defined.push_back(id);
  }
  normalizer_->user_defined = PiecePrefixes(pieces_, std::move(user_defined));
  return {};
}

Status SpmTokenizer::ReadScores(const VocabularyKeys& keys) {
  constexpr const char* kScores = "scores";
  scores_.assign(pieces_.size(), 0.0F);
  KVANT_ASSIGN(const GgufArray* scores, keys.PerToken(kScores, GgufType::kFloat32, pieces_.size()));
  if (scores == nullptr) return {};
  std::memcpy(scores_.data(), scores->data, scores_.size() * sizeof(float));
  for (size_t i = 0; i < scores_.size(); ++i) {
    if (std::isnan(scores_[i])) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}[{}] is not a number", keys.path(),
                       keys.Key(kScores), i);
    }
  }
  return {};
}

Status SpmTokenizer::FindByteTokens(const VocabularyKeys& keys) {
  int found = 0;
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const int byte = BytePieceValue(piece(id));
    if (byte < 0) {
      if (type(id) != PieceType::kByte) continue;
      return MakeError(ErrorCode::kCorrupt,
                       "{}: {}[{}] has the type of a byte, but not the form <0xHH>", keys.path(),
                       keys.Key("tokens"), id);
    }
    TokenId& byte_id = byte_ids_[static_cast<size_t>(byte)];
    if (byte_id >= 0) continue;
    byte_id = id;
    types_[static_cast<size_t>(id)] = PieceType::kByte;
    ++found;
  }
  has_bytes_ = found > 0;
  return {};
}

// The text with a space in front and U+2581 for spaces.
std::string SpmTokenizer::Spell(std::string_view text) const {
  if (normalizer_) return normalizer_->Apply(text);
  std::string spelt;
  spelt.reserve(text.size() + text.size() / 2);
  if (special_.add_space_prefix) spelt += kSpacePiece;
  for (const char c : text) {
    if (c == ' ') {
      spelt += kSpacePiece;
    } else {
      spelt += c;
    }
  }
  return spelt;
}

void SpmTokenizer::EncodeNormalized(std::string_view text, Encoding& out) const {
  if (!normalizer_spells_) return EncodeText(text, out);
  PutOutPieces([&](const VisitPiece& visit) { CutSpelt(text, visit); }, out);
}

void SpmTokenizer::CutSpelt(std::string_view spelt, const VisitPiece& visit) const {
  Scratch scratch;
  std::string_view rest = spelt;
  while (!rest.empty()) {
    size_t size = rest.size();
    if (words_are_separate_) {
      size_t word = 0;
      while (rest.substr(word).starts_with(kSpacePiece)) word += kSpacePiece.size();
      size = std::min(size, rest.find(kSpacePiece, word));
    }
    CutPart(rest.substr(0, size), scratch, visit);
    rest.remove_prefix(size);
  }
}

// The symbols that merging begins with: characters, and what the user defined.
void SpmTokenizer::CutSymbols(std::string_view part, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  for (size_t begin = 0; begin < part.size();) {
    const size_t defined = normalizer_ ? normalizer_->user_defined.Longest(part.substr(begin)) : 0;
    const size_t size = defined > 0 ? defined : DecodeUtf8(part.substr(begin)).size;
    const auto index = static_cast<int32_t>(symbols.size());
    const bool is_last = begin + size == part.size();
    symbols.push_back({.begin = static_cast<uint32_t>(begin),
                       .size = static_cast<uint32_t>(size),
                       .previous = index - 1,
                       .next = is_last ? kNoPiece : index + 1,
                       .id = index_.Find(part.substr(begin, size)),
                       .frozen = defined > 0});
    begin += size;
  }
}

void SpmTokenizer::CutPart(std::string_view part, Scratch& scratch, const VisitPiece& visit) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  CutSymbols(part, scratch);
  for (size_t i = 0; i < symbols.size(); ++i) {
    PushCandidate(part, static_cast<int32_t>(i), scratch);
  }
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end());
    const Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(best.left)];
    if (left.size == 0 || left.next == kNoPiece) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (left.size + right.size != best.size) continue;
    if (type(best.id) == PieceType::kUnused) {
      scratch.unused_parts[best.id] = {left.id, right.id};
    }
    left.size = best.size;
    left.id = best.id;
    left.next = right.next;
    right.size = 0;
    if (left.next != kNoPiece) symbols[static_cast<size_t>(left.next)].previous = best.left;
    PushCandidate(part, left.previous, scratch);
    PushCandidate(part, best.left, scratch);
  }
  for (int32_t i = 0; i != kNoPiece; i = symbols[static_cast<size_t>(i)].next) {
    const Symbol& symbol = symbols[static_cast<size_t>(i)];
    PutOut(part.substr(symbol.begin, symbol.size), symbol.id, scratch, visit);
  }
}

void SpmTokenizer::PushCandidate(std::string_view part, int32_t left, Scratch& scratch) const {
  if (left == kNoPiece) return;
  const Symbol& first = scratch.symbols[static_cast<size_t>(left)];
  if (first.next == kNoPiece) return;
  const Symbol& second = scratch.symbols[static_cast<size_t>(first.next)];
  if (first.frozen || second.frozen) return;
  const uint32_t size = first.size + second.size;
  const TokenId id = index_.Find(part.substr(first.begin, size));
  if (id < 0) return;
  scratch.heap.push_back({scores_[static_cast<size_t>(id)], left, size, id});
  std::push_heap(scratch.heap.begin(), scratch.heap.end());
}

// A symbol that is no token is one character.
void SpmTokenizer::PutOut(std::string_view text, TokenId id, Scratch& scratch,
                          const VisitPiece& visit) const {
  if (id < 0) return visit(PieceIndex::kNone, text);
  scratch.stack.assign(1, id);
  while (!scratch.stack.empty()) {
    const TokenId top = scratch.stack.back();
    scratch.stack.pop_back();
    const auto parts = scratch.unused_parts.find(top);
    const bool split = type(top) == PieceType::kUnused && parts != scratch.unused_parts.end();
    if (split && parts->second.first >= 0 && parts->second.second >= 0) {
      scratch.stack.push_back(parts->second.second);
      scratch.stack.push_back(parts->second.first);
    } else {
      visit(top, piece(top));
    }
  }
}

std::string SpmTokenizer::TokenBytes(TokenId id, DecodeOptions options) const {
  const std::string_view text = piece(id);
  switch (type(id)) {
    case PieceType::kControl:
    case PieceType::kUnknown: return std::string(options.special ? text : "");
    case PieceType::kUserDefined: return std::string(text);
    case PieceType::kByte: return std::string(1, static_cast<char>(BytePieceValue(text)));
    case PieceType::kNormal:
    case PieceType::kUnused: break;
  }
  return WithSpaces(text);
}

}  // namespace

Result<std::unique_ptr<PieceTokenizer>> CreateSpm(const VocabularyKeys& keys) {
  auto tokenizer = std::make_unique<SpmTokenizer>();
  KVANT_TRY(tokenizer->Init(keys));
  return std::unique_ptr<PieceTokenizer>(std::move(tokenizer));
}

}  // namespace kvant
