// The names follow llama.cpp (October 2026): those of Qwen, Granite, StarCoder, DeepSeek, CodeLlama
// and GLM.
#include "engine/tokenizer/fill_tokens.h"

#include <cstring>
#include <string_view>

#include "engine/tokenizer/vocabulary_keys.h"

namespace kvant {
namespace {

using FillToken = std::optional<TokenId> FillTokens::*;

struct FillKey {
  const char* name;
  FillToken token;
};

// The last three are those of older files.
constexpr FillKey kFillKeys[] = {
    {"fim_pre_token_id", &FillTokens::prefix}, {"fim_suf_token_id", &FillTokens::suffix},
    {"fim_mid_token_id", &FillTokens::middle}, {"fim_rep_token_id", &FillTokens::repository},
    {"fim_sep_token_id", &FillTokens::file},   {"fim_pad_token_id", &FillTokens::padding},
    {"prefix_token_id", &FillTokens::prefix},  {"suffix_token_id", &FillTokens::suffix},
    {"middle_token_id", &FillTokens::middle},
};

struct FillName {
  std::string_view text;
  FillToken token;
};

constexpr FillName kFillNames[] = {
    {"<|fim_prefix|>", &FillTokens::prefix},
    {"<fim-prefix>", &FillTokens::prefix},
    {"<fim_prefix>", &FillTokens::prefix},
    {"<｜fim▁begin｜>", &FillTokens::prefix},
    {"<PRE>", &FillTokens::prefix},
    {"▁<PRE>", &FillTokens::prefix},
    {"<|code_prefix|>", &FillTokens::prefix},
    {"<|fim_suffix|>", &FillTokens::suffix},
    {"<fim-suffix>", &FillTokens::suffix},
    {"<fim_suffix>", &FillTokens::suffix},
    {"<｜fim▁hole｜>", &FillTokens::suffix},
    {"<SUF>", &FillTokens::suffix},
    {"▁<SUF>", &FillTokens::suffix},
    {"<|code_suffix|>", &FillTokens::suffix},
    {"<|fim_middle|>", &FillTokens::middle},
    {"<fim-middle>", &FillTokens::middle},
    {"<fim_middle>", &FillTokens::middle},
    {"<｜fim▁end｜>", &FillTokens::middle},
    {"<MID>", &FillTokens::middle},
    {"▁<MID>", &FillTokens::middle},
    {"<|code_middle|>", &FillTokens::middle},
    {"<|fim_repo|>", &FillTokens::repository},
    {"<|repo_name|>", &FillTokens::repository},
    {"<fim-repo>", &FillTokens::repository},
    {"<REPO>", &FillTokens::repository},
    {"<reponame>", &FillTokens::repository},
    {"<|file_sep|>", &FillTokens::file},
    {"<|fim_pad|>", &FillTokens::padding},
    {"<fim-pad>", &FillTokens::padding},
    {"<fim_pad>", &FillTokens::padding},
    {"<PAD>", &FillTokens::padding},
};

// Whether a file calls a piece a user-defined token.
bool IsUserDefined(const formats::GgufArray* types, size_t id) {
  constexpr int32_t kUserDefinedType = 4;
  if (types == nullptr) return false;
  int32_t type = 0;
  std::memcpy(&type, types->data + id * sizeof type, sizeof type);
  return type == kUserDefinedType;
}

}  // namespace

Result<FillTokens> FindFillTokens(const formats::GgufFile& file, const Tokenizer& tokenizer) {
  const VocabularyKeys keys(file);
  const auto count = static_cast<size_t>(tokenizer.vocab_size());
  FillTokens out;
  FillTokens none;  // by the file's own word
  for (const FillKey& key : kFillKeys) {
    KVANT_ASSIGN(const FoundId found, ReadId(keys, key.name, count));
    if (found.given && !found.id.has_value()) none.*key.token = 0;
    if (found.id.has_value() && !(out.*key.token).has_value()) out.*key.token = found.id;
  }
  KVANT_ASSIGN(const formats::GgufArray* const types,
               keys.PerToken("token_type", formats::GgufType::kInt32, count));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view piece = tokenizer.piece(id);
    if (!piece.starts_with('<') && !piece.starts_with("▁<")) continue;
    for (const FillName& name : kFillNames) {
      std::optional<TokenId>& token = out.*name.token;
      if (token.has_value() || (none.*name.token).has_value() || piece != name.text) continue;
      const bool is_token =
          tokenizer.is_control(id) || IsUserDefined(types, static_cast<size_t>(id));
      if (is_token) token = id;
    }
  }
  return out;
}

}  // namespace kvant
