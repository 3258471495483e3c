#include "engine/convert/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/log.h"
#include "base/result.h"
#include "engine/convert/metaspace_vocabulary.h"
#include "engine/convert/pre_tokenizer_name.h"
#include "engine/convert/rwkv_vocabulary.h"
#include "engine/convert/space_handling.h"
#include "engine/convert/speech_vocabulary.h"
#include "engine/convert/text_frame.h"
#include "engine/convert/unigram_json.h"
#include "engine/convert/unigram_vocabulary.h"
#include "engine/convert/wordpiece_vocabulary.h"
#include "engine/tokenizer/kinds.h"
#include "engine/tokenizer/token_flags.h"
#include "engine/tokenizer/vocabulary_keys.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonFlag;
using formats::JsonText;
using formats::Quoted;
using formats::SentencePieceModel;
using Type = Vocabulary::Type;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// The score that llama.cpp's converter gives to tokens added later.
constexpr float kAddedScore = -1000;

constexpr std::string_view kSentencePieceFiles[] = {"tokenizer.model", "spiece.model",
                                                    "sentencepiece.bpe.model"};
constexpr int64_t kExtraIdsMax = 100000;  // real models have up to 300

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t i = text.find(from); i != std::string::npos; i = text.find(from, i + to.size())) {
    text.replace(i, from.size(), to);
  }
  return text;
}

// Tokens that some folders forget to mark as special. The list is llama.cpp's.
bool LooksSpecial(std::string_view text) {
  const auto between = [&](std::string_view left, std::string_view right) {
    return text.starts_with(left) && text.ends_with(right);
  };
  return text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
         between("<|", "|>") || between("<｜", "｜>") || between("<unused", ">");
}

bool IsByteToken(std::string_view text) {
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  return text.size() == 6 && text.starts_with("<0x") && is_hex(text[3]) && is_hex(text[4]) &&
         text[5] == '>';
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

void WarnOfTokenBeyond(const std::string& where, std::string_view text, size_t tokens) {
  Log(LogLevel::kWarning, fmt::format("{}: token {} is left out: its id is beyond the {} tokens of "
                                      "config.json",
                                      where, Quoted(text), tokens));
}

// added_tokens.json: {"text": id}, from before tokenizer.json.
Status PlaceAddedTokensFile(const std::string& path, Vocabulary& vocabulary) {
  if (!Exists(path)) return {};
  KVANT_ASSIGN(const Json tokens, formats::ReadJson(path, uint64_t{64} << 20));
  if (!tokens.is_object()) {
    return MakeError(ErrorCode::kCorrupt, "{}: expected an object of tokens and ids", path);
  }
  for (const auto& [text, id] : tokens.items()) {
    if (!id.is_number_unsigned()) {
      return MakeError(ErrorCode::kCorrupt, "{}: token {} has the id {}", path, Quoted(text),
                       formats::Shown(id));
    }
    if (id.get<uint64_t>() >= vocabulary.tokens.size()) {
      WarnOfTokenBeyond(path, text, vocabulary.tokens.size());
      continue;
    }
    PlaceAddedToken({id.get<int64_t>(), text, false}, vocabulary);
  }
  return {};
}

// "added_tokens_decoder" of tokenizer_config.json: {"id": {"content", "special"}}.
Status PlaceDecoderTokens(const JsonObject& tokenizer_config, Vocabulary& vocabulary) {
  constexpr const char* kKey = "added_tokens_decoder";
  KVANT_ASSIGN(const auto decoder, tokenizer_config.Object(kKey));
  if (!decoder) return {};
  for (const auto& [key, token] : tokenizer_config.Find(kKey)->items()) {
    uint64_t id = 0;
    const char* end = key.data() + key.size();
    const bool is_id = std::from_chars(key.data(), end, id).ptr == end && !key.empty();
    const std::string text = JsonText(token, "content");
    if (!is_id || text.empty()) {
      return MakeError(ErrorCode::kCorrupt, "{}: {} is {}, expected an id and its content",
                       decoder->where(), Quoted(key), formats::Shown(token));
    }
    if (id >= vocabulary.tokens.size()) {
      WarnOfTokenBeyond(decoder->where(), text, vocabulary.tokens.size());
      continue;
    }
    PlaceAddedToken(
        {static_cast<int64_t>(id), text, JsonFlag(token, "special", false), ReadTokenFlags(token)},
        vocabulary);
  }
  return {};
}

std::optional<int32_t> ValidId(int32_t id, size_t tokens) {
  if (id < 0 || static_cast<size_t>(id) >= tokens) return std::nullopt;
  return id;
}

}  // namespace

