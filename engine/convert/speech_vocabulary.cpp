#include "engine/convert/speech_vocabulary.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/json.h"

namespace kvant::convert {
namespace {

using formats::Json;

constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;

struct SpeechLanguage {
  std::string_view code;
  std::string_view name;
};
// In the order of their ids.
constexpr SpeechLanguage kSpeechLanguages[] = {
    {"en", "english"},        {"zh", "chinese"},     {"de", "german"},        {"es", "spanish"},
    {"ru", "russian"},        {"ko", "korean"},      {"fr", "french"},        {"ja", "japanese"},
    {"pt", "portuguese"},     {"tr", "turkish"},     {"pl", "polish"},        {"ca", "catalan"},
    {"nl", "dutch"},          {"ar", "arabic"},      {"sv", "swedish"},       {"it", "italian"},
    {"id", "indonesian"},     {"hi", "hindi"},       {"fi", "finnish"},       {"vi", "vietnamese"},
    {"he", "hebrew"},         {"uk", "ukrainian"},   {"el", "greek"},         {"ms", "malay"},
    {"cs", "czech"},          {"ro", "romanian"},    {"da", "danish"},        {"hu", "hungarian"},
    {"ta", "tamil"},          {"no", "norwegian"},   {"th", "thai"},          {"ur", "urdu"},
    {"hr", "croatian"},       {"bg", "bulgarian"},   {"lt", "lithuanian"},    {"la", "latin"},
    {"mi", "maori"},          {"ml", "malayalam"},   {"cy", "welsh"},         {"sk", "slovak"},
    {"te", "telugu"},         {"fa", "persian"},     {"lv", "latvian"},       {"bn", "bengali"},
    {"sr", "serbian"},        {"az", "azerbaijani"}, {"sl", "slovenian"},     {"kn", "kannada"},
    {"et", "estonian"},       {"mk", "macedonian"},  {"br", "breton"},        {"eu", "basque"},
    {"is", "icelandic"},      {"hy", "armenian"},    {"ne", "nepali"},        {"mn", "mongolian"},
    {"bs", "bosnian"},        {"kk", "kazakh"},      {"sq", "albanian"},      {"sw", "swahili"},
    {"gl", "galician"},       {"mr", "marathi"},     {"pa", "punjabi"},       {"si", "sinhala"},
    {"km", "khmer"},          {"sn", "shona"},       {"yo", "yoruba"},        {"so", "somali"},
    {"af", "afrikaans"},      {"oc", "occitan"},     {"ka", "georgian"},      {"be", "belarusian"},
    {"tg", "tajik"},          {"sd", "sindhi"},      {"gu", "gujarati"},      {"am", "amharic"},
    {"yi", "yiddish"},        {"lo", "lao"},         {"uz", "uzbek"},         {"fo", "faroese"},
    {"ht", "haitian creole"}, {"ps", "pashto"},      {"tk", "turkmen"},       {"nn", "nynorsk"},
    {"mt", "maltese"},        {"sa", "sanskrit"},    {"lb", "luxembourgish"}, {"my", "myanmar"},
    {"bo", "tibetan"},        {"tl", "tagalog"},     {"mg", "malagasy"},      {"as", "assamese"},
    {"tt", "tatar"},          {"haw", "hawaiian"},   {"ln", "lingala"},       {"ha", "hausa"},
    {"ba", "bashkir"},        {"jw", "javanese"},    {"su", "sundanese"},     {"yue", "cantonese"}};
// Further names.
constexpr SpeechLanguage kOtherNames[] = {
    {"my", "burmese"},       {"ca", "valencian"}, {"nl", "flemish"},   {"ht", "haitian"},
    {"lb", "letzeburgesch"}, {"ps", "pushto"},    {"pa", "panjabi"},   {"ro", "moldavian"},
    {"ro", "moldovan"},      {"si", "sinhalese"}, {"es", "castilian"}, {"zh", "mandarin"}};
constexpr std::string_view kTasks[] = {"translate",   "transcribe", "startoflm",
                                       "startofprev", "nospeech",   "notimestamps"};
constexpr int kTimes = 1501;  // of 0.02 s, from 0.00 to 30.00

// The three vocabularies: how many ids they have, the end of a text, and languages.
struct SpeechIds {
  size_t size;
  size_t end;
  size_t languages;
};
constexpr SpeechIds kSpeechIds[] = {{51864, 50256, 99}, {51865, 50257, 99}, {51866, 50257, 100}};
static_assert(std::size(kSpeechLanguages) == 100);

// A pair of parts a line behind a first line that names the version.
Json MergesOf(std::string_view text) {
  Json merges = Json::array();
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(std::string(line));
  }
  return merges;
}

}  // namespace

Result<std::optional<TokenizerJson>> ReadVocabularyAndMerges(const std::string& folder,
                                                             int64_t vocab_size) {
  const std::string vocab = PathIn(folder, "vocab.json");
  const std::string merges = PathIn(folder, "merges.txt");
  std::error_code error;
  if (!std::filesystem::exists(vocab, error) || !std::filesystem::exists(merges, error)) {
    return std::optional<TokenizerJson>();
  }
  KVANT_ASSIGN(Json tokens, formats::ReadJson(vocab, kFileBytesMax));
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(merges));
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() > kFileBytesMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: the file has {} bytes, expected at most {}", merges,
                     bytes.size(), kFileBytesMax);
  }
  Json root;
  root["model"] = {
      {"type", "BPE"},
      {"vocab", std::move(tokens)},
      {"merges", MergesOf({reinterpret_cast<const char*>(bytes.data()), bytes.size()})}};
  root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const std::string text = root.dump(-1, ' ', false, Json::error_handler_t::replace);
  KVANT_ASSIGN(auto tokenizer, TokenizerJson::Parse(text, vocab, vocab_size));
  return std::optional<TokenizerJson>(std::move(tokenizer));
}

std::string_view SpeechLanguageCode(std::string_view name) {
  for (const auto& list : {std::span(kSpeechLanguages).first(std::size(kSpeechLanguages)),
                           std::span(kOtherNames).first(std::size(kOtherNames))}) {
    const auto found = std::ranges::find(list, name, &SpeechLanguage::name);
    if (found != list.end()) return found->code;
  }
  return name;
}

void PlaceSpeechTokens(Vocabulary& vocabulary) {
  vocabulary.add_bos = vocabulary.add_eos = false;
  for (const SpeechIds& ids : kSpeechIds) {
    if (vocabulary.tokens.size() != ids.size) continue;
    size_t id = ids.end;
    const auto place = [&](const std::string& text) {
      if (vocabulary.types[id] == Vocabulary::Type::kUnused) {
        vocabulary.tokens[id] = text;
        vocabulary.types[id] = Vocabulary::Type::kControl;
      }
      ++id;
    };
    place("<|endoftext|>");
    place("<|startoftranscript|>");
    for (size_t i = 0; i < ids.languages; ++i)
      place(fmt::format("<|{}|>", kSpeechLanguages[i].code));
    for (const std::string_view task : kTasks) place(fmt::format("<|{}|>", task));
    for (int time = 0; time < kTimes; ++time) {
      place(fmt::format("<|{}.{:02}|>", time / 50, time % 50 * 2));
    }
    KVANT_CHECK(id == ids.size);
  }
}

}  // namespace kvant::convert
