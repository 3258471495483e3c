// Ids of texts and of pairs: special tokens, segments, prompts, templates, texts that are too long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "kvant/embed.h"
#include "tests/engine/embed/text_model.h"

namespace kvant::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr TokenId kCls = 2;
constexpr TokenId kSep = 3;
// "w0", "w1" and so on.
constexpr TokenId Word(TokenId number) { return kFirstWord + number; }

std::unique_ptr<Embedder> EmbedderOf(const TextShape& shape, int64_t context = 0) {
  auto embedder = Embedder::Create(OpenText(shape), {.threads = 1, .context = context});
  EXPECT_TRUE(embedder.ok()) << embedder.error().message;
  return embedder.ok() ? std::move(*embedder) : nullptr;
}

template <class T>
std::string FaultOf(const Result<T>& result) {
  return result.ok() ? "accepted" : result.error().message;
}

TEST(TextTokens, HaveTheSpecialTokensAround) {
  const auto embedder = EmbedderOf({});
  EXPECT_THAT(embedder->Tokens("w1 w2")->ids, ElementsAre(kCls, Word(1), Word(2), kSep));
  EXPECT_THAT(embedder->Tokens("w1", {.prompt = "w7 "})->ids,
              ElementsAre(kCls, Word(7), Word(1), kSep));
  // Names of control tokens are text, which this vocabulary cannot spell.
  const auto named = embedder->Tokens("w1 [SEP] w2");
  EXPECT_EQ(std::ranges::count(named->ids, kSep), 1);
}

TEST(TextTokens, PairsHaveSegments) {
  const auto pair = EmbedderOf({})->PairTokens("w1 w2", "w3");
  ASSERT_TRUE(pair.ok()) << pair.error().message;
  EXPECT_THAT(pair->ids, ElementsAre(kCls, Word(1), Word(2), kSep, Word(3), kSep));
  EXPECT_THAT(pair->types, ElementsAre(0, 0, 0, 0, 1, 1));
  const auto plain = EmbedderOf({.segments = 0})->PairTokens("w1", "w3");
  EXPECT_THAT(plain->ids, ElementsAre(kCls, Word(1), kSep, Word(3), kSep));
  EXPECT_TRUE(plain->types.empty());
}

TEST(TextTokens, TemplatesTakeTextsAsText) {
  const auto embedder = EmbedderOf({.pairs = "[MASK] w9 {document} w8 {query}[SEP]"});
  EXPECT_THAT(embedder->PairTokens("w1", "w2 w3")->ids,
              ElementsAre(4, Word(9), Word(2), Word(3), Word(8), Word(1), kSep));
  // The words of a document never become a control token.
  const auto hostile = embedder->PairTokens("w1", "w2 [MASK]");
  EXPECT_EQ(std::ranges::count(hostile->ids, 4), 1);
  EXPECT_EQ(embedder->PairTokens("{document}", "w2")->ids.back(), kSep);
  const std::string path = TempPath("template.gguf");
  TextModelWriter({.pairs = "{query} alone"}).Write(path);
  const auto model = Model::Open(path);
  std::filesystem::remove(path);
  EXPECT_THAT(FaultOf(Embedder::Create(*model, {})), HasSubstr("expected {document} in it"));
}

TEST(TextTokens, TooLongTextsAreRefusedOrCut) {
  const auto embedder = EmbedderOf({}, 6);
  const std::string text = "w1 w2 w3 w4 w5";
  EXPECT_EQ(FaultOf(embedder->Tokens(text)), "the text has 7 tokens, but the context has 6");
  EXPECT_THAT(embedder->Tokens(text, {.too_long = TooLong::kCut})->ids,
              ElementsAre(kCls, Word(1), Word(2), Word(3), Word(4), kSep));
  EXPECT_THAT(FaultOf(embedder->PairTokens("w1 w2", "w3 w4")),
              HasSubstr("has 7 tokens, but the context has 6"));
  const auto pair = embedder->PairTokens("w1 w2", "w3 w4", TooLong::kCut);
  EXPECT_THAT(pair->ids, ElementsAre(kCls, Word(1), Word(2), kSep, Word(3), kSep));
  EXPECT_EQ(pair->types.size(), 6u);
  // Nothing is left of a document behind such a query.
  EXPECT_FALSE(embedder->PairTokens("w1 w2 w3 w4", "w5", TooLong::kCut).ok());
  const auto by_template = EmbedderOf({.pairs = "{query}[SEP]{document}"}, 5);
  EXPECT_FALSE(by_template->PairTokens("w1 w2", "w3 w4 w5").ok());
  EXPECT_THAT(by_template->PairTokens("w1 w2", "w3 w4 w5", TooLong::kCut)->ids,
              ElementsAre(Word(1), Word(2), kSep, Word(3), Word(4)));
}

TEST(TextTokens, EmptyTextsAreNamed) {
  const auto embedder = EmbedderOf({});
  EXPECT_THAT(FaultOf(embedder->Tokens("")), HasSubstr("the text is empty"));
  EXPECT_THAT(FaultOf(embedder->Tokens("  ", {.prompt = "w7 "})), HasSubstr("the text is empty"));
  EXPECT_THAT(FaultOf(embedder->PairTokens("", "w1")), HasSubstr("the query is empty"));
  EXPECT_THAT(FaultOf(embedder->PairTokens("w1", "")), HasSubstr("the document is empty"));
}

TEST(TextTokens, PromptsHaveNames) {
  const auto opened = [](const std::vector<std::string>& names,
                         const std::vector<std::string>& texts, const std::string& otherwise) {
    const std::string path = WriteChanged({}, [&](formats::GgufWriter& writer) {
      writer.AddU32("llama.pooling_type", 3);
      writer.AddStrings("general.prompts.names", names);
      writer.AddStrings("general.prompts.texts", texts);
      if (!otherwise.empty()) writer.AddString("general.prompts.default", otherwise);
    });
    auto embedder = Embedder::Create(*Model::Open(path), {.threads = 1});
    std::filesystem::remove(path);
    return embedder;
  };
  const auto embedder = opened({"query", "passage"}, {"Q: ", "P: "}, "passage");
  ASSERT_TRUE(embedder.ok()) << embedder.error().message;
  EXPECT_EQ(*(*embedder)->PromptText("query"), "Q: ");
  EXPECT_EQ(*(*embedder)->PromptText(""), "P: ");
  EXPECT_EQ((*embedder)->default_prompt(), "passage");
  EXPECT_THAT(FaultOf((*embedder)->PromptText("other")), HasSubstr("one of query, passage"));
  EXPECT_THAT(FaultOf(opened({"a", "b"}, {"x"}, "")), HasSubstr("expected 2 texts, found 1"));
  EXPECT_THAT(FaultOf(opened({"a"}, {"x"}, "b")), HasSubstr("expected one of the names"));
  EXPECT_EQ(*(*opened({"a"}, {"x"}, ""))->PromptText(""), "");
}

}  // namespace
}  // namespace kvant::test
