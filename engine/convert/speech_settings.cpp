#include "engine/convert/speech_settings.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/text/speech_languages.h"
#include "kvant/model_defaults.h"

namespace kvant::convert {
namespace {

using formats::Json;

constexpr std::string_view kForcedKey = "forced_decoder_ids";

// Ids by their names: "lang_to_id", "task_to_id".
Result<std::map<std::string, int32_t>> ReadIds(const JsonObject& config, std::string_view key,
                                               int64_t vocab) {
  std::map<std::string, int32_t> ids;
  const Json* object = config.Find(key);
  if (object == nullptr) return ids;
  if (!object->is_object()) return config.Wrong(key, "an object of ids");
  for (const auto& [name, id] : object->items()) {
    if (!id.is_number_unsigned() || id >= static_cast<uint64_t>(vocab)) {
      return config.Wrong(key, fmt::format("tokens below {}", vocab));
    }
    ids[name] = id.get<int32_t>();
  }
  return ids;
}

// The number of a pair [place, token] of the forced ids; nothing for null.
Result<std::optional<int64_t>> ForcedNumber(const JsonObject& config, const Json& value) {
  if (value.is_null()) return std::optional<int64_t>();
  const bool fits = value.is_number_unsigned() && value <= uint64_t{INT32_MAX};
  if (fits) return std::optional(value.get<int64_t>());
  return config.Wrong(kForcedKey, "pairs of a place and a token");
}

// Tokens at the places from 1 on; nothing where one is null.
Result<std::vector<std::optional<int32_t>>> ReadForced(const JsonObject& config, int64_t vocab) {
  std::vector<std::optional<int32_t>> tokens;
  const Json* pairs = config.Find(kForcedKey);
  if (pairs == nullptr) return tokens;
  if (!pairs->is_array()) return config.Wrong(kForcedKey, "an array of pairs");
  for (const Json& pair : *pairs) {
    if (!pair.is_array() || pair.size() != 2) {
      return config.Wrong(kForcedKey, "an array of pairs");
    }
    KVANT_ASSIGN(const auto place, ForcedNumber(config, pair[0]));
    KVANT_ASSIGN(const auto token, ForcedNumber(config, pair[1]));
    if (place != std::ssize(tokens) + 1) {
      return config.Wrong(kForcedKey, "places from 1 on, in order");
    }
    if (token.value_or(0) >= vocab) {
      return config.Wrong(kForcedKey, fmt::format("tokens below {}", vocab));
    }
    std::optional<int32_t>& one = tokens.emplace_back();
    if (token.has_value()) one = static_cast<int32_t>(*token);
  }
  return tokens;
}

// The folder's settings for the beginning of a text.
struct Beginning {
  std::map<std::string, int32_t> languages;
  std::map<std::string, int32_t> tasks;
  std::optional<std::string> language;
  std::optional<std::string> task;
};

Result<int32_t> NamedToken(const JsonObject& config, std::string_view key, const std::string& name,
                           const std::map<std::string, int32_t>& ids) {
  for (const std::string& text :
       {name, fmt::format("<|{}|>", name), fmt::format("<|{}|>", SpeechLanguageCode(name))}) {
    const auto found = ids.find(text);
    if (found != ids.end()) return found->second;
  }
  return config.Wrong(key, "a name that has an id in lang_to_id or task_to_id");
}

// The tokens that follow from the settings "language" and "task", of which there is one at least.
Result<std::vector<int32_t>> ByNames(const JsonObject& config, const Beginning& beginning) {
  std::vector<int32_t> tokens;
  if (beginning.language.has_value()) {
    KVANT_ASSIGN(tokens.emplace_back(),
                 NamedToken(config, "language", *beginning.language, beginning.languages));
  } else if (!beginning.languages.empty()) {
    tokens.push_back(kOpenLanguage);
  }
  if (beginning.task.has_value() || !beginning.tasks.empty()) {
    KVANT_ASSIGN(
        tokens.emplace_back(),
        NamedToken(config, "task", beginning.task.value_or("transcribe"), beginning.tasks));
  }
  return tokens;
}

// The tokens that follow from the forced ids, of which the first may be the language that is to be
// found out.
std::vector<int32_t> ByPlaces(const std::vector<std::optional<int32_t>>& forced,
                              const Beginning& beginning) {
  std::vector<int32_t> tokens;
  const bool is_open = forced.empty() || !forced.front().has_value();
  if (is_open && !beginning.languages.empty()) tokens.push_back(kOpenLanguage);
  for (const auto& token : forced) {
    if (token.has_value()) tokens.push_back(*token);
  }
  return tokens;
}

}  // namespace

Status AddSpeechSettings(const FolderConfig& folder, int64_t vocab, arch::Parameters& out) {
  const JsonObject& config = folder.generation;
  Beginning beginning;
  KVANT_ASSIGN(beginning.languages, ReadIds(config, "lang_to_id", vocab));
  KVANT_ASSIGN(beginning.tasks, ReadIds(config, "task_to_id", vocab));
  KVANT_ASSIGN(beginning.language, config.String("language"));
  if (beginning.language.has_value()) {
    std::ranges::transform(*beginning.language, beginning.language->begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 'a' - 'A') : c; });
  }
  KVANT_ASSIGN(beginning.task, config.String("task"));
  std::vector<int32_t> tokens;
  if (beginning.language.has_value() || beginning.task.has_value()) {
    KVANT_ASSIGN(tokens, ByNames(config, beginning));
  } else {
    const bool own = config.Find(kForcedKey) != nullptr;
    KVANT_ASSIGN(const auto forced, ReadForced(own ? config : folder.model, vocab));
    tokens = ByPlaces(forced, beginning);
  }
  KVANT_ASSIGN(const auto without_times, config.Integer("no_timestamps_token_id", vocab - 1));
  if (without_times.has_value()) {
    const auto last = static_cast<int32_t>(*without_times);
    if (tokens.empty() || tokens.back() != last) tokens.push_back(last);
  }
  std::vector<int32_t> languages;
  for (const auto& [name, id] : beginning.languages) languages.push_back(id);
  std::ranges::sort(languages);
  if (!languages.empty()) out.writer->AddI32s(out.Key("languages"), languages);
  if (!tokens.empty()) out.writer->AddI32s(out.Key("generation.forced_decoder_ids"), tokens);
  return {};
}

}  // namespace kvant::convert
