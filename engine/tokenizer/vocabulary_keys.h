// Where a vocabulary stands in a file: the beginning of its keys. A file has one under
// "tokenizer.ggml", and may have more: the pieces that texts are cut into, where ids stand in a
// list of their own, and the vocabulary of the texts that a translator writes.
//
// Thread-safety: const; the file must outlive it only while it is read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/gguf.h"
#include "kvant/token_id.h"

namespace kvant {

inline constexpr std::string_view kVocabularyPrefix = "tokenizer.ggml";
inline constexpr std::string_view kTargetVocabularyPrefix = "tokenizer.target";
inline constexpr std::string_view kPiecesSuffix = ".pieces";

class VocabularyKeys {
 public:
  explicit VocabularyKeys(const formats::GgufFile& file,
                          std::string_view prefix = kVocabularyPrefix)
      : file_(&file), prefix_(prefix) {}

  const formats::GgufFile& file() const { return *file_; }
  const std::string& path() const { return file_->path(); }
  const std::string& prefix() const { return prefix_; }
  // "tokenizer.ggml.tokens"
  std::string Key(std::string_view name) const { return prefix_ + "." + std::string(name); }

  const formats::GgufValue* Find(std::string_view name) const { return file_->Find(Key(name)); }
  Result<std::optional<bool>> GetBool(std::string_view name) const {
    return file_->GetBool(Key(name));
  }
  Result<std::optional<uint32_t>> GetU32(std::string_view name) const {
    return file_->GetU32(Key(name));
  }
  Result<std::optional<std::string_view>> GetString(std::string_view name) const {
    return file_->GetString(Key(name));
  }
  Result<const formats::GgufArray*> GetArray(std::string_view name,
                                             formats::GgufType element) const {
    return file_->GetArray(Key(name), element);
  }
  // An array that must have one element per token; null if the key is absent.
  Result<const formats::GgufArray*> PerToken(std::string_view name, formats::GgufType element,
                                             size_t tokens) const;

 private:
  const formats::GgufFile* file_;
  std::string prefix_;
};

// An id of a file: absent, none by the file's own word, or a token.
struct FoundId {
  bool given = false;
  std::optional<TokenId> id = {};
};

// The id of a key, of a vocabulary with so many tokens. kCorrupt for one that it does not have.
Result<FoundId> ReadId(const VocabularyKeys& keys, const char* name, size_t tokens);

}  // namespace kvant
