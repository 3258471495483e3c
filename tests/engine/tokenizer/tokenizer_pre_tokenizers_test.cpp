// Compares where pre-tokenizers cut with Hugging Face's tokenizers library (see
// tests/reference/make_pre_tokenizer_cases.py), and cuts bytes that are not text.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/tokenizer/pre_tokenizers.h"
#include "engine/tokenizer/unicode.h"
#include "tests/shared_data.h"

namespace kvant {
namespace {

std::unique_ptr<PreTokenizer> Make(std::string_view name) {
  auto made = PreTokenizer::Create(name);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.ok() ? std::move(made).value() : nullptr;
}

size_t CodePoints(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

TEST(PreTokenizers, CutWhereHuggingFaceDoes) {
  std::ifstream stream(test::SourcePath("tests/reference/pre_tokenizers.json"));
  const nlohmann::json reference = nlohmann::json::parse(stream);
  const auto texts = reference["texts"].get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 100U);
  for (const auto& [name, tables] : reference["words"].items()) {
    const auto pre = Make(name);
    ASSERT_NE(pre, nullptr) << name;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string text = pre->row().normalize_nfc ? NormalizeNfc(texts[i]) : texts[i];
      std::vector<size_t> lengths;
      size_t begin = 0;
      for (const size_t end : pre->Split(text)) {
        lengths.push_back(CodePoints(std::string_view(text).substr(begin, end - begin)));
        begin = end;
      }
      EXPECT_EQ(lengths, tables[i].get<std::vector<size_t>>())
          << name << ", text " << i << ": " << texts[i];
    }
  }
}

// Every name of llama.cpp of October 2026.
constexpr const char* kLlamaCppNames =
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx "
    "smaug-bpe chatglm-bpe glm4 glm5 minicpm5 jais-2 k2-horizon qwen2 deepseek-r1-qwen "
    "kormo megrez stablelm2 f2llmv2 hunyuan solar-open grok-2 qwen35 ufakzeka laguna "
    "seed-coder bailingmoe bailingmoe2 llada-moe exaone-moe gpt-2 phi-2 gigachat a.x-4.0 "
    "mellum modern-bert exaone4 jina-es jina-de jina-v2-es jina-v2-de mpt olmo jais "
    "trillion granite-docling jina-v1-en jina-v2-code roberta-bpe starcoder refact "
    "command-r smollm codeshell exaone minerva-7b mellum2 falcon default deepseek-llm "
    "deepseek-coder deepseek-v3 hunyuan-dense joyai-llm hy_v4 spark2_5 afmoe youtu "
    "tekken gpt-4o llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m tiny_aya "
    "cohere2moe kimi-k2 poro-chat bloom gpt3-finnish viking superbpe chameleon gemma4 "
    "granite-embed-multi-311m mmbert sarvam-moe whitespace";

TEST(PreTokenizers, KnowsTheNamesOfLlamaCpp) {
  std::istringstream names(kLlamaCppNames);
  int count = 0;
  for (std::string name; names >> name; ++count) EXPECT_NE(Make(name), nullptr) << name;
  EXPECT_EQ(count, 93);
}

TEST(PreTokenizers, DefaultIsThatOfLlamaCpp) {
  // Punctuation without the back-tick in runs, numbers cut in threes from the left.
  const std::string text = "ab!!`x 12345";
  for (const char* name : {"", "default"}) {
    EXPECT_EQ(Make(name)->Split(text), (std::vector<size_t>{2, 4, 5, 6, 7, 10, 12})) << name;
  }
}

TEST(PreTokenizers, EveryNameIsKnownOnce) {
  std::set<std::string_view> names;
  for (const PreTokenizerRow& row : PreTokenizerRows()) {
    for (const std::string_view name : row.names) {
      EXPECT_TRUE(names.insert(name).second) << name;
      const auto pre = Make(name);
      ASSERT_NE(pre, nullptr);
      EXPECT_EQ(&pre->row(), &row);
    }
  }
  for (const char* required :
       {"gpt-2",     "llama-bpe",      "llama3",       "llama-v3",  "qwen2",  "deepseek-r1-qwen",
        "falcon",    "deepseek-coder", "deepseek-llm", "starcoder", "refact", "mpt",
        "command-r", "phi-2",          "smollm",       "tekken",    "gpt-4o", "jina-v2-de",
        "codeshell", "olmo",           "dbrx"}) {
    EXPECT_TRUE(names.contains(required)) << required;
  }
}

TEST(PreTokenizers, UnknownNameIsRefusedWithTheKnownOnes) {
  const auto made = PreTokenizer::Create("gpt-7");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kNotSupported);
  EXPECT_NE(made.error().message.find("gpt-7"), std::string::npos);
  EXPECT_NE(made.error().message.find("llama-bpe"), std::string::npos);
}

TEST(PreTokenizers, InvalidBytesAreCutAsReplacementCharacters) {
  // An overlong form, a lone continuation, a truncated character, a surrogate, then text.
  const std::string invalid = "ab\xC0\xAF cd\x80\xE5\xA4 12\xED\xA0\x80";
  const auto pre = Make("llama-bpe");
  // The text with U+FFFD for each maximal subpart, and the origin of its bytes.
  std::string replaced;
  std::vector<size_t> origin;  // of every byte of `replaced` and of its end
  for (size_t i = 0; i < invalid.size();) {
    const Utf8Char c = DecodeUtf8(std::string_view(invalid).substr(i));
    const std::string_view shown = c.state == Utf8State::kValid
                                       ? std::string_view(invalid).substr(i, c.size)
                                       : kReplacementUtf8;
    replaced += shown;
    origin.insert(origin.end(), shown.size(), i);
    i += c.size;
  }
  origin.push_back(invalid.size());
  std::vector<size_t> expected;
  for (const size_t end : pre->Split(replaced)) expected.push_back(origin[end]);
  EXPECT_EQ(pre->Split(invalid), expected);
  EXPECT_GT(expected.size(), 4U);
}

TEST(PreTokenizers, EndsAscendToTheEndOfAnyBytes) {
  uint32_t state = 1;
  for (const PreTokenizerRow& row : PreTokenizerRows()) {
    const auto pre = Make(row.names.front());
    EXPECT_TRUE(pre->Split("").empty());
    for (int round = 0; round < 50; ++round) {
      std::string bytes;
      for (int i = 0; i < 40; ++i) {
        state = state * 1664525 + 1013904223;
        bytes += static_cast<char>(state >> 24);
      }
      size_t begin = 0;
      for (const size_t end : pre->Split(bytes)) {
        ASSERT_GT(end, begin);
        begin = end;
      }
      ASSERT_EQ(begin, bytes.size());
    }
  }
}

// A quadratic expression would need minutes for each of these.
TEST(PreTokenizers, LongRunsTakeLinearTime) {
  constexpr size_t kSize = 1 << 18;
  const std::string runs[] = {std::string(kSize, ' ') + "1",  std::string(kSize, 'A'),
                              std::string(kSize, '\n') + "x", std::string(kSize, '!'),
                              std::string(kSize, '1'),        std::string(kSize, '1') + "a"};
  for (const PreTokenizerRow& row : PreTokenizerRows()) {
    const auto pre = Make(row.names.front());
    for (const std::string& run : runs) EXPECT_EQ(pre->Split(run).back(), run.size());
  }
}

}  // namespace
}  // namespace kvant
