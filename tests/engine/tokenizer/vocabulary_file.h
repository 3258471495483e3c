// Small vocabularies for tests: GGUF metadata put together key by key, right or wrong, and the
// tokenizer that comes of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "kvant/tokenizer.h"
#include "tests/formats/gguf_bytes.h"

namespace kvant::test {

// Values of tokenizer.ggml.token_type.
enum TokenType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

class VocabularyFile {
 public:
  explicit VocabularyFile(std::string_view model) { String("tokenizer.ggml.model", model); }

  VocabularyFile& String(std::string_view key, std::string_view value) {
    return Add(key, Key(key, formats::GgufType::kString).String(value));
  }
  VocabularyFile& U32(std::string_view key, uint32_t value) {
    return Add(key, U32Entry(key, value));
  }
  VocabularyFile& I32(std::string_view key, int32_t value) {
    return Add(key, Key(key, formats::GgufType::kInt32).Number(value));
  }
  VocabularyFile& Bool(std::string_view key, bool value) {
    return Add(key, Key(key, formats::GgufType::kBool).Number(static_cast<uint8_t>(value)));
  }
  VocabularyFile& Strings(std::string_view key, const std::vector<std::string>& values) {
    Bytes entry = ArrayEntry(key, formats::GgufType::kString, values.size());
    for (const std::string& value : values) entry.String(value);
    return Add(key, entry);
  }
  template <class T>
  VocabularyFile& Numbers(std::string_view key, formats::GgufType type,
                          const std::vector<T>& values) {
    Bytes entry = ArrayEntry(key, type, values.size());
    for (const T value : values) entry.Number(value);
    return Add(key, entry);
  }
  VocabularyFile& Remove(std::string_view key) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }

  // The usual arrays by their short names.
  VocabularyFile& Tokens(const std::vector<std::string>& tokens) {
    return Strings("tokenizer.ggml.tokens", tokens);
  }
  VocabularyFile& Types(const std::vector<int32_t>& types) {
    return Numbers("tokenizer.ggml.token_type", formats::GgufType::kInt32, types);
  }
  VocabularyFile& Scores(const std::vector<float>& scores) {
    return Numbers("tokenizer.ggml.scores", formats::GgufType::kFloat32, scores);
  }
  VocabularyFile& Merges(const std::vector<std::string>& merges) {
    return Strings("tokenizer.ggml.merges", merges);
  }

  Bytes Build() const {
    std::vector<Bytes> metadata;
    for (const auto& [key, bytes] : entries_) metadata.push_back(bytes);
    return File(metadata, {}, 0);
  }

 private:
  VocabularyFile& Add(std::string_view key, Bytes entry) {
    Remove(key);
    entries_.emplace_back(key, std::move(entry));
    return *this;
  }
  std::vector<std::pair<std::string, Bytes>> entries_;
};

// A tokenizer with the bytes it refers to. The GgufFile is gone, as after loading a model.
struct TestTokenizer {
  std::unique_ptr<Bytes> bytes;
  Result<std::unique_ptr<Tokenizer>> result;

  const Tokenizer& operator*() const { return *result.value(); }
  const Tokenizer* operator->() const { return result.value().get(); }

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options = {}) const {
    auto ids = result.value()->Encode(text, options);
    return ids.ok() ? std::move(ids).value() : std::vector<TokenId>{-1};
  }
};

inline TestTokenizer MakeTokenizer(const VocabularyFile& vocabulary,
                                   const TokenizerOptions& options = {}) {
  auto bytes = std::make_unique<Bytes>(vocabulary.Build());
  auto file = formats::GgufFile::Parse(bytes->span(), "test.gguf");
  if (!file.ok()) return {std::move(bytes), file.error()};
  auto tokenizer = Tokenizer::Create(*file, options);
  return {std::move(bytes), std::move(tokenizer)};
}

}  // namespace kvant::test
