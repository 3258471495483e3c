#include "engine/generate/languages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/quoted.h"

namespace kvant {
namespace {

// Which of two words a key has; the first where it is absent.
Result<bool> IsSecondWord(const Model& model, const std::string& key, std::string_view first,
                          std::string_view second) {
  KVANT_ASSIGN(const auto word, model.file().GetString(key));
  if (!word.has_value() || *word == first) return false;
  if (*word == second) return true;
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} or {}, found {}",
                   model.file().path(), key, first, second, formats::Quoted(*word));
}

}  // namespace

Result<Languages> ReadLanguages(const Model& model) {
  Languages out;
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", model.architecture(), name);
  };
  KVANT_ASSIGN(const formats::GgufArray* tokens,
               model.file().GetArray(key("languages"), formats::GgufType::kInt32));
  if (tokens == nullptr) return out;
  for (uint64_t i = 0; i < tokens->count; ++i) {
    int32_t token = 0;
    std::memcpy(&token, tokens->data + i * sizeof token, sizeof token);
    if (token < 0 || token >= model.tokenizer().vocab_size()) {
      return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected tokens below {}, found {}",
                       model.file().path(), key("languages"), model.tokenizer().vocab_size(),
                       token);
    }
    out.tokens.push_back(token);
  }
  KVANT_ASSIGN(const bool behind, IsSecondWord(model, key("source_language"), "before", "behind"));
  KVANT_ASSIGN(const bool first, IsSecondWord(model, key("target_language"), "forced", "first"));
  if (behind) out.source = SourceLanguage::kBehind;
  if (first) out.target = TargetLanguage::kFirst;
  return out;
}

Result<TokenId> FindLanguage(const Model& model, const Languages& languages,
                             std::string_view name) {
  std::vector<TokenId> alike;
  std::string known;
  for (const TokenId token : languages.tokens) {
    const std::string text = model.tokenizer().Decode({&token, 1}, {.special = true});
    if (text == name || text == fmt::format("<|{}|>", name)) return token;
    const bool begins = !name.empty() && text.starts_with(name) && text.size() > name.size() &&
                        text[name.size()] == '_';
    if (begins) alike.push_back(token);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", text);
  }
  if (alike.size() == 1) return alike.front();
  return MakeError(ErrorCode::kInvalid, "{}: expected a language of the model ({}), found {}",
                   model.file().path(), known.empty() ? "it has none" : known,
                   formats::Quoted(name));
}

Result<TokenId> LikeliestLanguage(Runner& runner, const Languages& languages,
                                  std::span<const float> frames, TokenId first) {
  if (languages.tokens.empty()) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}.languages is missing",
                     runner.model().file().path(), runner.model().architecture());
  }
  KVANT_ASSIGN(const SequenceId sequence, runner.NewSequenceOfFrames(frames));
  const Status status = runner.Append(sequence, {&first, 1});
  TokenId best = languages.tokens.front();
  if (status.ok()) {
    const std::span<const float> logits = runner.logits(sequence);
    best = *std::ranges::max_element(languages.tokens, {}, [logits](TokenId token) {
      return logits[static_cast<size_t>(token)];
    });
  }
  KVANT_TRY(runner.FreeSequence(sequence));
  if (!status.ok()) return status.error();
  return best;
}

}  // namespace kvant
