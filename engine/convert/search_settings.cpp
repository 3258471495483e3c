#include "engine/convert/search_settings.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/result.h"
#include "engine/limits.h"

namespace kvant::convert {
namespace {

using formats::Json;

struct SearchCount {
  std::string_view hf_name;
  std::string_view name;
  int64_t max;
  int64_t none;  // the number that says nothing
};
constexpr SearchCount kSearchCounts[] = {
    {"num_beams", "num_beams", kSequencesMax, 1},
    {"max_length", "max_length", kContextMax, 0},
    {"min_length", "min_length", kContextMax, 0},
    {"no_repeat_ngram_size", "no_repeat_ngram", kContextMax, 0},
};

struct SearchTokens {
  std::string_view hf_name;
  std::string_view name;
};
constexpr SearchTokens kSearchTokens[] = {
    {"forced_eos_token_id", "forced_eos_id"},
    {"suppress_tokens", "suppress_ids"},
    {"begin_suppress_tokens", "begin_suppress_ids"},
};

Result<int32_t> SearchToken(const JsonObject& config, std::string_view key, const Json& value,
                            int64_t vocab) {
  const bool fits = value.is_number_integer() && value >= 0 && value < vocab;
  if (fits) return value.get<int32_t>();
  return config.Wrong(key, fmt::format("tokens below {}", vocab));
}

// One token, or an array of them.
Result<std::vector<int32_t>> ReadSearchTokens(const JsonObject& config, std::string_view key,
                                              int64_t vocab) {
  std::vector<int32_t> tokens;
  const Json* value = config.Find(key);
  if (value == nullptr) return tokens;
  if (!value->is_array()) {
    KVANT_ASSIGN(tokens.emplace_back(), SearchToken(config, key, *value, vocab));
    return tokens;
  }
  for (const Json& one : *value) {
    KVANT_ASSIGN(tokens.emplace_back(), SearchToken(config, key, one, vocab));
  }
  return tokens;
}

// The bad words of one token; Hugging Face's own filter leaves out the end of the text, too.
Result<std::vector<int32_t>> SingleBadWords(const JsonObject& config, int64_t vocab) {
  constexpr std::string_view kKey = "bad_words_ids";
  std::vector<int32_t> tokens;
  const Json* words = config.Find(kKey);
  if (words == nullptr) return tokens;
  if (!words->is_array()) return config.Wrong(kKey, "an array of arrays of tokens");
  KVANT_ASSIGN(const auto ends, ReadSearchTokens(config, "eos_token_id", vocab));
  for (const Json& word : *words) {
    if (!word.is_array() || word.empty()) return config.Wrong(kKey, "an array of arrays of tokens");
    if (word.size() > 1) {
      Log(LogLevel::kWarning, fmt::format("{} of several tokens are left out", config.Where(kKey)));
      continue;
    }
    KVANT_ASSIGN(const int32_t token, SearchToken(config, kKey, word.front(), vocab));
    const bool is_end = ends.size() == 1 && ends.front() == token;
    if (!is_end) tokens.push_back(token);
  }
  return tokens;
}

Status AddEarlyStopping(const JsonObject& config, arch::Parameters& out) {
  constexpr std::string_view kKey = "early_stopping";
  const Json* early = config.Find(kKey);
  if (early == nullptr) return {};
  const bool never = early->is_string() && *early == "never";
  if (!early->is_boolean() && !never) return config.Wrong(kKey, "true, false or \"never\"");
  const char* const text = never ? "never" : early->get<bool>() ? "true" : "false";
  out.writer->AddString(out.Key("generation.early_stopping"), text);
  return {};
}

}  // namespace

Status AddSearchSettings(const FolderConfig& folder, int64_t vocab, arch::Parameters& out) {
  std::error_code error;
  const bool own = std::filesystem::exists(folder.generation.where(), error);
  const JsonObject& config = own ? folder.generation : folder.model;
  const auto key = [&](std::string_view name) {
    return out.Key(fmt::format("generation.{}", name));
  };
  for (const SearchCount& row : kSearchCounts) {
    KVANT_ASSIGN(const auto count, config.Integer(row.hf_name, row.max));
    if (count.value_or(row.none) == row.none) continue;
    out.writer->AddU32(key(row.name), static_cast<uint32_t>(*count));
  }
  KVANT_ASSIGN(const auto penalty, config.Number("length_penalty"));
  if (penalty.value_or(1) != 1) {
    out.writer->AddF32(key("length_penalty"), static_cast<float>(*penalty));
  }
  KVANT_TRY(AddEarlyStopping(config, out));
  KVANT_ASSIGN(const auto bos, ReadSearchTokens(config, "forced_bos_token_id", vocab));
  if (bos.size() > 1) return config.Wrong("forced_bos_token_id", "one token");
  if (!bos.empty()) out.writer->AddU32(key("forced_bos_id"), static_cast<uint32_t>(bos.front()));
  KVANT_ASSIGN(const auto bad, SingleBadWords(config, vocab));
  for (const SearchTokens& row : kSearchTokens) {
    KVANT_ASSIGN(auto tokens, ReadSearchTokens(config, row.hf_name, vocab));
    if (row.name == "suppress_ids") tokens.insert(tokens.end(), bad.begin(), bad.end());
    if (!tokens.empty()) out.writer->AddI32s(key(row.name), tokens);
  }
  KVANT_ASSIGN(const auto renormalize, config.Bool("renormalize_logits"));
  if (renormalize.value_or(false)) out.writer->AddBool(key("renormalize"), true);
  return {};
}

}  // namespace kvant::convert
