#include "engine/convert/translator_vocabulary.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/result.h"
#include "engine/convert/precompiled_table.h"
#include "engine/convert/tokenizer_json.h"
#include "engine/convert/unigram_vocabulary.h"
#include "engine/tokenizer/kinds.h"
#include "engine/tokenizer/vocabulary_keys.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using arch::HfShape;
using arch::HfTranslator;
using formats::Json;
using formats::Quoted;
using Piece = Vocabulary::Type;

constexpr uint64_t kListBytesMax = uint64_t{64} << 20;  // real ones have up to 4 MB

bool HasFile(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Whether the folder has a file, or what stands in for it.
bool HasListFile(const FolderConfig& config, std::string_view name) {
  return config.stand_ins.contains(name) || HasFile(PathIn(config.folder, name));
}

Result<Vocabulary> ReadPieces(const std::string& path) {
  KVANT_ASSIGN(const auto model, formats::ReadSentencePiece(path));
  return PiecesVocabulary(model, path);
}

// A token that texts cannot do without, by the name that the folder gives to it.
Status PlaceNeeded(const FolderConfig& config, std::string_view name, std::string_view usual,
                   const std::string& path, std::optional<int32_t>* id, Vocabulary& list) {
  const std::string key = fmt::format("{}_token", name);
  std::string text(usual);
  for (const JsonObject* object : {&config.tokenizer, &config.special_tokens}) {
    const Json* value = object->Find(key);
    if (value == nullptr) continue;
    text = value->is_string() ? value->get<std::string>()
                              : formats::JsonText(*value, "content", usual);
    break;
  }
  *id = list.Find(text);
  if (!*id) {
    return MakeError(ErrorCode::kCorrupt, "{}: expected the token {} in it, found none", path,
                     Quoted(text));
  }
  const bool unknown = name == "unk";
  list.types[static_cast<size_t>(**id)] = unknown ? Piece::kUnknown : Piece::kControl;
  return {};
}

// vocab.json: {"text": id}.
Result<Vocabulary> ReadList(const FolderConfig& config, const std::string& path, int64_t vocab) {
  const auto stand_in = config.stand_ins.find(std::filesystem::path(path).filename().string());
  const bool has_stand_in = stand_in != config.stand_ins.end();
  Json tokens;
  if (has_stand_in) {
    tokens = *stand_in->second;
  } else {
    KVANT_ASSIGN(tokens, formats::ReadJson(path, kListBytesMax));
  }
  if (!tokens.is_object() || tokens.empty()) {
    return MakeError(ErrorCode::kCorrupt, "{}: expected an object of tokens and their ids", path);
  }
  KVANT_ASSIGN(const IdList ids, ReadIdList(tokens, path, vocab));
  Vocabulary list = EmptyVocabulary(kMarianKind, vocab);
  for (const auto& [text, id] : ids) {
    list.tokens[static_cast<size_t>(id)] = text;
    list.types[static_cast<size_t>(id)] = Piece::kNormal;
  }
  KVANT_TRY(PlaceNeeded(config, "eos", "</s>", path, &list.eos, list));
  KVANT_TRY(PlaceNeeded(config, "unk", "<unk>", path, &list.unk, list));
  KVANT_TRY(PlaceNeeded(config, "pad", "<pad>", path, &list.pad, list));
  list.add_bos = false;
  list.add_eos = true;
  return list;
}

// Tokens that the folder calls special without a place of their own.
void MarkAdditional(const FolderConfig& config, Vocabulary& list) {
  for (const JsonObject* object : {&config.tokenizer, &config.special_tokens}) {
    const Json* texts = object->Find("additional_special_tokens");
    if (texts == nullptr || !texts->is_array()) continue;
    for (const Json& entry : *texts) {
      const std::string text =
          entry.is_string() ? entry.get<std::string>() : formats::JsonText(entry, "content");
      const auto id = text.empty() ? std::nullopt : list.Find(text);
      if (id) list.types[static_cast<size_t>(*id)] = Piece::kControl;
    }
  }
}

bool IsCode(std::string_view text) {
  return text.size() > 4 && text.starts_with(">>") && text.ends_with("<<");
}

Result<std::optional<TranslatorVocabulary>> ReadSourceAndTarget(const FolderConfig& config,
                                                                const HfShape& shape) {
  const auto path = [&](std::string_view name) { return PathIn(config.folder, name); };
  const std::string list_path = path("vocab.json");
  if (!HasFile(path("source.spm")) && !HasListFile(config, "vocab.json")) {
    return std::optional<TranslatorVocabulary>();
  }
  TranslatorVocabulary out;
  const int64_t source_vocab = shape.source_vocab > 0 ? shape.source_vocab : shape.vocab;
  KVANT_ASSIGN(out.list, ReadList(config, list_path, source_vocab));
  out.list.pre = kMarianKind;
  KVANT_ASSIGN(out.pieces, ReadPieces(path("source.spm")));
  KVANT_ASSIGN(out.target_pieces, ReadPieces(path("target.spm")));
  const std::string target_path = path("target_vocab.json");
  KVANT_ASSIGN(const auto separate, config.tokenizer.Bool("separate_vocabs"));
  if (separate.value_or(shape.source_vocab > 0 && HasListFile(config, "target_vocab.json"))) {
    KVANT_ASSIGN(out.target_list, ReadList(config, target_path, shape.vocab));
    out.target_list->pre = kMarianKind;
  }
  KVANT_TRY(PlaceLaterTokens(config.folder, config.tokenizer, out.list));
  MarkAdditional(config, out.list);
  for (size_t id = 0; id < out.list.tokens.size(); ++id) {
    const bool is_language = out.list.types[id] != Piece::kUnused && IsCode(out.list.tokens[id]);
    if (is_language) out.languages.push_back(static_cast<int32_t>(id));
  }
  out.source_place = "none";
  out.target_place = "source";
  return std::optional<TranslatorVocabulary>(std::move(out));
}

// Places a token that stands for a language, if there is room for it.
void PlaceLanguage(std::string text, size_t id, TranslatorVocabulary& out) {
  if (id >= out.list.tokens.size()) return;
  out.list.tokens[id] = std::move(text);
  out.list.types[id] = Piece::kControl;
}

Status FindSourceLanguage(const FolderConfig& config, std::string_view usual,
                          std::string_view (*bare)(std::string_view), TranslatorVocabulary& out) {
  KVANT_ASSIGN(const auto named, config.tokenizer.String("src_lang"));
  for (const std::string& wanted : {named.value_or(""), std::string(usual)}) {
    for (const int32_t id : out.languages) {
      if (bare(out.list.tokens[static_cast<size_t>(id)]) == wanted) out.source_language = id;
    }
    if (out.source_language) return {};
  }
  return {};
}

std::string_view BareCode(std::string_view text) {
  return text.starts_with("__") && text.ends_with("__") && text.size() > 4
             ? text.substr(2, text.size() - 4)
             : text;
}

// M2M-100: the ids of the languages follow the ids of the list.
Result<TranslatorVocabulary> ReadListAndCodes(const FolderConfig& config,
                                              const HfTranslator& translator, int64_t vocab) {
  TranslatorVocabulary out;
  const std::string list_path = PathIn(config.folder, "vocab.json");
  KVANT_ASSIGN(out.list, ReadList(config, list_path, vocab));
  out.list.pre = kPlainPiecesPre;
  if (const auto bos = out.list.Find("<s>")) {
    out.list.bos = bos;
    out.list.types[static_cast<size_t>(*bos)] = Piece::kControl;
  }
  const std::string pieces_path = FindSentencePieceFile(config.folder);
  if (pieces_path.empty()) {
    return MakeError(ErrorCode::kIo, "{}: expected sentencepiece.bpe.model beside vocab.json",
                     config.folder);
  }
  KVANT_ASSIGN(out.pieces, ReadPieces(pieces_path));
  KVANT_ASSIGN(const auto set, config.tokenizer.String("language_codes"));
  const auto codes =
      set.value_or("") == translator.other_set ? translator.other_codes : translator.codes;
  const auto listed =
      static_cast<size_t>(std::count_if(out.list.types.begin(), out.list.types.end(),
                                        [](Piece type) { return type != Piece::kUnused; }));
  if (listed + codes.size() > out.list.tokens.size()) {
    Log(LogLevel::kWarning,
        fmt::format("{}: {} tokens and {} languages behind them are more than the {} tokens of "
                    "config.json: some languages are left out",
                    list_path, listed, codes.size(), out.list.tokens.size()));
  }
  size_t next = listed;
  for (const std::string_view code : codes) {
    PlaceLanguage(fmt::format("__{}__", code), next++, out);
  }
  KVANT_TRY(PlaceLaterTokens(config.folder, config.tokenizer, out.list));
  MarkAdditional(config, out.list);
  for (const std::string_view code : codes) {
    if (const auto id = out.list.Find(fmt::format("__{}__", code))) out.languages.push_back(*id);
  }
  KVANT_TRY(FindSourceLanguage(config, translator.usual_code, BareCode, out));
  return out;
}

// Whether a folder's own lists say where the languages stand.
bool NamesLanguages(const FolderConfig& config, std::span<const AddedToken> added,
                    std::span<const std::string_view> languages) {
  const auto is_language = [&](std::string_view text) {
    return std::find(languages.begin(), languages.end(), text) != languages.end();
  };
  if (std::any_of(added.begin(), added.end(),
                  [&](const AddedToken& token) { return is_language(token.text); })) {
    return true;
  }
  const Json* decoder = config.tokenizer.Find("added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return false;
  return std::any_of(decoder->begin(), decoder->end(), [&](const Json& token) {
    return is_language(formats::JsonText(token, "content"));
  });
}

// fairseq's order: four tokens, the pieces from the fourth on, languages, <mask>.
Status PlaceInOrder(const std::string& path, int64_t vocab,
                    std::span<const std::string_view> languages, TranslatorVocabulary& out) {
  constexpr std::array<std::string_view, 4> kFirst = {"<s>", "<pad>", "</s>", "<unk>"};
  const size_t pieces = out.pieces.tokens.size();
  if (static_cast<int64_t>(pieces) + 1 > vocab || pieces < 3) {
    return MakeError(
        ErrorCode::kCorrupt,
        "{}: {} pieces and a token more, but config.json says that there are {} tokens", path,
        pieces, vocab);
  }
  out.list = EmptyVocabulary(kMarianKind, vocab);
  for (size_t i = 0; i < 3; ++i) {
    const Piece type = out.pieces.types[i];
    if (type == Piece::kUnknown || type == Piece::kControl) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{}: piece {} is not one of <unk>, <s> and </s>, which fairseq's order of ids "
                     "replaces",
                     path, i);
  }
  for (size_t id = 0; id < kFirst.size(); ++id) {
    out.list.tokens[id] = kFirst[id];
    out.list.types[id] = id == 3 ? Piece::kUnknown : Piece::kControl;
  }
  for (size_t i = 3; i < pieces; ++i) {
    out.list.tokens[i + 1] = out.pieces.tokens[i];
    const Piece type = out.pieces.types[i];
    // Bytes are no text to this class.
    out.list.types[i + 1] = type == Piece::kControl ? type : Piece::kNormal;
  }
  size_t next = pieces + 1;
  for (const std::string_view language : languages)
    PlaceLanguage(std::string(language), next++, out);
  if (!languages.empty()) PlaceLanguage("<mask>", next, out);
  return {};
}

// tokenizer.json alone: its merges in their order are the scores of the pieces.
Status TakeJson(const TokenizerJson& json, int64_t vocab, TranslatorVocabulary& out) {
  Vocabulary ranked = RankedVocabulary(json, vocab);
  KVANT_ASSIGN(ranked.charsmap, PrecompiledTable(json.root));
  ranked.add_space_prefix = true;
  ranked.remove_extra_whitespaces = true;
  out.list = EmptyVocabulary(kMarianKind, vocab);
  out.list.tokens = ranked.tokens;
  out.list.types = ranked.types;
  out.pieces = std::move(ranked);
  return {};
}

// NLLB.
Result<std::optional<TranslatorVocabulary>> ReadInOrder(const FolderConfig& config,
                                                        const HfTranslator& translator,
                                                        int64_t vocab) {
  const std::string pieces_path = FindSentencePieceFile(config.folder);
  const std::string json_path = PathIn(config.folder, "tokenizer.json");
  std::optional<JsonObject> json;
  if (HasFile(json_path)) {
    KVANT_ASSIGN(json, JsonObject::Read(json_path));
  }
  TranslatorVocabulary out;
  std::vector<AddedToken> added;
  if (!pieces_path.empty()) {
    KVANT_ASSIGN(out.pieces, ReadPieces(pieces_path));
    if (json) {
      KVANT_ASSIGN(added, TokenizerJson::AddedTokens(*json, vocab));
    }
    const bool named = NamesLanguages(config, added, translator.fairseq_languages);
    KVANT_TRY(PlaceInOrder(
        pieces_path, vocab,
        named ? std::span<const std::string_view>() : translator.fairseq_languages, out));
  } else if (json && HasSpacePieces(*json)) {
    KVANT_ASSIGN(const TokenizerJson tokenizer, TokenizerJson::FromObject(*json, vocab));
    added = tokenizer.added;
    KVANT_TRY(TakeJson(tokenizer, vocab, out));
  } else {
    return std::optional<TranslatorVocabulary>();
  }
  out.list.pre = kMaskedPiecesPre;
  for (const AddedToken& token : added) PlaceAddedToken(token, out.list);
  KVANT_TRY(PlaceLaterTokens(config.folder, config.tokenizer, out.list));
  MarkAdditional(config, out.list);
  const std::string& path = pieces_path.empty() ? json_path : pieces_path;
  KVANT_TRY(PlaceNeeded(config, "eos", "</s>", path, &out.list.eos, out.list));
  KVANT_TRY(PlaceNeeded(config, "unk", "<unk>", path, &out.list.unk, out.list));
  KVANT_TRY(PlaceNeeded(config, "pad", "<pad>", path, &out.list.pad, out.list));
  out.list.bos = out.list.Find("<s>");
  out.list.add_bos = false;
  out.list.add_eos = true;
  for (const std::string_view language : translator.fairseq_languages) {
    const auto id = out.list.Find(language);
    if (id && out.list.types[static_cast<size_t>(*id)] == Piece::kControl) {
      out.languages.push_back(*id);
    }
  }
  KVANT_TRY(FindSourceLanguage(
      config, translator.usual_language, [](std::string_view text) { return text; }, out));
  return std::optional<TranslatorVocabulary>(std::move(out));
}

void AddPieces(const Vocabulary& pieces, std::string_view prefix, formats::GgufWriter& writer) {
  const std::string place = fmt::format("{}{}", prefix, kPiecesSuffix);
  pieces.AddTo(writer, place);
  if (!pieces.unk) return;
  writer.AddU32(place + ".unknown_token_id", static_cast<uint32_t>(*pieces.unk));
}

}  // namespace

