#include "engine/text/languages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "base/result.h"
#include "formats/quoted.h"

namespace kvant {
namespace {

constexpr size_t kShownMax = 120;     // languages that an error lists
constexpr size_t kNearestMax = 6;     // that it lists where there are more
constexpr size_t kNameBytesMax = 32;  // of names that are compared

// The number of the word that a key has, one of several; 0 where the key is absent.
Result<size_t> WordOf(const formats::GgufFile& file, const std::string& key,
                      std::span<const std::string_view> words) {
  KVANT_ASSIGN(const auto word, file.GetString(key));
  if (!word.has_value()) return size_t{0};
  const auto found = std::find(words.begin(), words.end(), *word);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {}, found {}", file.path(), key,
                   fmt::join(words, " or "), formats::Quoted(*word));
}

Status CheckToken(const formats::GgufFile& file, const std::string& key, int64_t token,
                  int32_t vocab) {
  if (token >= 0 && token < vocab) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected tokens below {}, found {}",
                   file.path(), key, vocab, token);
}

// Changes of one byte that make one name the other.
size_t Distance(std::string_view left, std::string_view right) {
  left = left.substr(0, kNameBytesMax);
  right = right.substr(0, kNameBytesMax);
  std::vector<size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t k = 1; k <= right.size(); ++k) {
      const size_t changed = diagonal + (left[i - 1] == right[k - 1] ? 0 : 1);
      diagonal = row[k];
      row[k] = std::min({row[k] + 1, row[k - 1] + 1, changed});
    }
  }
  return row.back();
}

std::string KnownLanguages(std::vector<std::string_view> names, std::string_view wanted) {
  if (names.empty()) return "it has none";
  if (names.size() <= kShownMax) return fmt::format("{}", fmt::join(names, ", "));
  const size_t all = names.size();
  // "deu" is as near to "deu_Latn" as it can be.
  const auto distance = [&](std::string_view name) {
    return std::min(Distance(wanted, name), Distance(wanted, name.substr(0, name.find('_'))));
  };
  std::stable_sort(names.begin(), names.end(), [&](std::string_view left, std::string_view right) {
    return distance(left) < distance(right);
  });
  names.resize(kNearestMax);
  return fmt::format("the nearest of {}: {}", all, fmt::join(names, ", "));
}

}  // namespace

std::string_view LanguageName(std::string_view token) {
  for (const auto& [left, right] :
       {std::pair{"__", "__"}, std::pair{">>", "<<"}, std::pair{"<|", "|>"}}) {
    const bool framed = token.size() > 4 && token.starts_with(left) && token.ends_with(right);
    if (framed) return token.substr(2, token.size() - 4);
  }
  return token;
}

Result<Languages> ReadLanguages(const formats::GgufFile& file, std::string_view architecture,
                                int32_t vocab) {
  constexpr std::string_view kSourceWords[] = {"before", "behind", "none"};
  constexpr std::string_view kTargetWords[] = {"forced", "first", "source"};
  Languages out;
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  KVANT_ASSIGN(const formats::GgufArray* tokens,
               file.GetArray(key("languages"), formats::GgufType::kInt32));
  if (tokens == nullptr) return out;
  for (uint64_t i = 0; i < tokens->count; ++i) {
    int32_t token = 0;
    std::memcpy(&token, tokens->data + i * sizeof token, sizeof token);
    KVANT_TRY(CheckToken(file, key("languages"), token, vocab));
    out.tokens.push_back(token);
  }
  KVANT_ASSIGN(const size_t source, WordOf(file, key("source_language"), kSourceWords));
  KVANT_ASSIGN(const size_t target, WordOf(file, key("target_language"), kTargetWords));
  out.source = static_cast<SourceLanguage>(source);
  out.target = static_cast<TargetLanguage>(target);
  KVANT_ASSIGN(const auto usual, file.GetU32(key("usual_source_language")));
  if (usual) {
    KVANT_TRY(CheckToken(file, key("usual_source_language"), *usual, vocab));
    out.usual_source = static_cast<TokenId>(*usual);
  }
  return out;
}

Result<Languages> ReadLanguages(const Model& model) {
  return ReadLanguages(model.file(), model.architecture(), model.source_tokenizer().vocab_size());
}

