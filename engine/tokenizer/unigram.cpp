// Unigram (SentencePiece's other model, as T5 has it): of all ways to cut a normalized text into
// pieces the one with the greatest sum of scores, found by Viterbi's algorithm. A character that no
// piece covers alone may become the unknown token, with a score 10 below the least one; neighbours
// become one token, or bytes where the vocabulary has them.
// Source: T. Kudo, "Subword regularization" (2018), and SentencePiece's unigram_model.cc and
// sentencepiece_processor.cc for scores, unknown characters and decoding.
//
// Sums are what SentencePiece 0.2.3 computes, bit by bit, because near ties are common: they are
// floats, and of equal ones the first found stays, which is the one whose last piece begins first.
// Where the sum up to a place has become large, it is taken from all sums from there on. Pieces
// that the user defined have scores above those of a trained model, and the greater the longer they
// are. (Up to 0.2.1 these were about -0.1, sums were compared in double precision before they were
// rounded, and not kept small.)
//
// Time is linear in the text times the length of the longest pieces that occur in it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/byte_piece.h"
#include "engine/tokenizer/piece_tokenizer.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/unigram_normalizer.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

constexpr float kUnknownPenalty = 10;
constexpr double kUserDefinedBonus = 0.1;  // for each byte behind the first
constexpr float kSumMax = 1e5F;            // without regard to the sign

class UnigramTokenizer final : public PieceTokenizer {
 public:
  Status Init(const VocabularyKeys& keys);

  void ForEachPiece(std::string_view text, const VisitPiece& visit) const override;
  std::string TokenBytes(TokenId id, DecodeOptions options) const override;
  std::string Decode(std::span<const TokenId> ids, DecodeOptions options) const override;
  const char* kind() const override { return "unigram"; }

 private:
  // The best way to reach a place in the text.
  struct Step {
    float score = 0;
    TokenId id = PieceIndex::kNone;  // the last piece; none: an unknown character
    uint32_t size = 0;               // its bytes; 0: the place was not reached
  };
  // The best ways to all places of a text; ways to places up to `reach` may be known.
  struct Lattice {
    std::string_view text;
    std::vector<Step> steps;
    size_t reach = 0;
  };
  Status ReadScores(const VocabularyKeys& keys);
  Status ReadBytePieces(const VocabularyKeys& keys);
  void SortPieces();
  size_t Extend(size_t begin, Lattice& lattice) const;

  UnigramNormalizer normalizer_;
  PiecePrefixes prefixes_;  // of all pieces that a text may be cut into
  std::vector<float> scores_;
  float unknown_score_ = 0;
  bool byte_pieces_match_ = false;  // kBytePiecesMatchKey
};

Status UnigramTokenizer::Init(const VocabularyKeys& keys) {
  SpecialTokens defaults;
  defaults.pad = 0;
  defaults.eos = 1;
  defaults.unk = 2;
  defaults.add_eos = true;
  KVANT_TRY(Load(keys, defaults, "", UserDefined::kOfTheKind));
  KVANT_TRY(normalizer_.Read(keys));
  special_.add_space_prefix = normalizer_.add_prefix;
  KVANT_ASSIGN(const auto match, keys.file().GetBool(kBytePiecesMatchKey));
  byte_pieces_match_ = match.value_or(false);
  KVANT_TRY(ReadScores(keys));
  KVANT_TRY(ReadBytePieces(keys));
  SortPieces();
  return {};
}

Status UnigramTokenizer::ReadScores(const VocabularyKeys& keys) {
  constexpr const char* kScores = "scores";
  KVANT_ASSIGN(const formats::GgufArray* scores,
               keys.PerToken(kScores, formats::GgufType::kFloat32, pieces_.size()));
  if (scores == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is absent", keys.path(), keys.Key(kScores));
  }
  float least = std::numeric_limits<float>::max();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    float score = 0;
    std::memcpy(&score, scores->data + i * sizeof score, sizeof score);
    if (!std::isfinite(score)) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}[{}] is not a finite number", keys.path(),
                       keys.Key(kScores), i);
    }
    const bool matches =
        types_[i] == PieceType::kNormal || (byte_pieces_match_ && types_[i] == PieceType::kByte);
    if (matches) least = std::min(least, score);
    if (types_[i] == PieceType::kUserDefined) {
      const auto bytes = static_cast<double>(pieces_[i].size());
      score = static_cast<float>(bytes * kUserDefinedBonus - kUserDefinedBonus);
    }
    scores_.push_back(score);
  }
  unknown_score_ = least - kUnknownPenalty;
  return {};
}

Status UnigramTokenizer::ReadBytePieces(const VocabularyKeys& keys) {
  for (TokenId id = 0; id < vocab_size(); ++id) {
    if (type(id) != PieceType::kByte) continue;
    const int byte = BytePieceValue(piece(id));
    if (byte < 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: {}[{}] has the type of a byte, but not the form <0xHH>", keys.path(),
                       keys.Key("tokens"), id);
    }
    TokenId& byte_id = byte_ids_[static_cast<size_t>(byte)];
    if (byte_id < 0) byte_id = id;
    has_bytes_ = true;
  }
  return {};
}

