// Real vocabularies against ids that other engines gave for them, and the way back to text.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kvant/tokenizer.h"
#include "tests/shared_data.h"

namespace kvant {
namespace {

using test::SharedPath;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Loaded {
  Result<formats::GgufFile> file;
  Result<std::unique_ptr<Tokenizer>> tokenizer;
};

Loaded Load(const std::string& path) {
  auto file = formats::GgufFile::Open(path);
  if (!file.ok()) return {file.error(), file.error()};
  auto tokenizer = Tokenizer::Create(*file);
  return {std::move(file), std::move(tokenizer)};  // the file moves, the pieces stay where they are
}

class KnownIds : public testing::TestWithParam<const char*> {};

TEST_P(KnownIds, MatchEveryLine) {
  const std::string path = SharedPath(std::string("tokenizers/ggml-vocab-") + GetParam() + ".gguf");
  KVANT_SKIP_WITHOUT(path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;

  const std::string separator = "\n__ggml_vocab_test__\n";
  const std::string texts = ReadText(path + ".inp");
  std::ifstream expected(path + ".out");
  int compared = 0;
  size_t begin = 0;
  for (size_t end; (end = texts.find(separator, begin)) != std::string::npos;
       begin = end + separator.size()) {
    const std::string text = texts.substr(begin, end - begin);
    std::string line;
    ASSERT_TRUE(std::getline(expected, line)) << "text " << compared;
    std::istringstream numbers(line);
    const std::vector<TokenId> ids{std::istream_iterator<TokenId>(numbers), {}};
    auto got = loaded.tokenizer.value()->Encode(text, {});
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(*got, ids) << "text " << compared << ": " << text;
    ++compared;
  }
  EXPECT_EQ(compared, 46);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, KnownIds,
                         testing::Values("llama-spm", "phi-3", "gpt-2", "llama-bpe", "qwen2",
                                         "falcon", "deepseek-coder", "bert-bge"));

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, GivesTheTextBack) {
  const std::string path = SharedPath(std::string("tokenizers/ggml-vocab-") + GetParam() + ".gguf");
  const std::string text_path = SharedPath("text/wiki.test.raw");
  KVANT_SKIP_WITHOUT(path);
  KVANT_SKIP_WITHOUT(text_path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;
  const Tokenizer& tokenizer = *loaded.tokenizer.value();

  const std::string text = ReadText(text_path).substr(0, 200000);
  auto ids = tokenizer.Encode(text, {.add_special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer.Decode(*ids, {.special = false}), text);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, RoundTrip,
                         testing::Values("llama-spm", "phi-3", "gpt-2", "llama-bpe", "qwen2",
                                         "falcon", "deepseek-coder"));

class ByteRoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(ByteRoundTrip, GivesAnyBytesBack) {
  const std::string path = SharedPath(std::string("tokenizers/ggml-vocab-") + GetParam() + ".gguf");
  KVANT_SKIP_WITHOUT(path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;
  const Tokenizer& tokenizer = *loaded.tokenizer.value();
  // Every byte, each behind and before various others; little of it is UTF-8.
  std::string bytes;
  for (int i = 0; i < 1024; ++i) {
    bytes += static_cast<char>(i);
    bytes += static_cast<char>(i * 151 / 4);
  }
  const auto ids = tokenizer.Encode(bytes, {});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer.Decode(*ids, {.special = false}), bytes);
}

// The vocabularies that have a token for every byte.
INSTANTIATE_TEST_SUITE_P(Vocabularies, ByteRoundTrip,
                         testing::Values("llama-spm", "phi-3", "gpt-2", "llama-bpe", "qwen2"));

TEST(KnownIds, TinyStoriesHasNoBytes) {
  const std::string path = SharedPath("models/tinystories-656k/TinyStories-656K-f32.gguf");
  KVANT_SKIP_WITHOUT(path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;
  const Tokenizer& tokenizer = *loaded.tokenizer.value();

  auto ids = tokenizer.Encode("Once upon a time", {.add_special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<TokenId>{1, 80, 147, 201, 282, 57}));
  EXPECT_EQ(tokenizer.Decode(*ids, {.special = false}), "Once upon a time");

  // Unknown characters are the unknown token, a run of them only one.
  ids = tokenizer.Encode("a\xF0\x9F\xA6\x99\xE5\xA4\xA9 a\xFF", {});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), *tokenizer.special().unk), 2);
  EXPECT_TRUE(tokenizer.is_end_of_generation(2));
}

TEST(KnownIds, Phi3SpecialTokensTakeTheWhiteSpaceBehindThem) {
  const std::string path = SharedPath("tokenizers/ggml-vocab-phi-3.gguf");
  KVANT_SKIP_WITHOUT(path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;
  const Tokenizer& tokenizer = *loaded.tokenizer.value();

  const auto hello = tokenizer.Encode("Hello", {});
  ASSERT_TRUE(hello.ok() && hello->size() == 1);
  auto ids = tokenizer.Encode("<|user|>\n Hello<|end|>\n<|assistant|>\n", {.parse_special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<TokenId>{32010, hello->front(), 32007, 32001}));

  ids = tokenizer.Encode("<|user|>", {});
  ASSERT_TRUE(ids.ok());
  EXPECT_GT(ids->size(), 1U);
  EXPECT_EQ(tokenizer.special().eot, 32007);
  EXPECT_TRUE(tokenizer.is_end_of_generation(32000) && tokenizer.is_end_of_generation(32007));
  EXPECT_FALSE(tokenizer.is_end_of_generation(32010));
}

TEST(KnownIds, Llama3AddsItsBeginning) {
  const std::string path = SharedPath("tokenizers/ggml-vocab-llama-bpe.gguf");
  KVANT_SKIP_WITHOUT(path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;
  const Tokenizer& tokenizer = *loaded.tokenizer.value();
  auto ids = tokenizer.Encode("<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
                              {.add_special = true, .parse_special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<TokenId>{128000, 128006, 882, 128007, 271, 13347, 128009}));
  EXPECT_EQ(tokenizer.Decode(*ids, {.special = false}), "user\n\nHi");
  EXPECT_EQ(tokenizer.TokenBytes(128009, {.special = true}), "<|eot_id|>");
  EXPECT_EQ(tokenizer.pre_tokenizer(), "llama-bpe");
}

TEST(KnownIds, QwenNormalizesToNfc) {
  const std::string path = SharedPath("tokenizers/ggml-vocab-qwen2.gguf");
  KVANT_SKIP_WITHOUT(path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;
  const Tokenizer& tokenizer = *loaded.tokenizer.value();
  const auto composed = tokenizer.Encode("caf\u00E9 \uD55C", {});
  const auto decomposed = tokenizer.Encode("cafe\u0301 \u1112\u1161\u11AB", {});
  ASSERT_TRUE(composed.ok() && decomposed.ok());
  EXPECT_EQ(*composed, *decomposed);
  EXPECT_FALSE(tokenizer.special().add_bos);
}

TEST(KnownIds, BertPutsItsMarksAround) {
  const std::string path = SharedPath("tokenizers/ggml-vocab-bert-bge.gguf");
  KVANT_SKIP_WITHOUT(path);
  const Loaded loaded = Load(path);
  ASSERT_TRUE(loaded.tokenizer.ok()) << loaded.tokenizer.error().message;
  const Tokenizer& tokenizer = *loaded.tokenizer.value();
  auto ids = tokenizer.Encode("H\u00C9LLO, world", {.add_special = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, (std::vector<TokenId>{101, 7592, 1010, 2088, 102}));
  EXPECT_EQ(tokenizer.Decode(*ids, {.special = false}), "hello , world");
  // 101 letters are too many for a word.
  ids = tokenizer.Encode(std::string(101, 'a'), {});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, std::vector<TokenId>{100});
}

}  // namespace
}  // namespace kvant