Result<TokenId> FindLanguage(const Model& model, const Languages& languages,
                             std::string_view name) {
  std::vector<TokenId> alike;
  std::vector<std::string_view> known;
  for (const TokenId token : languages.tokens) {
    const std::string_view text = model.source_tokenizer().piece(token);
    const std::string_view bare = LanguageName(text);
    if (text == name || bare == name) return token;
    const bool begins = !name.empty() && bare.starts_with(name) && bare.size() > name.size() &&
                        bare[name.size()] == '_';
    if (begins) alike.push_back(token);
    known.push_back(bare);
  }
  if (alike.size() == 1) return alike.front();
  return MakeError(ErrorCode::kInvalid, "{}: expected a language of the model ({}), found {}",
                   model.file().path(), KnownLanguages(known, name), formats::Quoted(name));
}

Result<TokenId> LikeliestLanguage(Runner& runner, const Languages& languages, SequenceId sequence,
                                  TokenId first) {
  if (languages.tokens.empty()) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}.languages is missing",
                     runner.model().file().path(), runner.model().architecture());
  }
  KVANT_TRY(runner.Append(sequence, {&first, 1}));
  const std::span<const float> logits = runner.logits(sequence);
  const TokenId best = *std::ranges::max_element(
      languages.tokens, {}, [logits](TokenId token) { return logits[static_cast<size_t>(token)]; });
  KVANT_TRY(runner.Rewind(sequence, 0));
  return best;
}

Result<TokenId> LikeliestLanguage(Runner& runner, const Languages& languages,
                                  std::span<const float> frames, TokenId first) {
  KVANT_ASSIGN(const SequenceId sequence, runner.NewSequenceOfFrames(frames));
  auto found = LikeliestLanguage(runner, languages, sequence, first);
  KVANT_TRY(runner.FreeSequence(sequence));
  return found;
}

Result<Translation> MakeTranslation(const Model& model, const LanguageNames& names) {
  Translation out;
  out.first = model.decoder_start();
  KVANT_ASSIGN(const Languages languages, ReadLanguages(model));
  out.forces_language = !languages.tokens.empty() && languages.target == TargetLanguage::kForced;
  std::optional<TokenId> source = languages.usual_source;
  if (names.source) {
    if (languages.source == SourceLanguage::kNone) {
      return MakeError(ErrorCode::kInvalid,
                       "{}: the model is told no language of its sources, found {}",
                       model.file().path(), formats::Quoted(*names.source));
    }
    KVANT_ASSIGN(source, FindLanguage(model, languages, *names.source));
  }
  if (source && languages.source != SourceLanguage::kNone) {
    const bool behind = languages.source == SourceLanguage::kBehind;
    (behind ? out.behind_source : out.before_source).push_back(*source);
  }
  if (!names.target) return out;
  KVANT_ASSIGN(const TokenId target, FindLanguage(model, languages, *names.target));
  switch (languages.target) {
    case TargetLanguage::kForced: out.forced = target; break;
    case TargetLanguage::kFirst: out.first = target; break;
    case TargetLanguage::kSource: out.before_source.push_back(target); break;
  }
  return out;
}

Result<std::vector<TokenId>> EncodeSource(const Model& model, const Translation& translation,
                                          std::string_view text) {
  KVANT_ASSIGN(auto tokens,
               model.source_tokenizer().Encode(text, {.add_special = true, .parse_special = true}));
  tokens.insert(tokens.begin(), translation.before_source.begin(), translation.before_source.end());
  tokens.insert(tokens.end(), translation.behind_source.begin(), translation.behind_source.end());
  return tokens;
}

Result<std::vector<TokenId>> EncodeTarget(const Model& model, const Translation& translation,
                                          std::string_view text, TargetEnd end) {
  std::vector<TokenId> tokens;
  if (translation.first) tokens.push_back(*translation.first);
  if (translation.forced) tokens.push_back(*translation.forced);
  const Tokenizer& tokenizer = model.tokenizer();
  KVANT_ASSIGN(const auto written,
               tokenizer.Encode(text, {.add_special = true, .parse_special = true}));
  tokens.insert(tokens.end(), written.begin(), written.end());
  const bool ends = end == TargetEnd::kOpen && tokenizer.special().add_eos && !written.empty() &&
                    written.back() == tokenizer.special().eos;
  if (ends) tokens.pop_back();
  return tokens;
}

}  // namespace kvant