void PlaceTokens(const TokenizerJson& tokenizer, Vocabulary& vocabulary) {
  for (const auto& [text, id] : tokenizer.vocab) {
    const auto i = static_cast<size_t>(id);
    vocabulary.tokens[i] = text;
    vocabulary.types[i] = Type::kNormal;
    if (tokenizer.is_sentencepiece() && IsByteToken(text)) vocabulary.types[i] = Type::kByte;
    const bool has_unknown = vocabulary.model != kByteLevelBpeKind;
    if (has_unknown && text == tokenizer.unk_token) vocabulary.types[i] = Type::kUnknown;
  }
  for (const AddedToken& token : tokenizer.added) PlaceAddedToken(token, vocabulary);
  if (!tokenizer.unk_token.empty()) vocabulary.unk = vocabulary.Find(tokenizer.unk_token);
}

void PlaceAddedToken(const AddedToken& token, Vocabulary& vocabulary) {
  const auto id = static_cast<size_t>(token.id);
  Type& type = vocabulary.types[id];
  const bool is_new = vocabulary.tokens[id] != token.text;
  AddedTokenFlags& flags = vocabulary.flags[token.id];
  const bool is_added = is_new || flags.cut_out;
  flags = token.flags;
  vocabulary.tokens[id] = token.text;
  if (is_new && !vocabulary.scores.empty()) vocabulary.scores[id] = kAddedScore;
  if (type == Type::kUnknown && !is_new) return;
  if (token.special || LooksSpecial(token.text)) {
    type = Type::kControl;
  } else {
    // User-defined tokens are found in the text as it is, with plain spaces.
    type = Type::kUserDefined;
    vocabulary.tokens[id] = Replaced(token.text, kSpace, " ");
    flags.cut_out = is_added && vocabulary.model == kUnigramKind;
  }
}

Status PlaceLaterTokens(const std::string& folder, const JsonObject& tokenizer_config,
                        Vocabulary& vocabulary) {
  KVANT_TRY(PlaceAddedTokensFile(PathIn(folder, "added_tokens.json"), vocabulary));
  return PlaceDecoderTokens(tokenizer_config, vocabulary);
}

std::string FindSentencePieceFile(const std::string& folder) {
  for (const std::string_view name : kSentencePieceFiles) {
    std::string path = PathIn(folder, name);
    if (Exists(path)) return path;
  }
  return "";
}

