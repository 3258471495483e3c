// Reading "tokenizer.ggml.*", and Encode's frame around the kind's own EncodeText.
//
// The names of end-of-turn and fill-in-the-middle tokens below follow llama.cpp, since many
// published files have no keys for them. A name counts where the file says that it is a control
// token, where its chat template writes the name (published files have the ends of turns as
// user-defined tokens), and where the file gives no types. Elsewhere it is text: "</s>" is an
// ordinary piece of Qwen 2.5 and a user-defined one of Gemma. No name changes a type that a file
// gives. Files of 2023 whose pieces are all called ordinary give none.
#include "engine/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "engine/tokenizer/token_flags.h"

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

// Converters write a model's missing id, -1, as a number of 32 bits.
bool MeansNone(const formats::GgufValue& value) {
  const auto* whole = std::get_if<uint64_t>(&value.value);
  const auto* with_sign = std::get_if<int64_t>(&value.value);
  return (whole != nullptr && *whole == std::numeric_limits<uint32_t>::max()) ||
         (with_sign != nullptr && *with_sign == -1);
}

// Cuts ranges to one range, and counts from its beginning.
std::vector<TextRange> PlainWithin(std::span<const TextRange> ranges, const TextRange& within) {
  std::vector<TextRange> out;
  for (const TextRange& range : ranges) {
    const size_t begin = std::max(range.begin, within.begin);
    const size_t end = std::min(range.end, within.end);
    if (begin < end) out.push_back({begin - within.begin, end - within.begin});
  }
  return out;
}

}  // namespace

Result<FoundId> ReadId(const VocabularyKeys& keys, const char* name, size_t tokens) {
  const formats::GgufValue* value = keys.Find(name);
  if (value == nullptr) return FoundId();
  if (MeansNone(*value)) {
    Log(LogLevel::kWarning,
        fmt::format("{}: {} is -1: the vocabulary has no such token", keys.path(), keys.Key(name)));
    return FoundId{.given = true};
  }
  KVANT_ASSIGN(const std::optional<uint32_t> id, keys.GetU32(name));
  if (*id >= tokens) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}, but the vocabulary has {} tokens",
                     keys.path(), keys.Key(name), *id, tokens);
  }
  return FoundId{.given = true, .id = static_cast<TokenId>(*id)};
}

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
  FindNamedTokens(keys.file());
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
    has_types_ = has_types_ || types_[i] != PieceType::kNormal;
  }
  return {};
}

Status VocabularyTokenizer::ReadSpecialIds(const VocabularyKeys& keys,
                                           const SpecialTokens& defaults) {
  special_ = defaults;
  for (const IdKey& entry : kIdKeys) {
    std::optional<TokenId>& id = special_.*entry.id;
    if (id && static_cast<size_t>(*id) >= pieces_.size()) id.reset();
    KVANT_ASSIGN(const FoundId found, ReadId(keys, entry.key, pieces_.size()));
    if (found.given) id = found.id;
  }
  for (const char* key : kEndKeys) {
    KVANT_ASSIGN(const FoundId found, ReadId(keys, key, pieces_.size()));
    if (found.id) special_.end_of_generation.push_back(*found.id);
  }
  KVANT_ASSIGN(const std::optional<bool> add_bos, keys.GetBool("add_bos_token"));
  KVANT_ASSIGN(const std::optional<bool> add_eos, keys.GetBool("add_eos_token"));
  // Ollama's files have several ends in a list.
  KVANT_TRY(ReadIdList(keys, "eos_token_ids", &special_.end_of_generation));
  KVANT_TRY(ReadIdList(keys, "suppress_tokens", &special_.suppressed));
  special_.add_bos = add_bos.value_or(defaults.add_bos);
  special_.add_eos = add_eos.value_or(defaults.add_eos);
  return {};
}

// Adds the ids of a list, where the file has one.
Status VocabularyTokenizer::ReadIdList(const VocabularyKeys& keys, const char* name,
                                       std::vector<TokenId>* ids) const {
  const formats::GgufValue* value = keys.Find(name);
  if (value == nullptr) return {};
  const auto* array = std::get_if<GgufArray>(&value->value);
  const bool is_ids =
      array != nullptr && (array->type == GgufType::kInt32 || array->type == GgufType::kUint32);
  if (!is_ids) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} is not a list of 32-bit ids", keys.path(),
                     keys.Key(name));
  }
  for (uint64_t i = 0; i < array->count; ++i) {
    uint32_t id = 0;
    std::memcpy(&id, array->data + i * sizeof id, sizeof id);
    if (id >= pieces_.size()) {
      return MakeError(ErrorCode::kCorrupt, "{}: {}[{}] is {}, but the vocabulary has {} tokens",
                       keys.path(), keys.Key(name), i, id, pieces_.size());
    }
    ids->push_back(static_cast<TokenId>(id));
  }
  return {};
}

void VocabularyTokenizer::FindNamedTokens(const GgufFile& file) {
  const auto found = file.GetString("tokenizer.chat_template");
  const std::string_view chat = found.ok() ? found->value_or("") : "";
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
  std::vector<TokenId> own = ends;  // by ids of the file, not by names
  if (special_.eos) own.push_back(*special_.eos);
  for (size_t k = 0; k < ids.size(); ++k) {
    if (ids[k] < 0) continue;
    PieceType& type = types_[static_cast<size_t>(ids[k])];
    if (!has_types_) type = PieceType::kControl;
    const bool in_chat = chat.find(kNamedTokens[k].text) != std::string_view::npos;
    if (type != PieceType::kControl && !in_chat) continue;
    if (kNamedTokens[k].ends_turn && !special_.eot) special_.eot = ids[k];
    if (kNamedTokens[k].ends_generation) ends.push_back(ids[k]);
  }
  if (special_.eos) ends.push_back(*special_.eos);
  if (special_.eot) ends.push_back(*special_.eot);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  DropMisnamedEnds(own);
}

