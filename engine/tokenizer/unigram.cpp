// Unigram (SentencePiece's other model, as T5 has it): of all ways to cut a text into pieces the
// one with the greatest sum of scores, found by Viterbi's algorithm. A character that no piece
// covers becomes the unknown token, with a score 10 below the least one; neighbours become one
// token. Source: T. Kudo, "Subword regularization" (2018), and SentencePiece's unigram_model.cc for
// scores.
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
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/vocabulary.h"
#include "formats/gguf.h"

namespace kvant {
namespace {

constexpr double kUnknownPenalty = 10;

class UnigramTokenizer final : public VocabularyTokenizer {
 public:
  Status Init(const formats::GgufFile& file);

  std::string TokenBytes(TokenId id, DecodeOptions options) const override;
  const char* kind() const override { return "unigram"; }

 protected:
  void EncodeText(std::string_view text, Encoding& out) const override;

 private:
  // The best way to reach a place in the text.
  struct Step {
    double score = -std::numeric_limits<double>::infinity();
    TokenId id = PieceIndex::kNone;  // the last piece; none: an unknown character
    uint32_t size = 0;               // its bytes
  };
  Status ReadScores(const formats::GgufFile& file);
  std::string Spell(std::string_view text) const;
  void Extend(std::string_view text, size_t begin, std::vector<Step>& steps) const;

  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::vector<TokenId> sorted_;  // the pieces of ordinary text in order of their bytes
  bool prefix_ = false;
  bool merge_spaces_ = false;
};

Status UnigramTokenizer::Init(const formats::GgufFile& file) {
  SpecialTokens defaults;
  defaults.pad = 0;
  defaults.eos = 1;
  defaults.unk = 2;
  defaults.add_eos = true;
  KVANT_TRY(Load(file, defaults, ""));
  if (file.Find("tokenizer.ggml.precompiled_charsmap") != nullptr) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: tokenizer.ggml.precompiled_charsmap is there; texts cannot be normalized "
                     "by such a table yet",
                     file.path());
  }
  KVANT_ASSIGN(const auto prefix, file.GetBool("tokenizer.ggml.add_space_prefix"));
  KVANT_ASSIGN(const auto merge, file.GetBool("tokenizer.ggml.remove_extra_whitespaces"));
  prefix_ = prefix.value_or(false);
  merge_spaces_ = merge.value_or(false);
  special_.add_space_prefix = prefix_ || merge_spaces_;
  KVANT_TRY(ReadScores(file));
  for (TokenId id = 0; id < vocab_size(); ++id) {
    if (index_.Find(piece(id)) == id) sorted_.push_back(id);
  }
  std::sort(sorted_.begin(), sorted_.end(),
            [this](TokenId a, TokenId b) { return piece(a) < piece(b); });
  return {};
}

Status UnigramTokenizer::ReadScores(const formats::GgufFile& file) {
  constexpr const char* kScores = "tokenizer.ggml.scores";
  KVANT_ASSIGN(const formats::GgufArray* scores,
               PerTokenArray(file, kScores, formats::GgufType::kFloat32, pieces_.size()));
  if (scores == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is absent", file.path(), kScores);
  }
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    float score = 0;
    std::memcpy(&score, scores->data + i * sizeof score, sizeof score);
    if (!std::isfinite(score)) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}[{}] is not a finite number", file.path(),
                       kScores, i);
    }
    // What users define is taken wherever it fits.
    const bool user_defined = types_[i] == PieceType::kUserDefined;
    scores_.push_back(user_defined ? 0.0 : static_cast<double>(score));
    if (types_[i] == PieceType::kNormal) least = std::min(least, scores_.back());
  }
  unknown_score_ = (std::isfinite(least) ? least : 0) - kUnknownPenalty;
  return {};
}

// Spaces as U+2581, one in front of the text if the model has it so, and runs of them as one.
std::string UnigramTokenizer::Spell(std::string_view text) const {
  std::string spelt;
  spelt.reserve(text.size() + text.size() / 2);
  bool in_word = false;
  bool has_prefix = false;
  for (const char c : text) {
    if (c == ' ') {
      in_word = false;
      if (!merge_spaces_) spelt += kSpacePiece;
      continue;
    }
    if (!in_word && (merge_spaces_ || (prefix_ && !has_prefix))) {
      spelt += kSpacePiece;
      has_prefix = true;
    }
    in_word = true;
    spelt += c;
  }
  return spelt;
}

// Tries every piece that begins at a place of the text, the shortest first.
void UnigramTokenizer::Extend(std::string_view text, size_t begin, std::vector<Step>& steps) const {
  const auto offer = [&](size_t size, TokenId id, double score) {
    Step& step = steps[begin + size];
    const double sum = steps[begin].score + score;
    if (sum > step.score) step = {sum, id, static_cast<uint32_t>(size)};
  };
  const size_t character = DecodeUtf8(text.substr(begin)).size;
  bool covered = false;
  auto low = sorted_.begin();
  auto high = sorted_.end();
  for (size_t size = 1; begin + size <= text.size() && low != high; ++size) {
    // The pieces whose byte at size - 1 is the text's; all of them agree before it.
    const auto byte = static_cast<uint8_t>(text[begin + size - 1]);
    const auto at = [&](TokenId id) {
      return piece(id).size() < size ? -1 : int{static_cast<uint8_t>(piece(id)[size - 1])};
    };
    low = std::partition_point(low, high, [&](TokenId id) { return at(id) < byte; });
    high = std::partition_point(low, high, [&](TokenId id) { return at(id) == byte; });
    if (low == high || piece(*low).size() != size) continue;
    offer(size, *low, scores_[static_cast<size_t>(*low)]);
    covered = covered || size == character;
  }
  if (!covered) offer(character, PieceIndex::kNone, unknown_score_);
}

void UnigramTokenizer::EncodeText(std::string_view text, Encoding& out) const {
  const std::string spelt = Spell(text);
  std::vector<Step> steps(spelt.size() + 1);
  steps[0].score = 0;
  for (size_t begin = 0; begin < spelt.size(); ++begin) {
    if (steps[begin].score > -std::numeric_limits<double>::infinity()) Extend(spelt, begin, steps);
  }
  std::vector<TokenId> reversed;
  bool after_unknown = false;
  for (size_t end = spelt.size(); end > 0; end -= steps[end].size) {
    const TokenId id = steps[end].id;
    if (id >= 0) {
      reversed.push_back(id);
    } else {
      ++out.unknown_characters;
      if (!after_unknown && special_.unk) reversed.push_back(*special_.unk);
    }
    after_unknown = id < 0;
  }
  out.ids.insert(out.ids.end(), reversed.rbegin(), reversed.rend());
}

std::string UnigramTokenizer::TokenBytes(TokenId id, DecodeOptions options) const {
  const PieceType kind = type(id);
  if (kind == PieceType::kControl || kind == PieceType::kUnknown) {
    return std::string(options.special ? piece(id) : "");
  }
  if (kind == PieceType::kUserDefined) return std::string(piece(id));
  return WithSpaces(piece(id));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> CreateUnigram(const formats::GgufFile& file) {
  auto tokenizer = std::make_unique<UnigramTokenizer>();
  KVANT_TRY(tokenizer->Init(file));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace kvant