std::string PathIn(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

Vocabulary EmptyVocabulary(std::string_view model, int64_t vocab_size) {
  Vocabulary vocabulary;
  vocabulary.model = model;
  for (int64_t id = 0; id < vocab_size; ++id)
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
  vocabulary.types.assign(vocabulary.tokens.size(), Type::kUnused);
  return vocabulary;
}

std::optional<int32_t> Vocabulary::Find(std::string_view text) const {
  const auto found = std::find(tokens.begin(), tokens.end(), text);
  if (found == tokens.end()) return std::nullopt;
  return static_cast<int32_t>(found - tokens.begin());
}

void Vocabulary::AddTo(formats::GgufWriter& writer, std::string_view prefix) const {
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", prefix, name); };
  writer.AddString(key("model"), model);
  writer.AddString(key("pre"), pre);
  writer.AddStrings(key("tokens"), tokens);
  if (!scores.empty()) writer.AddF32s(key("scores"), scores);
  std::vector<int32_t> numbers;
  for (const Type type : types) numbers.push_back(static_cast<int32_t>(type));
  writer.AddI32s(key("token_type"), numbers);
  // Vocabularies of both kinds may have no merges, but readers want the list.
  const bool is_listed = model == kByteLevelBpeKind || model == kGemma4Kind;
  if (is_listed) writer.AddStrings(key("merges"), merges);
  if (add_space_prefix) writer.AddBool(key("add_space_prefix"), *add_space_prefix);
  if (remove_extra_whitespaces) {
    writer.AddBool(key("remove_extra_whitespaces"), *remove_extra_whitespaces);
  }
  if (!charsmap.empty()) writer.AddU8s(key("precompiled_charsmap"), charsmap);
  if (lower_case) writer.AddBool(key("normalizer.lowercase"), *lower_case);
  if (strip_accents) writer.AddBool(key("normalizer.strip_accents"), *strip_accents);
  if (model != kMarianKind && prefix == kVocabularyPrefix) AddFlagsTo(writer);
}

void Vocabulary::AddFlagsTo(formats::GgufWriter& writer) const {
  constexpr bool AddedTokenFlags::*kFlags[kTokenFlagKeys.size()] = {
      &AddedTokenFlags::strip_left, &AddedTokenFlags::strip_right, &AddedTokenFlags::single_word,
      &AddedTokenFlags::normalized, &AddedTokenFlags::cut_out};
  for (size_t i = 0; i < kTokenFlagKeys.size(); ++i) {
    std::vector<int32_t> ids;
    for (const auto& [id, flags_of_token] : flags) {
      if (flags_of_token.*kFlags[i]) ids.push_back(static_cast<int32_t>(id));
    }
    if (!ids.empty()) writer.AddI32s(std::string(kTokenFlagKeys[i]), ids);
  }
  const auto add = [&](std::string_view key, bool holds) {
    if (holds) writer.AddBool(std::string(key), true);
  };
  add(kNormalizerSpellsKey, normalizer_spells_spaces);
  add(kPrefixUnlessSpaceKey, prefix_unless_space);
  add(kBytePiecesMatchKey, byte_pieces_match);
  add(kFusesUnknownKey, fuses_unknown);
}

Result<Vocabulary> ByteLevelVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size) {
  Vocabulary vocabulary = EmptyVocabulary(kByteLevelBpeKind, vocab_size);
  KVANT_ASSIGN(vocabulary.pre, PreTokenizerName(tokenizer));
  PlaceTokens(tokenizer, vocabulary);
  for (const auto& [left, right] : tokenizer.merges) {
    // GGUF separates the parts by a space, so one within a part is written as the letter that
    // stands for it in byte-level vocabularies.
    vocabulary.merges.push_back(Replaced(left, " ", "Ġ") + " " + Replaced(right, " ", "Ġ"));
  }
  ReadTextFrame(tokenizer.root, vocabulary);
  return vocabulary;
}

Result<Vocabulary> SentencePieceVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size) {
  KVANT_ASSIGN(const SpaceHandling spaces, ReadSpaceHandling(tokenizer));
  Vocabulary vocabulary = RankedVocabulary(tokenizer, vocab_size);
  vocabulary.add_space_prefix = spaces.adds_prefix;
  ReadTextFrame(tokenizer.root, vocabulary);
  return vocabulary;
}

