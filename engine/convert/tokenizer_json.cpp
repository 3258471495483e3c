#include "engine/convert/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/result.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::Quoted;
using formats::Shown;

// A merge is "left right", or since 2024 ["left", "right"], which allows spaces in the parts.
std::optional<std::pair<std::string, std::string>> ParseMerge(const Json& merge) {
  std::pair<std::string, std::string> parts;
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return std::nullopt;
    }
    parts = {text.substr(0, space), text.substr(space + 1)};
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    parts = {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (parts.first.empty() || parts.second.empty()) return std::nullopt;
  return parts;
}

bool IsId(const Json& value, int64_t ids_max) {
  return value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(ids_max);
}

}  // namespace

Result<IdList> ReadIdList(const Json& tokens, const std::string& where, int64_t ids_max) {
  IdList list;
  for (const auto& [text, id] : tokens.items()) {
    if (!IsId(id, ids_max)) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: token {} has id {}, but config.json says that there are {} tokens",
                       where, Quoted(text), Shown(id), ids_max);
    }
    list.emplace_back(text, id.get<int64_t>());
  }
  std::sort(list.begin(), list.end(),
            [](const auto& left, const auto& right) { return left.second < right.second; });
  const auto same = std::adjacent_find(
      list.begin(), list.end(),
      [](const auto& left, const auto& right) { return left.second == right.second; });
  if (same == list.end()) return list;
  return MakeError(ErrorCode::kCorrupt, "{}: tokens {} and {} have the same id {}", where,
                   Quoted(same[0].first), Quoted(same[1].first), same[0].second);
}

AddedTokenFlags ReadTokenFlags(const Json& token) {
  using formats::JsonFlag;
  return {.strip_left = JsonFlag(token, "lstrip", false),
          .strip_right = JsonFlag(token, "rstrip", false),
          .single_word = JsonFlag(token, "single_word", false),
          .normalized = JsonFlag(token, "normalized", !JsonFlag(token, "special", false))};
}

Result<TokenizerJson> TokenizerJson::Parse(std::string_view text, const std::string& file,
                                           int64_t ids_max) {
  KVANT_ASSIGN(JsonObject object, JsonObject::Parse(text, file));
  return FromObject(std::move(object), ids_max);
}

Result<TokenizerJson> TokenizerJson::FromObject(JsonObject object, int64_t ids_max) {
  TokenizerJson tokenizer(std::move(object));
  KVANT_TRY(tokenizer.ReadModel(ids_max));
  KVANT_TRY(tokenizer.ReadAdded(ids_max));
  return tokenizer;
}

Result<std::string> TokenizerJson::ModelType(const JsonObject& object) {
  KVANT_ASSIGN(const auto model, object.Object("model"));
  if (!model) return object.Wrong("model", "an object");
  KVANT_ASSIGN(const auto type, model->String("type"));
  return type.value_or("BPE");
}

Result<std::vector<AddedToken>> TokenizerJson::AddedTokens(JsonObject object, int64_t ids_max) {
  TokenizerJson tokenizer(std::move(object));
  KVANT_TRY(tokenizer.ReadAdded(ids_max));
  return std::move(tokenizer.added);
}

Status TokenizerJson::ReadModel(int64_t ids_max) {
  KVANT_ASSIGN(const std::string type, ModelType(root));
  if (type != "BPE") {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: tokenizers of type {} cannot be converted (known: BPE)", file,
                     Quoted(type));
  }
  KVANT_ASSIGN(const auto model, root.Object("model"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    KVANT_ASSIGN(const auto affix, model->String(key));
    if (affix.value_or("").empty()) continue;
    return MakeError(ErrorCode::kNotSupported, "{} {} cannot be converted, expected none",
                     model->Where(key), Quoted(*affix));
  }
  KVANT_ASSIGN(const auto unknown, model->String("unk_token"));
  KVANT_ASSIGN(const auto fallback, model->Bool("byte_fallback"));
  KVANT_ASSIGN(const auto ignore, model->Bool("ignore_merges"));
  unk_token = unknown.value_or("");
  byte_fallback = fallback.value_or(false);
  ignore_merges = ignore.value_or(false);
  KVANT_TRY(ReadVocab(*model, ids_max));
  return ReadMerges(*model);
}

Status TokenizerJson::ReadVocab(const JsonObject& model, int64_t ids_max) {
  const Json* tokens = model.Find("vocab");
  if (tokens == nullptr || !tokens->is_object() || tokens->empty()) {
    return model.Wrong("vocab", "an object of tokens and their ids");
  }
  KVANT_ASSIGN(vocab, ReadIdList(*tokens, model.Where("vocab"), ids_max));
  return {};
}

Status TokenizerJson::ReadMerges(const JsonObject& model) {
  const Json* list = model.Find("merges");
  if (list == nullptr || !list->is_array()) return model.Wrong("merges", "an array");
  merges.reserve(list->size());
  for (const Json& merge : *list) {
    auto parts = ParseMerge(merge);
    if (!parts) {
      return MakeError(ErrorCode::kCorrupt, "{}[{}] is {}, expected two parts",
                       model.Where("merges"), merges.size(), Shown(merge));
    }
    merges.push_back(std::move(*parts));
  }
  return {};
}

Status TokenizerJson::ReadAdded(int64_t ids_max) {
  constexpr const char* kKey = "added_tokens";
  const Json* list = root.Find(kKey);
  if (list == nullptr) return {};
  if (!list->is_array()) return root.Wrong(kKey, "an array");
  for (const Json& entry : *list) {
    const bool complete = entry.is_object() && entry.contains("id") && entry.contains("content") &&
                          entry["content"].is_string();
    if (!complete || !entry["id"].is_number_unsigned()) {
      return root.Wrong(kKey, "objects with id and content");
    }
    if (!IsId(entry["id"], ids_max)) {
      // Tokens that were added without training the model on them.
      Log(LogLevel::kWarning,
          fmt::format("{}: token {} is left out: its id is beyond the {} tokens of config.json",
                      root.Where(kKey), Shown(entry["content"]), ids_max));
      continue;
    }
    added.push_back({entry["id"].get<int64_t>(), entry["content"].get<std::string>(),
                     formats::JsonFlag(entry, "special", false), ReadTokenFlags(entry)});
  }
  return {};
}

}  // namespace kvant::convert
