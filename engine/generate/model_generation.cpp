#include "engine/generate/model_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <variant>

#include "base/result.h"
#include "engine/limits.h"

namespace kvant {
namespace {

using formats::GgufArray;
using formats::GgufFile;
using formats::GgufType;

constexpr double kLengthPenaltyMax = 1e6;  // in either direction

struct GenerationSetting {
  std::string_view name;
  std::variant<int32_t BeamOptions::*, int64_t BeamOptions::*, std::optional<float> BeamOptions::*,
               bool BeamOptions::*, EarlyStopping BeamOptions::*,
               std::optional<TokenId> BeamOptions::*, std::vector<TokenId> BeamOptions::*>
      value;
  int64_t min = 0;  // of a count
  int64_t max = 0;
};

constexpr GenerationSetting kGenerationSettings[] = {
    {"num_beams", &BeamOptions::beams, 1, kSequencesMax},
    {"length_penalty", &BeamOptions::length_penalty},
    {"early_stopping", &BeamOptions::early_stopping},
    {"max_length", &BeamOptions::max_length, 1, kContextMax},
    {"min_length", &BeamOptions::min_length, 0, kContextMax},
    {"no_repeat_ngram", &BeamOptions::no_repeat_ngram, 0, kContextMax},
    {"forced_bos_id", &BeamOptions::forced_bos},
    {"forced_eos_id", &BeamOptions::forced_eos},
    {"suppress_ids", &BeamOptions::suppress},
    {"begin_suppress_ids", &BeamOptions::begin_suppress},
    {"renormalize", &BeamOptions::renormalize},
};

// One setting that the file has, by the type of its value.
struct GenerationReader {
  const GgufFile& file;
  const std::string& key;
  const GenerationSetting& setting;
  int64_t vocab;
  BeamOptions& options;
  int64_t least = 0;  // of token ids

  template <class Found>
  Error Unexpected(std::string_view expected, const Found& found) const {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {}, found {}", file.path(), key,
                     expected, found);
  }

  template <class Count>
  Status operator()(Count BeamOptions::*member) const
    requires(std::is_same_v<Count, int32_t> || std::is_same_v<Count, int64_t>)
  {
    KVANT_ASSIGN(const auto value, file.GetU32(key));
    if (*value < setting.min || *value > setting.max) {
      return Unexpected(fmt::format("{} to {}", setting.min, setting.max), *value);
    }
    options.*member = static_cast<Count>(*value);
    return {};
  }

  Status operator()(std::optional<float> BeamOptions::*member) const {
    KVANT_ASSIGN(const auto value, file.GetF32(key));
    if (!(std::abs(double{*value}) <= kLengthPenaltyMax)) {
      return Unexpected(fmt::format("{} to {}", -kLengthPenaltyMax, kLengthPenaltyMax), *value);
    }
    options.*member = *value;
    return {};
  }

  Status operator()(bool BeamOptions::*member) const {
    KVANT_ASSIGN(const auto value, file.GetBool(key));
    options.*member = *value;
    return {};
  }

  Status operator()(EarlyStopping BeamOptions::*member) const {
    KVANT_ASSIGN(const auto value, file.GetString(key));
    const auto parsed = ParseEarlyStopping(*value);
    if (!parsed.ok()) return Unexpected("true, false or never", fmt::format("'{}'", *value));
    options.*member = *parsed;
    return {};
  }

  Status operator()(std::optional<TokenId> BeamOptions::*member) const {
    KVANT_ASSIGN(const auto value, file.GetU32(key));
    KVANT_ASSIGN(options.*member, Token(*value));
    return {};
  }

  Status operator()(std::vector<TokenId> BeamOptions::*member) const {
    return Tokens(options.*member);
  }

  // A list of ids, or one id.
  Status Tokens(std::vector<TokenId>& tokens) const {
    const auto* array = std::get_if<GgufArray>(&file.Find(key)->value);
    if (array == nullptr) {
      KVANT_ASSIGN(const auto value, file.GetU32(key));
      KVANT_ASSIGN(tokens.emplace_back(), Token(*value));
      return {};
    }
    if (array->type != GgufType::kInt32 && array->type != GgufType::kUint32) {
      return Unexpected("32-bit integers", formats::GgufTypeName(array->type));
    }
    for (uint64_t i = 0; i < array->count; ++i) {
      uint32_t value = 0;
      std::memcpy(&value, array->data + i * sizeof value, sizeof value);
      const bool is_signed = array->type == GgufType::kInt32;
      KVANT_ASSIGN(tokens.emplace_back(),
                   Token(is_signed ? int64_t{static_cast<int32_t>(value)} : int64_t{value}));
    }
    return {};
  }

  Result<TokenId> Token(int64_t id) const {
    if (id >= least && id < vocab) return static_cast<TokenId>(id);
    return Unexpected(fmt::format("a token below {}", vocab), id);
  }
};

}  // namespace

bool ModelGeneration::Has(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<ModelGeneration> ReadModelGeneration(const GgufFile& file) {
  ModelGeneration out;
  KVANT_ASSIGN(const auto arch, file.GetString("general.architecture"));
  // A translator with two vocabularies writes texts in the target's.
  KVANT_ASSIGN(const GgufArray* tokens,
               file.GetArray("tokenizer.target.tokens", GgufType::kString));
  if (tokens == nullptr) {
    KVANT_ASSIGN(tokens, file.GetArray("tokenizer.ggml.tokens", GgufType::kString));
  }
  const int64_t vocab = tokens == nullptr ? 0 : static_cast<int64_t>(tokens->count);
  for (const GenerationSetting& setting : kGenerationSettings) {
    const std::string key = fmt::format("{}.generation.{}", arch.value_or(""), setting.name);
    if (file.Find(key) == nullptr) continue;
    out.names.push_back(setting.name);
    const GenerationReader reader = {file, key, setting, vocab, out.options};
    KVANT_TRY(std::visit(reader, setting.value));
  }
  constexpr std::string_view kFirstTokens = "forced_decoder_ids";
  const std::string key = fmt::format("{}.generation.{}", arch.value_or(""), kFirstTokens);
  if (file.Find(key) != nullptr) {
    out.names.push_back(kFirstTokens);
    const bool has_languages = file.Find(fmt::format("{}.languages", *arch)) != nullptr;
    const GenerationReader reader = {file,  key,         {kFirstTokens, {}},
                                     vocab, out.options, has_languages ? kOpenLanguage : 0};
    KVANT_TRY(reader.Tokens(out.first_tokens));
    if (std::ranges::count(out.first_tokens, kOpenLanguage) > 1) {
      return reader.Unexpected("one open language", "several");
    }
  }
  if (out.names.empty()) return out;
  const auto most = int64_t{std::numeric_limits<int32_t>::max()};
  const Status fits = CheckBeamOptions(out.options, static_cast<int32_t>(std::min(vocab, most)));
  if (fits.ok()) return out;
  return MakeError(ErrorCode::kCorrupt, "{}: keys {}.generation: {}", file.path(),
                   arch.value_or(""), fits.error().message);
}

}  // namespace kvant