Vocabulary RankedVocabulary(const TokenizerJson& tokenizer, int64_t vocab_size) {
  Vocabulary vocabulary = EmptyVocabulary(kSentencePieceKind, vocab_size);
  vocabulary.pre = "default";
  PlaceTokens(tokenizer, vocabulary);
  // The text of a merge is its token, and of equal texts the first merge is the one that happens.
  std::unordered_map<std::string, size_t> ranks;
  for (size_t rank = 0; rank < tokenizer.merges.size(); ++rank) {
    ranks.emplace(tokenizer.merges[rank].first + tokenizer.merges[rank].second, rank);
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    float score = 0;
    if (vocabulary.types[id] == Type::kUnused) score = kPaddingScore;
    if (vocabulary.types[id] == Type::kNormal) {
      // A token that no merge makes comes after all merges, in the order of the ids.
      const auto rank = ranks.find(vocabulary.tokens[id]);
      score =
          -static_cast<float>(rank != ranks.end() ? rank->second : tokenizer.merges.size() + id);
    }
    vocabulary.scores.push_back(score);
  }
  return vocabulary;
}

Result<Vocabulary> SentencePieceVocabulary(const SentencePieceModel& model, const std::string& file,
                                           int64_t vocab_size) {
  if (model.kind != SentencePieceModel::Kind::kBpe) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: SentencePiece model type {} cannot be converted, expected 2 (BPE)", file,
                     static_cast<int32_t>(model.kind));
  }
  if (static_cast<int64_t>(model.pieces.size()) > vocab_size) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} pieces, but config.json says that there are {} tokens", file,
                     model.pieces.size(), vocab_size);
  }
  Vocabulary vocabulary = EmptyVocabulary(kSentencePieceKind, vocab_size);
  vocabulary.pre = "default";
  vocabulary.scores.assign(vocabulary.tokens.size(), kPaddingScore);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    vocabulary.tokens[id] = model.pieces[id].text;
    vocabulary.types[id] = model.pieces[id].type;
    vocabulary.scores[id] = model.pieces[id].score;
  }
  vocabulary.add_space_prefix = model.add_dummy_prefix;
  vocabulary.bos = ValidId(model.bos_id, model.pieces.size());
  vocabulary.eos = ValidId(model.eos_id, model.pieces.size());
  vocabulary.unk = ValidId(model.unk_id, model.pieces.size());
  vocabulary.pad = ValidId(model.pad_id, model.pieces.size());
  return vocabulary;
}

// Tokens of Gemma 4 that a chat's reader wants to see, which the folder calls special.
constexpr std::string_view kVisibleTokens[] = {
    "<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
    "<|tool_response>", "<tool_response|>", "<|\"|>"};

Result<Vocabulary> Gemma4Vocabulary(const TokenizerJson& tokenizer, int64_t vocab_size) {
  Vocabulary vocabulary = EmptyVocabulary(kGemma4Kind, vocab_size);
  vocabulary.pre = kGemma4Kind;
  KVANT_TRY(ReadSpaceHandling(tokenizer));
  vocabulary.add_space_prefix = false;
  PlaceTokens(tokenizer, vocabulary);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const bool visible =
        std::ranges::find(kVisibleTokens, vocabulary.tokens[id]) != std::end(kVisibleTokens);
    if (visible) vocabulary.types[id] = Type::kUserDefined;
  }
  for (const auto& [left, right] : tokenizer.merges) {
    vocabulary.merges.push_back(left + " " + right);
  }
  ReadTextFrame(tokenizer.root, vocabulary);
  vocabulary.add_bos = true;
  return vocabulary;
}