// Names that end generation elsewhere, but not in models with certain other names. The file's own
// ids stay.
void VocabularyTokenizer::DropMisnamedEnds(const std::vector<TokenId>& own) {
  const auto id_of = [this](std::string_view text) {
    const auto found = std::find(pieces_.begin(), pieces_.end(), text);
    return found == pieces_.end() ? PieceIndex::kNone
                                  : static_cast<TokenId>(found - pieces_.begin());
  };
  for (const MisnamedEnd& row : kMisnamedEnds) {
    const TokenId id = id_of(row.text);
    if (id < 0 || std::find(own.begin(), own.end(), id) != own.end()) continue;
    if (id_of(row.where) < 0 || (!row.and_where.empty() && id_of(row.and_where) < 0)) continue;
    std::erase(special_.end_of_generation, id);
  }
}

Status VocabularyTokenizer::BuildMatchers(const VocabularyKeys& keys, std::string_view pre,
                                          UserDefined user_defined) {
  KVANT_ASSIGN(const TokenFlags flags, TokenFlags::Read(keys, pre, pieces_.size()));
  std::vector<SpecialToken> special;
  size_t special_bytes = 0;
  index_ = PieceIndex(pieces_);
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const PieceType kind = type(id);
    const bool of_users = kind == PieceType::kUserDefined;
    // Text may hold the names of such tokens, which are no tokens there.
    const bool in_places_only = of_users && (flags.Has(TokenFlag::kSingleWord, id) ||
                                             flags.Has(TokenFlag::kNormalized, id));
    if (kind != PieceType::kControl && kind != PieceType::kUnknown && kind != PieceType::kByte &&
        !in_places_only) {
      index_.Insert(id);
    }
    const bool cut_out = kind == PieceType::kControl || kind == PieceType::kUnknown ||
                         (of_users && (user_defined == UserDefined::kCutOut || flags.HasAny(id)));
    if (cut_out) {
      special.push_back({.id = id, .text = piece(id), .control = !of_users});
      flags.Mark(special.back());
      special_bytes += piece(id).size();
    }
  }
  if (special_bytes > kSpecialBytesMax) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} has {} bytes of special tokens, at most {} expected", keys.path(),
                     keys.Key("tokens"), special_bytes, kSpecialBytesMax);
  }
  std::vector<SpecialToken> not_control;
  std::copy_if(special.begin(), special.end(), std::back_inserter(not_control),
               [&](const SpecialToken& t) { return type(t.id) == PieceType::kUserDefined; });
  user_defined_ = MakeMatchers(not_control, flags);
  all_special_ = MakeMatchers(special, flags);
  return {};
}

VocabularyTokenizer::Matchers VocabularyTokenizer::MakeMatchers(
    const std::vector<SpecialToken>& tokens, const TokenFlags& flags) {
  std::vector<SpecialToken> first;
  std::vector<SpecialToken> normalized;
  for (const SpecialToken& token : tokens) {
    if (!flags.Has(TokenFlag::kNormalized, token.id)) {
      first.push_back(token);
      continue;
    }
    normalized.push_back(token);
    normalized.back().text = spelt_.emplace_back(Normalized(token.text));
  }
  const bool has_normalized = !normalized.empty();
  return {SpecialTokenMatcher(std::move(first)), SpecialTokenMatcher(std::move(normalized)),
          has_normalized};
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

// Encodes a text without tokens of the first step. `plain`: its ranges in the text.
void VocabularyTokenizer::EncodeFragment(std::string_view text,
                                         const SpecialTokenMatcher& normalized,
                                         std::span<const TextRange> plain, Encoding& out) const {
  const std::string changed = Normalized(text);
  // A place in the text is where the normalized text of what stands before it ends.
  std::vector<TextRange> changed_plain;
  for (const TextRange& range : plain) {
    changed_plain.push_back(
        {std::min(Normalized(text.substr(0, range.begin)).size(), changed.size()),
         std::min(Normalized(text.substr(0, range.end)).size(), changed.size())});
  }
  for (const TextFragment& fragment : normalized.Split(changed, changed_plain)) {
    if (fragment.token != nullptr) {
      out.ids.push_back(fragment.token->id);
    } else {
      EncodeNormalized(fragment.text, out);
    }
  }
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
  const Matchers& matchers = options.parse_special ? all_special_ : user_defined_;
  for (const TextFragment& fragment : matchers.first.Split(text, plain)) {
    if (fragment.token != nullptr) {
      out.ids.push_back(fragment.token->id);
    } else if (!matchers.has_normalized) {
      EncodeText(fragment.text, out);
    } else {
      const auto begin = static_cast<size_t>(fragment.text.data() - text.data());
      EncodeFragment(fragment.text, matchers.normalized,
                     PlainWithin(plain, {begin, begin + fragment.text.size()}), out);
    }
  }
  if (options.add_special && last_token_) out.ids.push_back(*last_token_);
  return out;
}

}  // namespace kvant
