// Ids of texts and of pairs of texts, with the special tokens around them.
//
// Thread-safety: const after Create.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/embed.h"
#include "kvant/tokenizer.h"

namespace kvant {
class VocabularyTokenizer;
}

namespace kvant::embed {

class TextTokens {
 public:
  // Reads the flags and the template of the file. `segments` is the number of learned rows for
  // segments, 0 without any. The tokenizer must outlive the object. kCorrupt for a template without
  // {query} or {document}.
  static Result<TextTokens> Create(const formats::GgufFile& file, const Tokenizer& tokenizer,
                                   int64_t segments, int64_t context);

  // Embedder::Tokens and Embedder::PairTokens.
  Result<EmbedTokens> Of(std::string_view text, const TextOptions& options) const;
  Result<EmbedTokens> OfPair(std::string_view query, std::string_view document,
                             TooLong too_long) const;

 private:
  using Ids = std::vector<TokenId>;

  explicit TextTokens(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  Status ReadEnds();
  Status ReadSeparator(const formats::GgufFile& file);
  Status ReadTemplate(const formats::GgufFile& file);
  Result<Ids> Encode(std::string_view text, std::string_view what) const;
  // Cuts `ids` where they and `others` other tokens are more than the context has.
  Status Fit(Ids& ids, int64_t others, TooLong too_long, std::string_view what) const;
  Result<EmbedTokens> ByTemplate(std::string_view query, std::string_view document,
                                 TooLong too_long) const;
  Result<Ids> Render(std::string_view query, std::string_view document) const;

  const Tokenizer* tokenizer_;
  const VocabularyTokenizer* vocabulary_ = nullptr;  // the same, where there is a template
  int64_t context_ = 0;
  bool has_segments_ = false;
  Ids before_;            // the special tokens in front of a text
  Ids after_;             // and behind it
  Ids between_;           // follow the latter behind the query of a pair
  std::string template_;  // of pairs; empty: there is none
};

}  // namespace kvant::embed
