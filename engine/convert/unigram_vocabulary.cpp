#include "engine/convert/unigram_vocabulary.h"

#include <array>

#include "base/log.h"
#include "base/result.h"
#include "engine/tokenizer/charsmap.h"
#include "engine/tokenizer/kinds.h"

namespace kvant::convert {
namespace {

using formats::SentencePieceModel;
using PieceType = Vocabulary::Type;

// fairseq's first ids. SentencePiece's file begins with three such pieces in another order.
constexpr std::array<std::string_view, 4> kFairseqTokens = {"<s>", "<pad>", "</s>", "<unk>"};
constexpr size_t kFairseqOwnPieces = 3;
constexpr size_t kFairseqShift = kFairseqTokens.size() - kFairseqOwnPieces;

void PlaceNamed(std::string_view text, size_t id, PieceType type, Vocabulary& vocabulary) {
  vocabulary.tokens[id] = text;
  vocabulary.types[id] = type;
  vocabulary.scores[id] = 0;
}

void PlacePieces(const SentencePieceModel& model, size_t first, size_t shift,
                 Vocabulary& vocabulary) {
  for (size_t i = first; i < model.pieces.size(); ++i) {
    vocabulary.tokens[i + shift] = model.pieces[i].text;
    vocabulary.types[i + shift] = model.pieces[i].type;
    vocabulary.scores[i + shift] = model.pieces[i].score;
  }
}

std::optional<int32_t> IdWithin(int32_t id, size_t pieces) {
  if (id < 0 || static_cast<size_t>(id) >= pieces) return std::nullopt;
  return id;
}

void PlaceInOwnOrder(const SentencePieceModel& model, int64_t extra_ids, Vocabulary& vocabulary) {
  const size_t pieces = model.pieces.size();
  PlacePieces(model, 0, 0, vocabulary);
  vocabulary.bos = IdWithin(model.bos_id, pieces);
  vocabulary.eos = IdWithin(model.eos_id, pieces);
  vocabulary.unk = IdWithin(model.unk_id, pieces);
  vocabulary.pad = IdWithin(model.pad_id, pieces);
  for (int64_t i = 0; i < extra_ids; ++i) {
    PlaceNamed(fmt::format("<extra_id_{}>", i), pieces + static_cast<size_t>(extra_ids - 1 - i),
               PieceType::kControl, vocabulary);
  }
}

Status PlaceInFairseqOrder(const SentencePieceModel& model, const std::string& file,
                           std::span<const std::string_view> languages, Vocabulary& vocabulary) {
  for (size_t i = 0; i < kFairseqOwnPieces; ++i) {
    const bool is_own = i < model.pieces.size() && (model.pieces[i].type == PieceType::kUnknown ||
                                                    model.pieces[i].type == PieceType::kControl);
    if (is_own) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{}: piece {} is not one of <unk>, <s> and </s>, which fairseq's order of ids "
                     "replaces",
                     file, i);
  }
  for (size_t id = 0; id < kFairseqTokens.size(); ++id) {
    PlaceNamed(kFairseqTokens[id], id, id == 3 ? PieceType::kUnknown : PieceType::kControl,
               vocabulary);
  }
  PlacePieces(model, kFairseqOwnPieces, kFairseqShift, vocabulary);
  size_t id = model.pieces.size() + kFairseqShift;
  for (const std::string_view language : languages) {
    PlaceNamed(language, id++, PieceType::kControl, vocabulary);
  }
  PlaceNamed("<mask>", id, PieceType::kControl, vocabulary);
  vocabulary.bos = 0;
  vocabulary.pad = 1;
  vocabulary.eos = 2;
  vocabulary.unk = 3;
  return {};
}

}  // namespace

Status CheckPieceSettings(const SentencePieceModel& model, const std::string& file) {
  if (!model.escape_whitespaces || model.whitespace_behind_words) {
    return MakeError(ErrorCode::kNotSupported, "{}: {}, which GGUF has no key for", file,
                     model.escape_whitespaces ? "treat_whitespace_as_suffix is set"
                                              : "escape_whitespaces is not set");
  }
  if (model.denormalizes) {
    Log(LogLevel::kWarning,
        fmt::format("{}: its table for decoded texts is left out, GGUF has no key for it", file));
  }
  if (model.charsmap.empty()) return {};
  const auto map = Charsmap::Parse(model.charsmap, file + ": precompiled_charsmap");
  return map.ok() ? Status() : Status(map.error());
}

Result<Vocabulary> UnigramVocabulary(const SentencePieceModel& model, const std::string& file,
                                     const UnigramOptions& options) {
  if (model.kind != SentencePieceModel::Kind::kUnigram) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: SentencePiece model type {} is no unigram vocabulary, expected 1", file,
                     static_cast<int32_t>(model.kind));
  }
  KVANT_TRY(CheckPieceSettings(model, file));
  const bool fairseq = options.order == PieceOrder::kFairseq;
  const size_t added = fairseq ? kFairseqShift + options.languages.size() + 1
                               : static_cast<size_t>(options.extra_ids);
  if (static_cast<int64_t>(model.pieces.size() + added) > options.vocab_size) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} pieces and {} tokens beside them, but config.json says that there are "
                     "{} tokens",
                     file, model.pieces.size(), added, options.vocab_size);
  }
  Vocabulary vocabulary = EmptyVocabulary(kUnigramKind, options.vocab_size);
  vocabulary.pre = "default";
  vocabulary.scores.assign(vocabulary.tokens.size(), kPaddingScore);
  if (fairseq) {
    KVANT_TRY(PlaceInFairseqOrder(model, file, options.languages, vocabulary));
  } else {
    PlaceInOwnOrder(model, options.extra_ids, vocabulary);
  }
  vocabulary.add_space_prefix = model.add_dummy_prefix;
  vocabulary.remove_extra_whitespaces = model.remove_extra_whitespaces;
  vocabulary.charsmap.assign(model.charsmap.begin(), model.charsmap.end());
  vocabulary.add_bos = false;
  vocabulary.add_eos = true;
  return vocabulary;
}

}  // namespace kvant::convert