Result<Vocabulary> PiecesVocabulary(const formats::SentencePieceModel& model,
                                    const std::string& file) {
  const auto size = static_cast<int64_t>(model.pieces.size());
  if (model.kind == formats::SentencePieceModel::Kind::kUnigram) {
    return UnigramVocabulary(model, file, {.vocab_size = size});
  }
  KVANT_TRY(CheckPieceSettings(model, file));
  KVANT_ASSIGN(auto vocabulary, SentencePieceVocabulary(model, file, size));
  vocabulary.remove_extra_whitespaces = model.remove_extra_whitespaces;
  vocabulary.charsmap.assign(model.charsmap.begin(), model.charsmap.end());
  return vocabulary;
}

void TranslatorVocabulary::AddTo(arch::Parameters& out) const {
  formats::GgufWriter& writer = *out.writer;
  AddPieces(pieces, kVocabularyPrefix, writer);
  if (target_pieces) AddPieces(*target_pieces, kTargetVocabularyPrefix, writer);
  if (target_list) {
    target_list->AddTo(writer, kTargetVocabularyPrefix);
    const auto add = [&](std::string_view name, std::optional<int32_t> id) {
      if (!id) return;
      writer.AddU32(fmt::format("{}.{}_token_id", kTargetVocabularyPrefix, name),
                    static_cast<uint32_t>(*id));
    };
    add("eos", target_list->eos);
    add("unknown", target_list->unk);
    add("padding", target_list->pad);
  }
  if (languages.empty()) return;
  writer.AddI32s(out.Key("languages"), languages);
  writer.AddString(out.Key("source_language"), std::string(source_place));
  writer.AddString(out.Key("target_language"), std::string(target_place));
  if (!source_language) return;
  writer.AddU32(out.Key("usual_source_language"), static_cast<uint32_t>(*source_language));
}

Result<std::optional<TranslatorVocabulary>> ReadTranslatorVocabulary(const FolderConfig& config,
                                                                     const HfTranslator& translator,
                                                                     const HfShape& shape) {
  if (translator.files == arch::TranslatorFiles::kNone) {
    return std::optional<TranslatorVocabulary>();
  }
  if (translator.files == arch::TranslatorFiles::kSourceAndTarget) {
    return ReadSourceAndTarget(config, shape);
  }
  std::optional<TranslatorVocabulary> out;
  if (HasListFile(config, "vocab.json")) {
    KVANT_ASSIGN(out, ReadListAndCodes(config, translator, shape.vocab));
  } else {
    KVANT_ASSIGN(out, ReadInOrder(config, translator, shape.vocab));
  }
  if (!out) return out;
  KVANT_ASSIGN(const auto legacy, config.tokenizer.Bool("legacy_behaviour"));
  out->source_place = legacy.value_or(false) ? "behind" : "before";
  out->target_place = "forced";
  return out;
}

}  // namespace kvant::convert
