// Reading "tokenizer.ggml.*", and Encode's frame around the kind's own EncodeText.
//
// The names of end-of-turn and fill-in-the-middle tokens below, and that they count as control
// tokens whatever type the file gives them, follow llama.cpp: many published files mark them
// wrongly.
#include "engine/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "base/result.h"
#include "engine/tokenizer/stripping.h"

namespace kvant {
namespace {

using formats::GgufArray;
using formats::GgufFile;
using formats::GgufType;

// Indices into a text are 32 bits wide, and a space grows to the three bytes of U+2581.
constexpr size_t kTextBytesMax = size_t{512} << 20;

// Bound for the search automaton (20 bytes per byte of token text); real files have some kB.
constexpr size_t kSpecialBytesMax = size_t{64} << 20;

struct NamedToken {
  std::string_view text;
  bool ends_generation;
  bool ends_turn;  // the first of these in the table is the eot token if the file names none
};

constexpr NamedToken kNamedTokens[] = {
    {"<|eot_id|>", true, true},
    {"<|im_end|>", true, true},
    {"<|end|>", true, true},
    {"<end_of_turn>", true, true},
    {"<|endoftext|>", true, true},
    {"<|end_of_text|>", true, true},
    {"<EOT>", true, true},
    {"_<EOT>", true, true},
    {"[EOT]", true, true},                  // Kimi K2
    {"<｜end▁of▁sentence｜>", true, true},  // DeepSeek
    {"<end_of_utterance>", true, true},
    {"<turn|>", true, true},  // Gemma 4
    {"<|eom_id|>", true, false},
    {"<|return|>", true, false},  // gpt-oss, and the two below
    {"<|call|>", true, false},
    {"<|calls|>", true, false},
    {"<|flush|>", true, false},
    {"</s>", true, false},
    {"[EOS]", true, false},
    {"<eos>", true, false},
    {"<|tool_response>", true, false},
    {"<|ifm|im_end|>", true, false},
    {"[e~[", true, false},  // MiniMax
    {"<|fim_pad|>", true, false},
    {"<fim-pad>", true, false},
    {"<PAD>", true, false},
    {"<|fim_repo|>", true, false},
    {"<|repo_name|>", true, false},
    {"<fim-repo>", true, false},
    {"<REPO>", true, false},
    {"<|file_sep|>", true, false},
    {"<|fim_prefix|>", false, false},
    {"<fim-prefix>", false, false},
    {"<｜fim▁begin｜>", false, false},
    {"<PRE>", false, false},
    {"<|fim_suffix|>", false, false},
    {"<fim-suffix>", false, false},
    {"<｜fim▁hole｜>", false, false},
    {"<SUF>", false, false},
    {"<|fim_middle|>", false, false},
    {"<fim-middle>", false, false},
    {"<｜fim▁end｜>", false, false},
    {"<MID>", false, false},
};

// A name that does not end generation where the vocabulary has others.
struct MisnamedEnd {
  std::string_view text;
  std::string_view where;
  std::string_view and_where;
};

constexpr MisnamedEnd kMisnamedEnds[] = {
    {"<|end|>", "<|return|>", "<|call|>"},
    {"<|end|>", "<|calls|>", "<|flush|>"},
    {"</s>", "<|tool_response>", ""},
    {"</s>", "<|plamo:eos|>", ""},
};

struct IdKey {
  const char* key;
  std::optional<TokenId> SpecialTokens::*id;
};

constexpr IdKey kIdKeys[] = {
    {"bos_token_id", &SpecialTokens::bos},       {"eos_token_id", &SpecialTokens::eos},
    {"eot_token_id", &SpecialTokens::eot},       {"unknown_token_id", &SpecialTokens::unk},
    {"seperator_token_id", &SpecialTokens::sep},  // spelt so in GGUF
    {"padding_token_id", &SpecialTokens::pad},   {"mask_token_id", &SpecialTokens::mask},
    {"cls_token_id", &SpecialTokens::cls},
};

// Ids that end generation besides eos and eot.
constexpr const char* kEndKeys[] = {
    "eom_token_id",
    "fim_pad_token_id",
    "fim_rep_token_id",
    "fim_sep_token_id",
};

Result<std::optional<TokenId>> ReadId(const VocabularyKeys& keys, const char* name, size_t tokens) {
  KVANT_ASSIGN(const std::optional<uint32_t> id, keys.GetU32(name));
  if (!id) return std::optional<TokenId>();
  if (*id >= tokens) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}, but the vocabulary has {} tokens",
                     keys.path(), keys.Key(name), *id, tokens);
  }
  return std::optional<TokenId>(static_cast<TokenId>(*id));
}

}  // namespace

