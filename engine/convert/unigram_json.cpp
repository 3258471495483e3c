#include "engine/convert/unigram_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/log.h"
#include "engine/convert/precompiled_table.h"
#include "engine/convert/text_frame.h"
#include "engine/convert/tokenizer_json.h"
#include "engine/tokenizer/kinds.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonFlag;
using formats::JsonObject;
using formats::JsonText;
using Type = Vocabulary::Type;

constexpr std::string_view kSpaceSign = "\xE2\x96\x81";  // U+2581

// Steps that SentencePiece's own treatment of texts stands for.
struct Steps {
  bool prefix = false;  // a space in front
  bool merges_spaces = false;
  bool strips_end = false;
};

// A replacement of runs of spaces by one.
bool MergesSpaces(const Json& step) {
  const auto pattern = step.find("pattern");
  if (JsonText(step, "type") != "Replace" || pattern == step.end()) return false;
  const std::string regex = JsonText(*pattern, "Regex");
  const std::string with = JsonText(step, "content");
  return regex == " {2,}" && (with == " " || with == kSpaceSign);
}

// False for a step that is not understood. The depth of JSON is limited.
bool ReadStep(const Json& step, Steps& out) {
  if (!step.is_object()) return false;
  const std::string type = JsonText(step, "type");
  if (type == "Sequence") {
    for (const char* key : {"normalizers", "pretokenizers"}) {
      const auto steps = step.find(key);
      if (steps == step.end() || !steps->is_array()) continue;
      return std::ranges::all_of(*steps, [&](const Json& inner) { return ReadStep(inner, out); });
    }
    return false;
  }
  if (type == "Precompiled") return true;
  if (type == "WhitespaceSplit" || MergesSpaces(step)) {
    out.merges_spaces = true;
    out.strips_end |= type == "WhitespaceSplit";
    return true;
  }
  if (type == "Strip") {
    // A space in front becomes the one that is put there anyway.
    out.strips_end = JsonFlag(step, "strip_right", true);
    return out.strips_end;
  }
  if (type != "Metaspace") return false;
  const bool prefix = JsonFlag(step, "add_prefix_space", true);
  const std::string scheme = JsonText(step, "prepend_scheme", prefix ? "always" : "never");
  out.prefix = scheme != "never";
  return JsonText(step, "replacement") == kSpaceSign;
}

Result<Steps> ReadSteps(const JsonObject& tokenizer) {
  Steps steps;
  for (const char* key : {"normalizer", "pre_tokenizer"}) {
    const Json* step = tokenizer.Find(key);
    if (step == nullptr || ReadStep(*step, steps)) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{} cannot be converted, expected a table of characters, runs of spaces that "
                     "become one, and spaces that become U+2581; found {}",
                     tokenizer.Where(key), formats::Shown(*step));
  }
  return steps;
}

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

}  // namespace

Result<Vocabulary> UnigramJsonVocabulary(const JsonObject& tokenizer, int64_t vocab_size) {
  KVANT_ASSIGN(const auto model, tokenizer.Object("model"));
  KVANT_ASSIGN(const auto bytes, model->Bool("byte_fallback"));
  if (bytes.value_or(false)) {
    return MakeError(ErrorCode::kNotSupported, "{}: true is not supported",
                     model->Where("byte_fallback"));
  }
  Vocabulary vocabulary = EmptyVocabulary(kUnigramKind, vocab_size);
  vocabulary.pre = "default";
  vocabulary.scores.assign(vocabulary.tokens.size(), kPaddingScore);
  KVANT_TRY(PlacePieces(*model, vocab_size, vocabulary));
  KVANT_ASSIGN(const auto added, TokenizerJson::AddedTokens(tokenizer, vocab_size));
  for (const AddedToken& token : added) PlaceAddedToken(token, vocabulary);
  KVANT_ASSIGN(const Steps steps, ReadSteps(tokenizer));
  vocabulary.add_space_prefix = steps.prefix;
  vocabulary.remove_extra_whitespaces = steps.merges_spaces;
  if (steps.merges_spaces && !steps.strips_end) {
    Log(LogLevel::kWarning,
        fmt::format("{}: spaces at the end of a text are left out, though the tokenizer keeps one",
                    tokenizer.where()));
  }
  KVANT_ASSIGN(vocabulary.charsmap, PrecompiledTable(tokenizer));
  ReadTextFrame(tokenizer, vocabulary);
  return vocabulary;
}

}  // namespace kvant::convert