void UnigramTokenizer::SortPieces() {
  std::vector<TokenId> used;
  std::vector<TokenId> user_defined;
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const bool is_byte =
        type(id) == PieceType::kByte && byte_id(static_cast<char>(BytePieceValue(piece(id)))) == id;
    const bool is_found = is_byte && byte_pieces_match_ && index_.Find(piece(id)) < 0;
    if (is_found) used.push_back(id);
    if (index_.Find(piece(id)) != id || type(id) == PieceType::kUnused) continue;
    used.push_back(id);
    if (type(id) == PieceType::kUserDefined) user_defined.push_back(id);
  }
  prefixes_ = PiecePrefixes(pieces_, std::move(used));
  normalizer_.user_defined = PiecePrefixes(pieces_, std::move(user_defined));
}

// Offers every piece that begins at a place, the shortest first. Returns the size of the character
// there.
size_t UnigramTokenizer::Extend(size_t begin, Lattice& lattice) const {
  std::vector<Step>& steps = lattice.steps;
  const float sum_before = steps[begin].score;
  if (std::abs(sum_before) > kSumMax) {
    for (size_t end = begin; end <= lattice.reach; ++end) {
      if (steps[end].size > 0) steps[end].score -= sum_before;
    }
  }
  const auto offer = [&](TokenId id, size_t size, float score) {
    const size_t end = begin + size;
    lattice.reach = std::max(lattice.reach, end);
    const float sum = score + steps[begin].score;
    if (steps[end].size > 0 && !(sum > steps[end].score)) return;
    steps[end] = {sum, id, static_cast<uint32_t>(size)};
  };
  const std::string_view rest = lattice.text.substr(begin);
  const size_t character = DecodeUtf8(rest).size;
  bool covered = false;
  prefixes_.ForEach(rest, [&](TokenId id, size_t size) {
    offer(id, size, scores_[static_cast<size_t>(id)]);
    covered = covered || size == character;
  });
  if (!covered) offer(PieceIndex::kNone, character, unknown_score_);
  return character;
}

void UnigramTokenizer::ForEachPiece(std::string_view text, const VisitPiece& visit) const {
  const std::string spelt = normalizer_.Apply(text);
  Lattice lattice{.text = spelt, .steps = std::vector<Step>(spelt.size() + 1)};
  // Every place between characters is reached, if only by unknown ones.
  for (size_t begin = 0; begin < spelt.size();) begin += Extend(begin, lattice);
  std::vector<size_t> ends;
  for (size_t end = spelt.size(); end > 0; end -= lattice.steps[end].size) ends.push_back(end);
  for (size_t i = ends.size(); i-- > 0;) {
    const Step& step = lattice.steps[ends[i]];
    visit(step.id, lattice.text.substr(ends[i] - step.size, step.size));
  }
}

std::string UnigramTokenizer::TokenBytes(TokenId id, DecodeOptions options) const {
  switch (type(id)) {
    case PieceType::kControl:
    case PieceType::kUnknown: return std::string(options.special ? piece(id) : "");
    case PieceType::kByte: return std::string(1, static_cast<char>(BytePieceValue(piece(id))));
    case PieceType::kNormal:
    case PieceType::kUserDefined:
    case PieceType::kUnused: break;
  }
  return WithSpaces(piece(id));
}

// Decodes as SentencePiece does, but for unknown tokens, of which SentencePiece makes U+2047
// between spaces. Each piece in front of the first text loses a space, or only the first one where
// runs of spaces are kept. Behind a control token begins a new text, because Encode, too, puts a
// space there.
std::string UnigramTokenizer::Decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string text;
  const bool strips = normalizer_.add_prefix || normalizer_.merge_spaces;
  bool at_begin = true;
  for (const TokenId id : ids) {
    if (!HasText(id)) continue;
    const PieceType kind = type(id);
    const std::string bytes = TokenBytes(id, options);
    if (kind == PieceType::kControl) {
      text += bytes;
      at_begin = true;
      continue;
    }
    const bool is_text = kind != PieceType::kByte && kind != PieceType::kUnknown;
    const bool drop_space = strips && at_begin && is_text && bytes.starts_with(' ');
    text.append(bytes, drop_space ? 1 : 0);
    at_begin = at_begin && drop_space && bytes.size() == 1 && normalizer_.merge_spaces;
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<PieceTokenizer>> CreateUnigram(const VocabularyKeys& keys) {
  auto tokenizer = std::make_unique<UnigramTokenizer>();
  KVANT_TRY(tokenizer->Init(keys));
  return std::unique_ptr<PieceTokenizer>(std::move(tokenizer));
}

}  // namespace kvant