namespace {

// T5's tokenizer adds 100 tokens unless its settings say otherwise, and folders with fewer ids than
// that have none.
Result<int64_t> ExtraIds(const JsonObject& tokenizer_config, int64_t pieces, int64_t vocab_size) {
  KVANT_ASSIGN(const auto count, tokenizer_config.Integer("extra_ids", kExtraIdsMax));
  KVANT_ASSIGN(const auto name, tokenizer_config.String("tokenizer_class"));
  const bool is_t5 = name.value_or("").starts_with("T5Tokenizer");
  const int64_t extra = count.value_or(is_t5 ? 100 : 0);
  return pieces + extra <= vocab_size ? extra : 0;
}

// The pieces of SentencePiece's file, of either kind.
Result<Vocabulary> ReadPiecesFile(const std::string& path, const JsonObject& tokenizer_config,
                                  int64_t vocab_size, const VocabularyOptions& options) {
  KVANT_ASSIGN(const SentencePieceModel model, formats::ReadSentencePiece(path));
  if (model.kind != SentencePieceModel::Kind::kUnigram) {
    if (!model.charsmap.empty() || model.remove_extra_whitespaces) {
      Log(LogLevel::kWarning,
          fmt::format(
              "{}: its normalizer (\"{}\") also changes characters or drops spaces, which GGUF "
              "has no field for: some texts will be tokenized differently",
              path, model.normalizer));
    }
    return SentencePieceVocabulary(model, path, vocab_size);
  }
  UnigramOptions unigram{
      .vocab_size = vocab_size, .order = options.order, .languages = options.languages};
  // A model has all languages or the first ones; beside them there are one token more in front and
  // <mask> behind.
  if (options.order == PieceOrder::kFairseq) {
    const int64_t languages = vocab_size - std::ssize(model.pieces) - 2;
    if (languages >= 0 && languages < std::ssize(options.languages)) {
      unigram.languages = options.languages.first(static_cast<size_t>(languages));
    }
  }
  if (options.order == PieceOrder::kOwn) {
    const auto pieces = static_cast<int64_t>(model.pieces.size());
    KVANT_ASSIGN(unigram.extra_ids, ExtraIds(tokenizer_config, pieces, vocab_size));
  }
  return UnigramVocabulary(model, path, unigram);
}

// The vocabulary in tokenizer.json: all of it, or only the tokens that it adds where the rest is
// taken from SentencePiece's file.
struct JsonVocabulary {
  std::optional<TokenizerJson> tokenizer;
  std::vector<AddedToken> added;
  std::optional<Vocabulary> whole;  // of a kind that needs no other file
};

Result<JsonVocabulary> ReadJsonVocabulary(const std::string& path, const std::string& pieces_path,
                                          int64_t vocab_size, const VocabularyOptions& options) {
  JsonVocabulary json;
  if (!Exists(path)) return json;
  KVANT_ASSIGN(JsonObject root, JsonObject::Read(path));
  KVANT_ASSIGN(const std::string type, TokenizerJson::ModelType(root));
  if (type == "WordPiece") {
    KVANT_ASSIGN(json.whole, WordPieceVocabulary(root, vocab_size));
    return json;
  }
  if (type == "Unigram" && (options.unigram_of_json || pieces_path.empty())) {
    KVANT_ASSIGN(json.whole, UnigramJsonVocabulary(root, vocab_size));
    return json;
  }
  if (type != "Unigram") {
    KVANT_ASSIGN(json.tokenizer, TokenizerJson::FromObject(std::move(root), vocab_size));
    json.added = json.tokenizer->added;
    return json;
  }
  KVANT_ASSIGN(json.added, TokenizerJson::AddedTokens(std::move(root), vocab_size));
  return json;
}

// Only the tokenizers library looks for tokens in normalized texts: where a folder has none of its
// files, or one whose normalizer is not used here, tokens are looked for in texts as they are.
void SettleNormalizedTokens(const std::optional<TokenizerJson>& tokenizer, Vocabulary& vocabulary) {
  bool may_differ = false;
  bool has_normalized = false;
  for (auto& [id, flags] : vocabulary.flags) {
    if (!flags.normalized) continue;
    has_normalized = true;
    flags.normalized = tokenizer.has_value();
    may_differ |= std::ranges::any_of(vocabulary.tokens[static_cast<size_t>(id)],
                                      [](char c) { return c <= ' ' || c > '~'; });
  }
  if (!has_normalized) return;
  if (!tokenizer) {
    if (!may_differ || vocabulary.model != kUnigramKind) return;
    Log(LogLevel::kWarning,
        "added tokens are looked for in texts before they are normalized, whatever their "
        "\"normalized\" says");
    return;
  }
  vocabulary.normalizer_spells_spaces =
      vocabulary.model == kSentencePieceKind && NormalizerSpellsSpaces(*tokenizer);
}

}  // namespace

