#include "engine/embed/text_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/result.h"
#include "engine/tokenizer/unicode.h"
#include "engine/tokenizer/vocabulary.h"
#include "kvant/text_range.h"

namespace kvant::embed {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template.rerank";
constexpr const char* kSeparatorKey = "tokenizer.ggml.add_sep_token";
constexpr std::string_view kQuery = "{query}";
constexpr std::string_view kDocument = "{document}";
constexpr std::string_view kPair = "query with its document";

void Append(const std::vector<TokenId>& more, std::vector<TokenId>& ids) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

Result<TextTokens> TextTokens::Create(const formats::GgufFile& file, const Tokenizer& tokenizer,
                                      int64_t segments, int64_t context) {
  TextTokens tokens(tokenizer);
  tokens.context_ = context;
  tokens.has_segments_ = segments > 1;
  KVANT_TRY(tokens.ReadEnds());
  KVANT_TRY(tokens.ReadSeparator(file));
  KVANT_TRY(tokens.ReadTemplate(file));
  return tokens;
}

// The tokenizer puts around a text whatever it puts around any text.
Status TextTokens::ReadEnds() {
  constexpr std::string_view kSample = "a";
  KVANT_ASSIGN(const Ids plain, tokenizer_->Encode(kSample, {}));
  KVANT_ASSIGN(const Ids all, tokenizer_->Encode(kSample, {.add_special = true}));
  const auto found = std::ranges::search(all, plain);
  before_.assign(all.begin(), found.begin());
  after_.assign(found.end(), all.end());
  return {};
}

// BERT has one separator between two texts, RoBERTa two. Files of other tokenizers than BERT's say
// it by a flag; those that do not are RoBERTa's where they name a separator.
Status TextTokens::ReadSeparator(const formats::GgufFile& file) {
  KVANT_ASSIGN(const auto given, file.GetBool(kSeparatorKey));
  const SpecialTokens& special = tokenizer_->special();
  const std::optional<TokenId> separator = special.sep.has_value() ? special.sep : special.eos;
  const bool is_bert = std::string_view(tokenizer_->kind()) == "wordpiece";
  const bool doubled = given.value_or(special.sep.has_value());
  if (separator.has_value() && doubled && !(is_bert && !after_.empty())) {
    between_.push_back(*separator);
  }
  return {};
}

Status TextTokens::ReadTemplate(const formats::GgufFile& file) {
  KVANT_ASSIGN(const auto text, file.GetString(kTemplateKey));
  if (!text.has_value()) return {};
  for (const std::string_view place : {kQuery, kDocument}) {
    if (text->find(place) != std::string_view::npos) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} in it, found none", file.path(),
                     kTemplateKey, place);
  }
  vocabulary_ = dynamic_cast<const VocabularyTokenizer*>(tokenizer_);
  if (vocabulary_ == nullptr) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: key {}: a tokenizer of kind {} has no templates", file.path(),
                     kTemplateKey, tokenizer_->kind());
  }
  template_ = *text;
  return {};
}

Result<TextTokens::Ids> TextTokens::Encode(std::string_view text, std::string_view what) const {
  KVANT_ASSIGN(Ids ids, tokenizer_->Encode(text, {}));
  if (ids.empty()) {
    return MakeError(ErrorCode::kInvalid, "the {} is empty: expected at least one token", what);
  }
  return ids;
}

Status TextTokens::Fit(Ids& ids, int64_t others, TooLong too_long, std::string_view what) const {
  const int64_t all = std::ssize(ids) + others;
  if (all <= context_) return {};
  if (too_long == TooLong::kRefused || others >= context_) {
    return MakeError(ErrorCode::kContextFull, "the {} has {} tokens, but the context has {}", what,
                     all, context_);
  }
  ids.resize(static_cast<size_t>(context_ - others));
  return {};
}

Result<EmbedTokens> TextTokens::Of(std::string_view text, const TextOptions& options) const {
  // The prompt may not stand alone.
  KVANT_ASSIGN(Ids ids, Encode(text, "text"));
  if (!options.prompt.empty()) {
    KVANT_ASSIGN(ids, Encode(std::string(options.prompt) + std::string(text), "text"));
  }
  KVANT_TRY(Fit(ids, std::ssize(before_) + std::ssize(after_), options.too_long, "text"));
  EmbedTokens tokens;
  tokens.ids = before_;
  Append(ids, tokens.ids);
  Append(after_, tokens.ids);
  return tokens;
}

Result<EmbedTokens> TextTokens::OfPair(std::string_view query, std::string_view document,
                                       TooLong too_long) const {
  KVANT_ASSIGN(const Ids first, Encode(query, "query"));
  KVANT_ASSIGN(Ids second, Encode(document, "document"));
  if (!template_.empty()) return ByTemplate(query, document, too_long);
  EmbedTokens tokens;
  tokens.ids = before_;
  for (const Ids* ids : {&first, &after_, &between_}) Append(*ids, tokens.ids);
  const auto of_query = static_cast<size_t>(std::ssize(tokens.ids));
  KVANT_TRY(Fit(second, static_cast<int64_t>(of_query) + std::ssize(after_), too_long, kPair));
  Append(second, tokens.ids);
  Append(after_, tokens.ids);
  if (has_segments_) {
    tokens.types.resize(tokens.ids.size(), 1);
    std::fill_n(tokens.types.begin(), of_query, 0);
  }
  return tokens;
}

// The template with both texts in it. What they say never becomes a control token, and yet words
// meet the template's as in one text.
Result<TextTokens::Ids> TextTokens::Render(std::string_view query,
                                           std::string_view document) const {
  std::string text;
  std::vector<TextRange> plain;
  for (std::string_view rest = template_; !rest.empty();) {
    const size_t of_query = rest.find(kQuery);
    const size_t of_document = rest.find(kDocument);
    const size_t at = std::min(of_query, of_document);
    text += rest.substr(0, at);
    if (at == std::string_view::npos) break;
    const bool is_query = of_query < of_document;
    const size_t begin = text.size();
    text += is_query ? query : document;
    plain.push_back({begin, text.size()});
    rest.remove_prefix(at + (is_query ? kQuery : kDocument).size());
  }
  KVANT_ASSIGN(Encoding encoding, vocabulary_->EncodeAround(text, plain));
  return std::move(encoding.ids);
}

Result<EmbedTokens> TextTokens::ByTemplate(std::string_view query, std::string_view document,
                                           TooLong too_long) const {
  EmbedTokens tokens;
  KVANT_ASSIGN(tokens.ids, Render(query, document));
  if (std::ssize(tokens.ids) <= context_) return tokens;
  KVANT_ASSIGN(const Ids shortest, Render(query, ""));
  if (too_long == TooLong::kRefused || std::ssize(shortest) > context_) {
    return Fit(tokens.ids, 0, TooLong::kRefused, kPair).error();
  }
  // The longest beginning of the document that fits, in whole characters, by halving the interval.
  size_t fits = 0;
  for (size_t end = document.size(); end - fits > 1;) {
    const size_t middle = fits + (end - fits) / 2;
    const std::string_view cut = document.substr(0, middle);
    KVANT_ASSIGN(Ids ids, Render(query, cut.substr(0, ValidUtf8Prefix(cut))));
    if (std::ssize(ids) <= context_) {
      fits = middle;
      tokens.ids = std::move(ids);
    } else {
      end = middle;
    }
  }
  if (fits == 0) tokens.ids = shortest;
  return tokens;
}

}  // namespace kvant::embed
