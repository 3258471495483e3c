// The lists of tokens of a CTranslate2 folder: the texts of all ids of the source's vocabulary and
// of the target's, or of both where they share one.
//
// Files: vocabulary, shared_vocabulary, or source_vocabulary and target_vocabulary, each with the
// ending .json (an array of texts) or .txt (a line each, as older versions write). Errors name the
// file and the id. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/convert/vocabulary.h"

namespace kvant::convert {

struct TokenList {
  std::string file;
  std::vector<std::string> tokens;  // by id

  // The first id of a text.
  std::optional<int64_t> Find(std::string_view text) const;
  // kCorrupt where the list has another length than the embedding has rows.
  Status CheckSize(int64_t rows) const;
  // kCorrupt where a vocabulary that was read of other files of the folder has other tokens. Ids
  // that either of them has no text for are not compared.
  Status Compare(const Vocabulary& vocabulary) const;
};

struct TokenLists {
  TokenList source;
  std::optional<TokenList> target;  // where it is not the source's

  const TokenList& decoder() const { return target ? *target : source; }
};

Result<TokenLists> ReadTokenLists(const std::string& folder);

}  // namespace kvant::convert
