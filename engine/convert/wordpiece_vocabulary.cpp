#include "engine/convert/wordpiece_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "engine/convert/text_frame.h"
#include "engine/convert/tokenizer_json.h"
#include "engine/tokenizer/kinds.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonFlag;
using formats::JsonObject;
using formats::JsonText;
using formats::Quoted;
using Type = Vocabulary::Type;

constexpr std::string_view kWordBegin = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kContinues = "##";
constexpr int64_t kWordCharactersMax = 100;
constexpr size_t kFileBytesMax = size_t{64} << 20;

Error Unknown(const JsonObject& object, std::string_view key, std::string_view expected) {
  const Json* found = object.Find(key);
  return MakeError(ErrorCode::kNotSupported, "{} cannot be converted, expected {}; found {}",
                   object.Where(key), expected, found == nullptr ? "none" : formats::Shown(*found));
}

// Gives each entry the spelling of GGUF and a type.
void SpellEntries(const IdList& entries, std::string_view unknown, Vocabulary& vocabulary) {
  for (const auto& [text, id] : entries) {
    const auto i = static_cast<size_t>(id);
    if (text == unknown) {
      vocabulary.tokens[i] = text;
      vocabulary.types[i] = Type::kUnknown;
      vocabulary.unk = static_cast<int32_t>(id);
      continue;
    }
    vocabulary.types[i] = Type::kNormal;
    vocabulary.tokens[i] = text.starts_with(kContinues) ? text.substr(kContinues.size())
                                                        : std::string(kWordBegin) + text;
  }
}

// The special tokens that BERT's tokenizer has under the names that folders give to them.
void NameSpecialTokens(Vocabulary& vocabulary) {
  vocabulary.cls = vocabulary.Find("[CLS]");
  vocabulary.sep = vocabulary.Find("[SEP]");
  vocabulary.pad = vocabulary.Find("[PAD]");
  vocabulary.mask = vocabulary.Find("[MASK]");
}

Status ReadNormalizer(const JsonObject& tokenizer, Vocabulary& vocabulary) {
  const Json* step = tokenizer.Find("normalizer");
  const bool is_bert = step != nullptr && JsonText(*step, "type") == "BertNormalizer" &&
                       JsonFlag(*step, "clean_text", true) &&
                       JsonFlag(*step, "handle_chinese_chars", true);
  if (!is_bert) {
    return Unknown(tokenizer, "normalizer",
                   "a BertNormalizer that cleans texts and cuts out ideographs");
  }
  vocabulary.lower_case = JsonFlag(*step, "lowercase", true);
  vocabulary.strip_accents = JsonFlag(*step, "strip_accents", *vocabulary.lower_case);
  return {};
}

}  // namespace

Result<Vocabulary> WordPieceVocabulary(const JsonObject& tokenizer, int64_t vocab_size) {
  KVANT_ASSIGN(const auto model, tokenizer.Object("model"));
  KVANT_ASSIGN(const auto prefix, model->String("continuing_subword_prefix"));
  if (prefix.value_or(std::string(kContinues)) != kContinues) {
    return Unknown(*model, "continuing_subword_prefix", "\"##\"");
  }
  KVANT_ASSIGN(const auto longest, model->Integer("max_input_chars_per_word", INT32_MAX));
  if (longest.value_or(kWordCharactersMax) != kWordCharactersMax) {
    return Unknown(*model, "max_input_chars_per_word", "100");
  }
  const Json* words = tokenizer.Find("pre_tokenizer");
  if (words == nullptr || JsonText(*words, "type") != "BertPreTokenizer") {
    return Unknown(tokenizer, "pre_tokenizer", "a BertPreTokenizer");
  }
  const Json* list = model->Find("vocab");
  if (list == nullptr || !list->is_object() || list->empty()) {
    return model->Wrong("vocab", "an object of tokens and their ids");
  }
  KVANT_ASSIGN(const IdList entries, ReadIdList(*list, model->Where("vocab"), vocab_size));
  KVANT_ASSIGN(const auto unknown, model->String("unk_token"));
  KVANT_ASSIGN(const auto added, TokenizerJson::AddedTokens(tokenizer, vocab_size));
  Vocabulary vocabulary = EmptyVocabulary(kWordPieceKind, vocab_size);
  vocabulary.pre = "default";
  SpellEntries(entries, unknown.value_or("[UNK]"), vocabulary);
  KVANT_TRY(ReadNormalizer(tokenizer, vocabulary));
  for (const AddedToken& token : added) PlaceAddedToken(token, vocabulary);
  NameSpecialTokens(vocabulary);
  ReadTextFrame(tokenizer, vocabulary);
  return vocabulary;
}

Result<Vocabulary> WordPieceVocabulary(const std::string& path, const JsonObject& tokenizer_config,
                                       int64_t vocab_size) {
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kFileBytesMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: the file has {} bytes, expected at most {}", path,
                     file.bytes().size(), kFileBytesMax);
  }
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  IdList entries;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), text.find('\n') + 1))) {
    std::string_view line = text.substr(0, text.find('\n'));
    if (line.ends_with('\r')) line.remove_suffix(1);
    entries.emplace_back(line, std::ssize(entries));
    if (text.find('\n') == std::string_view::npos) break;
  }
  if (std::ssize(entries) > vocab_size) {
    return MakeError(ErrorCode::kCorrupt, "{}: {} tokens, but config.json says that there are {}",
                     path, entries.size(), vocab_size);
  }
  Vocabulary vocabulary = EmptyVocabulary(kWordPieceKind, vocab_size);
  vocabulary.pre = "default";
  KVANT_ASSIGN(const auto unknown, tokenizer_config.String("unk_token"));
  SpellEntries(entries, unknown.value_or("[UNK]"), vocabulary);
  for (const char* special : {"[CLS]", "[SEP]", "[PAD]", "[MASK]"}) {
    const auto id = vocabulary.Find(std::string(kWordBegin) + special);
    if (id) PlaceAddedToken({*id, special, true}, vocabulary);
  }
  NameSpecialTokens(vocabulary);
  vocabulary.bos = vocabulary.cls;
  vocabulary.eos = vocabulary.sep;
  vocabulary.add_bos = vocabulary.bos.has_value();
  vocabulary.add_eos = vocabulary.eos.has_value();
  KVANT_ASSIGN(const auto ideographs, tokenizer_config.Bool("tokenize_chinese_chars"));
  if (!ideographs.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: false is not supported",
                     tokenizer_config.Where("tokenize_chinese_chars"));
  }
  KVANT_ASSIGN(const auto lower_case, tokenizer_config.Bool("do_lower_case"));
  KVANT_ASSIGN(const auto strip, tokenizer_config.Bool("strip_accents"));
  vocabulary.lower_case = lower_case.value_or(true);
  vocabulary.strip_accents = strip.value_or(*vocabulary.lower_case);
  return vocabulary;
}

}  // namespace kvant::convert
