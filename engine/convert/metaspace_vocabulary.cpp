#include "engine/convert/metaspace_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/convert/piece_steps.h"
#include "engine/convert/text_frame.h"
#include "engine/tokenizer/byte_piece.h"
#include "engine/tokenizer/kinds.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonText;
using Type = Vocabulary::Type;

// Whether a step, or one in it, makes U+2581 of spaces. The depth of JSON is limited.
bool HasMarkingStep(const Json& step) {
  if (!step.is_object()) return false;
  for (const char* key : {"normalizers", "pretokenizers"}) {
    const auto steps = step.find(key);
    if (steps == step.end() || !steps->is_array()) continue;
    return std::ranges::any_of(*steps, HasMarkingStep);
  }
  const std::string type = JsonText(step, "type");
  return type == "Metaspace" || (type == "Replace" && JsonText(step, "content") == kSpacePiece);
}

}  // namespace

bool HasMetaspaceMerges(const TokenizerJson& tokenizer) {
  if (tokenizer.byte_fallback) return false;
  return std::ranges::any_of(std::initializer_list<const char*>{"normalizer", "pre_tokenizer"},
                             [&](const char* key) {
                               const Json* step = tokenizer.root.Find(key);
                               return step != nullptr && HasMarkingStep(*step);
                             });
}

Result<Vocabulary> MetaspaceVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size) {
  KVANT_ASSIGN(const auto model, tokenizer.root.Object("model"));
  if (tokenizer.ignore_merges) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: true cannot be converted where spaces become U+2581",
                     model->Where("ignore_merges"));
  }
  KVANT_ASSIGN(const PieceSteps steps, ReadPieceSteps(tokenizer.root));
  Vocabulary vocabulary = EmptyVocabulary(kByteLevelBpeKind, vocab_size);
  vocabulary.pre = steps.cuts_words ? kMetaspaceWordsPre : kMetaspacePre;
  PlaceTokens(tokenizer, vocabulary);
  if (!vocabulary.unk) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: none cannot be converted without byte_fallback: characters without a "
                     "token would be dropped",
                     model->Where("unk_token"));
  }
  vocabulary.types[static_cast<size_t>(*vocabulary.unk)] = Type::kUnknown;
  KVANT_ASSIGN(const auto fuses, model->Bool("fuse_unk"));
  vocabulary.fuses_unknown = fuses.value_or(false);
  for (const auto& [left, right] : tokenizer.merges) {
    vocabulary.merges.push_back(left + " " + right);
  }
  KVANT_TRY(UsePieceSteps(tokenizer.root, steps, vocabulary));
  ReadTextFrame(tokenizer.root, vocabulary);
  return vocabulary;
}

}  // namespace kvant::convert
