// Vocabularies that contradict themselves are refused with the key in the message; strange ones
// that do not are served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>

#include "base/log.h"
#include "formats/gguf.h"
#include "tests/engine/tokenizer/vocabulary_file.h"

namespace kvant {
namespace {

using formats::GgufType;
using test::MakeTokenizer;
using test::TestTokenizer;
using test::VocabularyFile;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Collects the warnings of the library.
struct Warnings {
  Warnings() {
    SetLogSink([this](LogLevel, std::string_view line) { lines.emplace_back(line); });
  }
  ~Warnings() { SetLogSink({}); }
  std::vector<std::string> lines;
};

VocabularyFile Spm() {
  return VocabularyFile("llama")
      .Tokens({"<unk>", "<s>", "</s>", "\u2581", "a"})
      .Types({2, 3, 3, 1, 1})
      .Scores({0, 0, 0, -1, -2});
}

VocabularyFile Bpe() {
  return VocabularyFile("gpt2")
      .String("tokenizer.ggml.pre", "gpt-2")
      .Tokens({"a", "b", "ab"})
      .Merges({"a b"});
}

struct Case {
  const char* name;
  std::function<VocabularyFile()> make;
  ErrorCode code;
  const char* expected;  // part of the message
};

class Contradiction : public testing::TestWithParam<Case> {};

TEST_P(Contradiction, IsRefusedByName) {
  const TestTokenizer tokenizer = MakeTokenizer(GetParam().make());
  ASSERT_FALSE(tokenizer.result.ok());
  EXPECT_EQ(tokenizer.result.error().code, GetParam().code);
  EXPECT_THAT(tokenizer.result.error().message,
              AllOf(HasSubstr("test.gguf"), HasSubstr(GetParam().expected), Not(HasSubstr("\n"))));
}

INSTANTIATE_TEST_SUITE_P(
    Metadata, Contradiction,
    testing::Values(
        Case{"no_model", [] { return Spm().Remove("tokenizer.ggml.model"); },
             ErrorCode::kNotSupported, "tokenizer.ggml.model"},
        Case{"unknown_model", [] { return VocabularyFile("rw\nkv"); }, ErrorCode::kNotSupported,
             "rw\\nkv"},
        Case{"model_is_number", [] { return Spm().U32("tokenizer.ggml.model", 1); },
             ErrorCode::kCorrupt, "tokenizer.ggml.model"},
        Case{"unknown_pre", [] { return Bpe().String("tokenizer.ggml.pre", "x-9"); },
             ErrorCode::kNotSupported, "x-9"},
        Case{"no_tokens", [] { return Spm().Remove("tokenizer.ggml.tokens"); }, ErrorCode::kCorrupt,
             "tokenizer.ggml.tokens"},
        Case{"empty_tokens", [] { return Spm().Tokens({}); }, ErrorCode::kCorrupt,
             "tokenizer.ggml.tokens"},
        Case{"tokens_are_numbers",
             [] {
               return Spm().Numbers<int32_t>("tokenizer.ggml.tokens", GgufType::kInt32, {1, 2});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.tokens"},
        Case{"tokens_is_no_array", [] { return Spm().U32("tokenizer.ggml.tokens", 3); },
             ErrorCode::kCorrupt, "tokenizer.ggml.tokens"},
        Case{"few_types",
             [] {
               return Spm().Types({2, 3, 3});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.token_type"},
        Case{"many_types",
             [] {
               return Spm().Types({2, 3, 3, 1, 1, 1});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.token_type"},
        Case{"type_7",
             [] {
               return Spm().Types({2, 3, 3, 1, 7});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.token_type[4]"},
        Case{"type_negative",
             [] {
               return Spm().Types({-1, 3, 3, 1, 1});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.token_type[0]"},
        Case{"types_are_bytes",
             [] {
               return Spm().Numbers<uint8_t>("tokenizer.ggml.token_type", GgufType::kUint8,
                                             {2, 3, 3, 1, 1});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.token_type"},
        Case{"few_scores",
             [] {
               return Spm().Scores({0, 0});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.scores"},
        Case{"score_is_nan",
             [] {
               return Spm().Scores({0, 0, 0, std::numeric_limits<float>::quiet_NaN(), 0});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.scores[3]"},
        Case{"scores_are_doubles",
             [] {
               return Spm().Numbers<double>("tokenizer.ggml.scores", GgufType::kFloat64,
                                            {0, 0, 0, 0, 0});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.scores"},
        Case{"byte_without_value",
             [] {
               return Spm().Types({2, 3, 3, 1, 6});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.tokens[4]"},
        Case{"bos_beyond", [] { return Spm().U32("tokenizer.ggml.bos_token_id", 5); },
             ErrorCode::kCorrupt, "tokenizer.ggml.bos_token_id"},
        Case{"eos_beyond", [] { return Spm().U32("tokenizer.ggml.eos_token_id", 0xFFFFFFFE); },
             ErrorCode::kCorrupt, "tokenizer.ggml.eos_token_id"},
        Case{"eos_below", [] { return Spm().I32("tokenizer.ggml.eos_token_id", -2); },
             ErrorCode::kCorrupt, "tokenizer.ggml.eos_token_id"},
        Case{"unknown_beyond", [] { return Bpe().U32("tokenizer.ggml.unknown_token_id", 3); },
             ErrorCode::kCorrupt, "tokenizer.ggml.unknown_token_id"},
        Case{"eom_beyond", [] { return Bpe().U32("tokenizer.ggml.eom_token_id", 3); },
             ErrorCode::kCorrupt, "tokenizer.ggml.eom_token_id"},
        Case{"bos_is_text", [] { return Spm().String("tokenizer.ggml.bos_token_id", "1"); },
             ErrorCode::kCorrupt, "tokenizer.ggml.bos_token_id"},
        Case{"add_bos_is_number", [] { return Spm().U32("tokenizer.ggml.add_bos_token", 1); },
             ErrorCode::kCorrupt, "tokenizer.ggml.add_bos_token"},
        Case{"no_merges", [] { return Bpe().Remove("tokenizer.ggml.merges"); }, ErrorCode::kCorrupt,
             "tokenizer.ggml.merges"},
        Case{"merges_are_numbers",
             [] { return Bpe().Numbers<int32_t>("tokenizer.ggml.merges", GgufType::kInt32, {1}); },
             ErrorCode::kCorrupt, "tokenizer.ggml.merges"},
        Case{"merge_without_space",
             [] {
               return Bpe().Merges({"a b", "ab"});
             },
             ErrorCode::kCorrupt, "tokenizer.ggml.merges[1]"},
        Case{"merge_without_right", [] { return Bpe().Merges({"a "}); }, ErrorCode::kCorrupt,
             "tokenizer.ggml.merges[0]"},
        Case{"merge_without_left", [] { return Bpe().Merges({" b"}); }, ErrorCode::kCorrupt,
             "tokenizer.ggml.merges[0]"},
        Case{"merge_empty", [] { return Bpe().Merges({""}); }, ErrorCode::kCorrupt,
             "tokenizer.ggml.merges[0]"}),
    [](const auto& test) { return std::string(test.param.name); });

// Every text with every option: ids within the vocabulary, and text comes back of them.
void Exercise(const VocabularyFile& vocabulary) {
  const TestTokenizer tokenizer = MakeTokenizer(vocabulary);
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  using namespace std::string_literals;
  for (const std::string& text : {""s, "a"s, "ab ba\0b"s, "\xFF\xC3"s, "<|im_end|>"s, "\u2581"s}) {
    for (const bool add : {false, true}) {
      for (const bool parse : {false, true}) {
        const auto ids = tokenizer.Encode(text, {.add_special = add, .parse_special = parse});
        for (const TokenId id : ids) {
          ASSERT_GE(id, 0);
          ASSERT_LT(id, tokenizer->vocab_size());
        }
        tokenizer->Decode(ids, {.special = parse});
      }
    }
  }
}

TEST(Metadata, StrangeVocabulariesAreServed) {
  using namespace std::string_literals;
  // Empty and repeated tokens, NUL within one, and nothing that text could become.
  const std::vector<std::string> tokens{"", "", "a", "a", "a\0b"s, "\0"s, "\xFF\xFE", "\u2581"};
  for (const int32_t type : {0, 1, 2, 3, 4, 5}) {
    const std::vector<int32_t> types(tokens.size(), type);
    Exercise(VocabularyFile("llama").Tokens(tokens).Types(types));
    Exercise(VocabularyFile("bert").Tokens(tokens).Types(types));
    Exercise(VocabularyFile("gpt2").Tokens(tokens).Types(types).Merges({"a a", "a \0"s}));
  }
  // Fewer tokens than the default ids of the kind.
  Exercise(VocabularyFile("llama").Tokens({"x"}));
  Exercise(VocabularyFile("bert").Tokens({"x"}));
  Exercise(VocabularyFile("gpt2").Tokens({"x"}).Merges({}));
  // Merges of unknown pieces, to an unknown piece, and twice the same.
  Exercise(Bpe().Merges({"a c", "b a", "a b", "a b", "x y z"}));
  // Infinite and equal scores.
  const float infinity = std::numeric_limits<float>::infinity();
  Exercise(Spm().Scores({infinity, -infinity, infinity, -infinity, infinity}));
  Exercise(Spm().Remove("tokenizer.ggml.scores").Remove("tokenizer.ggml.token_type"));
}

TEST(Metadata, UnknownMergesHaveNoEffect) {
  const TestTokenizer tokenizer = MakeTokenizer(Bpe().Merges({"b a", "x y", "a b"}));
  EXPECT_EQ(tokenizer.Encode("baba"), (std::vector<TokenId>{1, 2, 0}));
}

TEST(Metadata, NamedEndOfTurnTokensEndGeneration) {
  for (const char* name : {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
                           "<|eom_id|>", "<EOT>"}) {
    // Marked as normal text, as many files have it.
    const TestTokenizer tokenizer =
        MakeTokenizer(VocabularyFile("gpt2").Tokens({"a", name, "b"}).Merges({}));
    ASSERT_TRUE(tokenizer.result.ok());
    EXPECT_TRUE(tokenizer->is_end_of_generation(1)) << name;
    EXPECT_TRUE(tokenizer->is_control(1)) << name;
    EXPECT_FALSE(tokenizer->is_end_of_generation(0));
    EXPECT_EQ(tokenizer.Encode(std::string("a") + name, {.parse_special = true}),
              (std::vector<TokenId>{0, 1}));
  }
  const TestTokenizer named = MakeTokenizer(
      Bpe().U32("tokenizer.ggml.eos_token_id", 2).U32("tokenizer.ggml.eot_token_id", 0));
  EXPECT_EQ(named->special().end_of_generation, (std::vector<TokenId>{0, 2}));
}

// Converters write ids that a model does not have, -1, as 32 bits without or with a sign.
TEST(Metadata, MinusOneMeansNoToken) {
  for (const char* id : {"bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask",
                         "cls", "fim_pad", "fim_rep", "fim_sep"}) {
    for (const bool has_sign : {false, true}) {
      const std::string key = "tokenizer.ggml." + std::string(id) + "_token_id";
      VocabularyFile file = Spm();
      has_sign ? file.I32(key, -1) : file.U32(key, 0xFFFFFFFF);
      std::vector<std::string> lines;
      SetLogSink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
      const TestTokenizer tokenizer = MakeTokenizer(file);
      SetLogSink(nullptr);
      ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
      EXPECT_THAT(lines, testing::ElementsAre("test.gguf: " + key +
                                              " is -1: the vocabulary has no such token"));
      const SpecialTokens& special = tokenizer->special();
      // The kind's own ids hold where the file says nothing, and not where it says that there is
      // none.
      const std::string name = id;
      EXPECT_EQ(special.bos.has_value(), name != "bos") << name;
      EXPECT_EQ(special.unk.has_value(), name != "unknown") << name;
      EXPECT_EQ(special.eos.has_value(), name != "eos") << name;
      EXPECT_EQ(special.pad.has_value(), false) << name;
      const auto ids = tokenizer.Encode("a", {.add_special = true});
      EXPECT_EQ(ids.front() == 1, name != "bos") << name;
    }
  }
}

// As in Qwen 2.5, where "</s>" is an ordinary piece, and Gemma, where it is a user-defined one.
TEST(Metadata, NamesDoNotChangeTypesThatAFileGives) {
  for (const int32_t type : {test::kNormal, test::kUserDefined}) {
    const auto vocabulary = VocabularyFile("gpt2")
                                .String("tokenizer.ggml.pre", "gpt-2")
                                .Tokens({"<", "/", "s", ">", "</", "s>", "</s>", "<|im_end|>"})
                                .Types({1, 1, 1, 1, 1, 1, type, 3})
                                .Merges({"< /", "s >", "</ s>"})
                                .U32("tokenizer.ggml.eos_token_id", 7);
    Warnings warnings;
    const TestTokenizer tokenizer = MakeTokenizer(vocabulary);
    EXPECT_THAT(warnings.lines, IsEmpty());
    EXPECT_FALSE(tokenizer->is_control(6));
    EXPECT_EQ(tokenizer->special().end_of_generation, std::vector<TokenId>{7});
    const std::vector<TokenId> cut_into_words = {4, 2, 3, 0};
    const std::vector<TokenId> cut_out = {6, 0};
    EXPECT_EQ(tokenizer.Encode("</s><"), type == test::kNormal ? cut_into_words : cut_out);
  }
}

// Published files have ends of turns as user-defined tokens, and no keys for them.
TEST(Metadata, NamesInTheChatTemplateEndGeneration) {
  const auto with = [](const char* chat) {
    return MakeTokenizer(VocabularyFile("gpt2")
                             .String("tokenizer.ggml.pre", "gpt-2")
                             .String("tokenizer.chat_template", chat)
                             .Tokens({"a", "<|im_end|>", "<end_of_turn>", "<s>"})
                             .Types({1, 4, 4, 3})
                             .Merges({}));
  };
  const TestTokenizer chat = with("{{ messages[0].content }}<|im_end|>");
  EXPECT_EQ(chat->special().end_of_generation, std::vector<TokenId>{1});
  EXPECT_EQ(chat->special().eot, 1);
  EXPECT_FALSE(chat->is_control(1));
  EXPECT_THAT(with("{{ messages[0].content }}")->special().end_of_generation, IsEmpty());
}

TEST(Metadata, NfcIsWhatTheFileSays) {
  const auto ids = [](const char* pre, std::optional<bool> nfc) {
    VocabularyFile file = VocabularyFile("gpt2")
                              .String("tokenizer.ggml.pre", pre)
                              .Tokens({"e", "Ì", "ģ", "Ã", "©"})
                              .Merges({});
    if (nfc.has_value()) file.Bool("tokenizer.ggml.normalizer.nfc", *nfc);
    return MakeTokenizer(file).Encode("e\u0301");
  };
  const std::vector<TokenId> as_it_is = {0, 1, 2};
  const std::vector<TokenId> composed = {3, 4};
  EXPECT_EQ(ids("gpt-2", std::nullopt), as_it_is);
  EXPECT_EQ(ids("gpt-2", true), composed);
  EXPECT_EQ(ids("qwen2", std::nullopt), composed);
  EXPECT_EQ(ids("qwen2", false), as_it_is);
}

TEST(Metadata, PreOverrideIsForByteLevelBpeOnly) {
  const TestTokenizer tokenizer = MakeTokenizer(Spm(), {.pre_override = "gpt-2"});
  ASSERT_FALSE(tokenizer.result.ok());
  EXPECT_EQ(tokenizer.result.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(tokenizer.result.error().message, HasSubstr("--pre"));
}

}  // namespace
}  // namespace kvant