Result<Vocabulary> ReadVocabulary(const std::string& folder, const JsonObject& tokenizer_config,
                                  int64_t vocab_size, const VocabularyOptions& options) {
  const std::string rwkv_path = PathIn(folder, kRwkvVocabularyFile);
  if (Exists(rwkv_path)) return ReadRwkvVocabulary(rwkv_path, vocab_size);
  const std::string pieces_path = FindSentencePieceFile(folder);
  KVANT_ASSIGN(JsonVocabulary json, ReadJsonVocabulary(PathIn(folder, "tokenizer.json"),
                                                       pieces_path, vocab_size, options));
  if (options.tokenizer != nullptr && !json.tokenizer) {
    const std::string text =
        options.tokenizer->dump(-1, ' ', false, Json::error_handler_t::replace);
    KVANT_ASSIGN(json.tokenizer,
                 TokenizerJson::Parse(text, PathIn(folder, "tokenizer.json"), vocab_size));
  }
  if (options.has_speech_tokens && !json.tokenizer) {
    KVANT_ASSIGN(json.tokenizer, ReadVocabularyAndMerges(folder, vocab_size));
  }
  Vocabulary vocabulary;
  const std::string words_path = PathIn(folder, kWordPieceFile);
  if (json.whole) {
    vocabulary = std::move(*json.whole);
  } else if (json.tokenizer && options.kind == kGemma4Kind) {
    KVANT_ASSIGN(vocabulary, Gemma4Vocabulary(*json.tokenizer, vocab_size));
  } else if (json.tokenizer && HasMetaspaceMerges(*json.tokenizer)) {
    KVANT_ASSIGN(vocabulary, MetaspaceVocabulary(*json.tokenizer, vocab_size));
  } else if (json.tokenizer && !json.tokenizer->is_sentencepiece()) {
    KVANT_ASSIGN(vocabulary, ByteLevelVocabulary(*json.tokenizer, vocab_size));
    if (options.has_speech_tokens) {
      KVANT_TRY(PlaceAddedTokensFile(PathIn(folder, "added_tokens.json"), vocabulary));
      PlaceSpeechTokens(vocabulary);
    }
  } else if (!pieces_path.empty()) {
    KVANT_ASSIGN(vocabulary, ReadPiecesFile(pieces_path, tokenizer_config, vocab_size, options));
    KVANT_TRY(PlaceAddedTokensFile(PathIn(folder, "added_tokens.json"), vocabulary));
    for (const AddedToken& token : json.added) PlaceAddedToken(token, vocabulary);
  } else if (json.tokenizer) {
    KVANT_ASSIGN(vocabulary, SentencePieceVocabulary(*json.tokenizer, vocab_size));
  } else if (Exists(words_path)) {
    KVANT_ASSIGN(vocabulary, WordPieceVocabulary(words_path, tokenizer_config, vocab_size));
  } else {
    return MakeError(ErrorCode::kIo,
                     "{}: no vocabulary: expected tokenizer.json or tokenizer.model", folder);
  }
  KVANT_TRY(PlaceDecoderTokens(tokenizer_config, vocabulary));
  if (vocabulary.model != kWordPieceKind) SettleNormalizedTokens(json.tokenizer, vocabulary);
  // A unigram vocabulary says itself what it does to spaces.
  KVANT_ASSIGN(const auto prefix, tokenizer_config.Bool("add_prefix_space"));
  const bool overrides = prefix && vocabulary.add_space_prefix && vocabulary.model != kUnigramKind;
  if (overrides) vocabulary.add_space_prefix = prefix;
  return vocabulary;
}

}  // namespace kvant::convert