Result<const GgufArray*> VocabularyKeys::PerToken(std::string_view name, GgufType element,
                                                  size_t tokens) const {
  KVANT_ASSIGN(const GgufArray* array, GetArray(name, element));
  if (array != nullptr && array->count != tokens) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} has {} elements, but the vocabulary has {} tokens", path(), Key(name),
                     array->count, tokens);
  }
  return array;
}

Status VocabularyTokenizer::Load(const VocabularyKeys& keys, const SpecialTokens& defaults,
                                 std::string_view pre, UserDefined user_defined) {
  KVANT_TRY(ReadPieces(keys));
  KVANT_TRY(ReadSpecialIds(keys, defaults));
  FindNamedTokens();
  KVANT_TRY(BuildMatchers(keys, pre, user_defined));
  if (special_.add_bos) first_token_ = special_.bos;
  if (special_.add_eos) last_token_ = special_.eos;
  return {};
}

Status VocabularyTokenizer::ReadPieces(const VocabularyKeys& keys) {
  constexpr const char* kTokens = "tokens";
  constexpr const char* kTypes = "token_type";
  KVANT_ASSIGN(const GgufArray* tokens, keys.GetArray(kTokens, GgufType::kString));
  if (tokens == nullptr || tokens->strings.empty()) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}, expected the vocabulary", keys.path(),
                     keys.Key(kTokens), tokens == nullptr ? "absent" : "empty");
  }
  if (tokens->strings.size() > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} has {} elements, more than ids can count",
                     keys.path(), keys.Key(kTokens), tokens->strings.size());
  }
  pieces_ = tokens->strings;
  types_.assign(pieces_.size(), PieceType::kNormal);

  KVANT_ASSIGN(const GgufArray* types, keys.PerToken(kTypes, GgufType::kInt32, pieces_.size()));
  if (types == nullptr) return {};
  for (size_t i = 0; i < pieces_.size(); ++i) {
    int32_t value = 0;
    std::memcpy(&value, types->data + i * sizeof value, sizeof value);
    if (value < 0 || value > static_cast<int32_t>(PieceType::kByte)) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}[{}] is {}, expected 0 to 6", keys.path(),
                       keys.Key(kTypes), i, value);
    }
    // 0 is "undefined": nothing special is known of the piece.
    if (value != 0) types_[i] = static_cast<PieceType>(value);
  }
  return {};
}

Status VocabularyTokenizer::ReadSpecialIds(const VocabularyKeys& keys,
                                           const SpecialTokens& defaults) {
  special_ = defaults;
  for (const IdKey& entry : kIdKeys) {
    std::optional<TokenId>& id = special_.*entry.id;
    if (id && static_cast<size_t>(*id) >= pieces_.size()) id.reset();
    KVANT_ASSIGN(const std::optional<TokenId> found, ReadId(keys, entry.key, pieces_.size()));
    if (found) id = found;
  }
  for (const char* key : kEndKeys) {
    KVANT_ASSIGN(const std::optional<TokenId> found, ReadId(keys, key, pieces_.size()));
    if (found) special_.end_of_generation.push_back(*found);
  }
  KVANT_ASSIGN(const std::optional<bool> add_bos, keys.GetBool("add_bos_token"));
  KVANT_ASSIGN(const std::optional<bool> add_eos, keys.GetBool("add_eos_token"));
  KVANT_TRY(ReadSuppressed(keys));
  special_.add_bos = add_bos.value_or(defaults.add_bos);
  special_.add_eos = add_eos.value_or(defaults.add_eos);
  return {};
}

Status VocabularyTokenizer::ReadSuppressed(const VocabularyKeys& keys) {
  constexpr const char* kSuppressed = "suppress_tokens";
  const formats::GgufValue* value = keys.Find(kSuppressed);
  if (value == nullptr) return {};
  const auto* array = std::get_if<GgufArray>(&value->value);
  const bool is_ids =
      array != nullptr && (array->type == GgufType::kInt32 || array->type == GgufType::kUint32);
  if (!is_ids) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is not a list of 32-bit ids", keys.path(),
                     keys.Key(kSuppressed));
  }
  for (uint64_t i = 0; i < array->count; ++i) {
    uint32_t id = 0;
    std::memcpy(&id, array->data + i * sizeof id, sizeof id);
    if (id >= pieces_.size()) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}[{}] is {}, but the vocabulary has {} tokens",
                       keys.path(), keys.Key(kSuppressed), i, id, pieces_.size());
    }
    special_.suppressed.push_back(static_cast<TokenId>(id));
  }
  return {};
}

