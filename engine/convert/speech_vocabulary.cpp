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
#include "engine/text/speech_languages.h"
#include "formats/json.h"

namespace kvant::convert {
namespace {

using formats::Json;

constexpr uint64_t kFileBytesMax = uint64_t{64} << 20;

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
    for (const SpeechLanguage& language : SpeechLanguages().first(ids.languages)) {
      place(fmt::format("<|{}|>", language.code));
    }
    for (const std::string_view task : kTasks) place(fmt::format("<|{}|>", task));
    for (int time = 0; time < kTimes; ++time) {
      place(fmt::format("<|{}.{:02}|>", time / 50, time % 50 * 2));
    }
    KVANT_CHECK(id == ids.size);
  }
}

}  // namespace kvant::convert
