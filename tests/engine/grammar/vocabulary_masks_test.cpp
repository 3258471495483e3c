// Masks over real vocabularies: what a Matcher finds on its tree, with slices and kept sets, is
// what reading each token byte by byte finds. GRM-01, GRM-04.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/grammar/gbnf.h"
#include "engine/grammar/matcher.h"
#include "formats/gguf.h"
#include "kvant/tokenizer.h"
#include "tests/shared_data.h"

namespace kvant::grammar {
namespace {

const char* const kMaskVocabularies[] = {"bert-bge",  "deepseek-coder", "falcon", "gpt-2",
                                         "llama-bpe", "llama-spm",      "phi-3",  "qwen2"};

// Strings of any length, short ones and long ones, characters of several bytes, recursion.
const char* const kMaskGrammars[] = {
    R"(root ::= "\"" ([^"\\\x00-\x1f] | "\\" [nt"])* "\"")",
    R"(root ::= "\"" [^"\\\x00-\x1f]{0,12} "\"" " "?)",
    R"(root ::= "\"" ([^"\\\x00-\x1f] | "\\n"){2,45} "\"")",
    R"(root ::= "{" (root | "\"" [^"\\\x00-\x1f]* "\"" | [ 0-9])* "}")",
    R"(root ::= ([^a-m"]+ ".")+ [é€]?)",
};

class VocabularyMasks : public testing::TestWithParam<const char*> {};

TEST_P(VocabularyMasks, AreThoseOfTokensReadByteByByte) {
  const std::string path =
      test::SharedPath(std::string("tokenizers/ggml-vocab-") + GetParam() + ".gguf");
  KVANT_SKIP_WITHOUT(path);
  const auto file = formats::GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  const auto tokenizer = Tokenizer::Create(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const TokenId vocab = (*tokenizer)->vocab_size();
  const std::vector<TokenId> ends = (*tokenizer)->special().end_of_generation;
  std::mt19937 random(7);
  int64_t allowed = 0;
  for (const char* const gbnf : kMaskGrammars) {
    auto grammar = ParseGbnf(gbnf, tokenizer->get());
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    Matcher matcher(std::move(*grammar), (*tokenizer)->trie(), ends);
    std::vector<uint64_t> bits(Matcher::WordsFor(static_cast<size_t>(vocab)));
    MatchState state = matcher.Begin();
    for (int step = 0; step < 6; ++step) {
      ASSERT_TRUE(matcher.Mask(state, bits).ok());
      std::vector<TokenId> open;
      for (TokenId token = 0; token < vocab; ++token) {
        const auto place = static_cast<size_t>(token);
        const bool found = (bits[place / 64] >> (place % 64) & 1) != 0;
        MatchState copy = state;
        const auto expected = matcher.Advance(copy, token);
        ASSERT_TRUE(expected.ok());
        ASSERT_EQ(found, *expected) << gbnf << " token " << token << " '"
                                    << (*tokenizer)->TokenBytes(token, {}) << "' step " << step;
        if (found && !(*tokenizer)->is_end_of_generation(token)) open.push_back(token);
      }
      allowed += std::ssize(open);
      if (open.empty()) break;
      ASSERT_TRUE(*matcher.Advance(state, open[random() % open.size()]));
    }
  }
  EXPECT_GT(allowed, vocab);
}

INSTANTIATE_TEST_SUITE_P(Shared, VocabularyMasks, testing::ValuesIn(kMaskVocabularies),
                         [](const auto& vocabulary) {
                           std::string name = vocabulary.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(TokenTrie, KnowsThePlainTokens) {
  const std::vector<std::string> texts = {
      "",     "a",    "ab",        "a\"",          "\\",          "\n",  "é",
      "\xc3", "\xa9", "a\xe2\x82", "\xed\xa0\x80", "0123456789a", "€ €", "ab"};
  const std::vector<bool> expected = {false, true,  true,  false, false, false, true,
                                      false, false, false, false, true,  true,  true};
  const TokenTrie trie(texts);
  const TokenTrie::PlainTokens& plain = trie.plain();
  const auto is_plain = [&](TokenId id) { return (plain.bits[0] >> id & 1) != 0; };
  std::vector<TokenId> others;
  for (const auto& [node, end] : plain.others) {
    ASSERT_LE(end, plain.others.size());
    const TokenId token = trie.nodes()[node].token;
    if (token >= 0 && !is_plain(token)) others.push_back(token);
  }
  for (TokenId id = 1; id < std::ssize(texts); ++id) {
    const std::string& text = texts[static_cast<size_t>(id)];
    const bool wanted = expected[static_cast<size_t>(id)];
    EXPECT_EQ(is_plain(id), wanted) << text;
    EXPECT_EQ(std::ranges::count(others, id), wanted ? 0 : 1) << text;
  }
  EXPECT_EQ(trie.LongestIn("abc"), 2);
  EXPECT_EQ(trie.LongestIn("0123456789ab"), 11);
  EXPECT_EQ(trie.LongestIn("zzz"), -1);
}

}  // namespace
}  // namespace kvant::grammar