void VocabularyTokenizer::FindNamedTokens() {
  std::array<TokenId, std::size(kNamedTokens)> ids;
  ids.fill(PieceIndex::kNone);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].empty() ||
        std::string_view("<[_").find(pieces_[i][0]) == std::string_view::npos) {
      continue;
    }
    for (size_t k = 0; k < ids.size(); ++k) {
      if (pieces_[i] == kNamedTokens[k].text && ids[k] < 0) ids[k] = static_cast<TokenId>(i);
    }
  }
  std::vector<TokenId>& ends = special_.end_of_generation;
  for (size_t k = 0; k < ids.size(); ++k) {
    if (ids[k] < 0) continue;
    types_[static_cast<size_t>(ids[k])] = PieceType::kControl;
    if (kNamedTokens[k].ends_turn && !special_.eot) special_.eot = ids[k];
    if (kNamedTokens[k].ends_generation) ends.push_back(ids[k]);
  }
  if (special_.eos) ends.push_back(*special_.eos);
  if (special_.eot) ends.push_back(*special_.eot);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  DropMisnamedEnds();
}

// Names that end generation elsewhere, but not in models with certain other names. The file's own
// eos stays.
void VocabularyTokenizer::DropMisnamedEnds() {
  const auto id_of = [this](std::string_view text) {
    const auto found = std::find(pieces_.begin(), pieces_.end(), text);
    return found == pieces_.end() ? PieceIndex::kNone
                                  : static_cast<TokenId>(found - pieces_.begin());
  };
  for (const MisnamedEnd& row : kMisnamedEnds) {
    const TokenId id = id_of(row.text);
    if (id < 0 || special_.eos == id) continue;
    if (id_of(row.where) < 0 || (!row.and_where.empty() && id_of(row.and_where) < 0)) continue;
    std::erase(special_.end_of_generation, id);
  }
}

Status VocabularyTokenizer::BuildMatchers(const VocabularyKeys& keys, std::string_view pre,
                                          UserDefined user_defined) {
  std::vector<SpecialToken> special;
  size_t special_bytes = 0;
  index_ = PieceIndex(pieces_);
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const PieceType kind = type(id);
    if (kind != PieceType::kControl && kind != PieceType::kUnknown && kind != PieceType::kByte) {
      index_.Insert(id);
    }
    const bool cut_out = kind == PieceType::kControl || kind == PieceType::kUnknown ||
                         (kind == PieceType::kUserDefined && user_defined == UserDefined::kCutOut);
    if (cut_out) {
      special.push_back({.id = id, .text = piece(id), .control = kind != PieceType::kUserDefined});
      special_bytes += piece(id).size();
    }
  }
  if (special_bytes > kSpecialBytesMax) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} has {} bytes of special tokens, at most {} expected", keys.path(),
                     keys.Key("tokens"), special_bytes, kSpecialBytesMax);
  }
  MarkStripping(keys.file(), pre, special);
  std::vector<SpecialToken> not_control;
  std::copy_if(special.begin(), special.end(), std::back_inserter(not_control),
               [&](const SpecialToken& t) { return type(t.id) == PieceType::kUserDefined; });
  user_defined_ = SpecialTokenMatcher(std::move(not_control));
  all_special_ = SpecialTokenMatcher(std::move(special));
  return {};
}

Result<std::vector<TokenId>> VocabularyTokenizer::Encode(std::string_view text,
                                                         const EncodeOptions& options) const {
  KVANT_ASSIGN(Encoding out, EncodeAndCount(text, options));
  return std::move(out.ids);
}

Result<Encoding> VocabularyTokenizer::EncodeAndCount(std::string_view text,
                                                     const EncodeOptions& options) const {
  return EncodePieces(text, options, {});
}

Result<Encoding> VocabularyTokenizer::EncodeAround(std::string_view text,
                                                   std::span<const TextRange> plain) const {
  return EncodePieces(text, {.parse_special = true}, plain);
}

Result<Encoding> VocabularyTokenizer::EncodePieces(std::string_view text,
                                                   const EncodeOptions& options,
                                                   std::span<const TextRange> plain) const {
  if (text.size() > kTextBytesMax) {
    return MakeError(ErrorCode::kInvalid, "the text has {} bytes, at most {} can be tokenized",
                     text.size(), kTextBytesMax);
  }
  Encoding out;
  if (options.add_special && first_token_) out.ids.push_back(*first_token_);
  const SpecialTokenMatcher& matcher = options.parse_special ? all_special_ : user_defined_;
  for (const TextFragment& fragment : matcher.Split(text, plain)) {
    if (fragment.token != nullptr) {
      out.ids.push_back(fragment.token->id);
    } else {
      EncodeText(fragment.text, out);
    }
  }
  if (options.add_special && last_token_) out.ids.push_back(*last_token_);
  return out;
}

}  // namespace kvant
