// SentencePiece BPE on vocabularies made here: merging against a naive loop, bytes, unknown
// characters, unused pieces, the space in front.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/tokenizer/unicode.h"
#include "tests/engine/tokenizer/vocabulary_file.h"

namespace kvant {
namespace {

using test::MakeTokenizer;
using test::TestTokenizer;
using test::VocabularyFile;
using testing::ElementsAre;
using testing::IsEmpty;

const std::string kSpace = "\u2581";

struct Pieces {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types{test::kUnknown, test::kControl, test::kControl};
  std::vector<float> scores{0, 0, 0};

  void Add(const std::string& token, float score, int32_t type = test::kNormal) {
    tokens.push_back(token);
    types.push_back(type);
    scores.push_back(score);
  }
  void AddBytes() {
    for (int byte = 0; byte < 256; ++byte) Add(fmt::format("<0x{:02X}>", byte), 0, test::kByte);
  }
  VocabularyFile File() const {
    return VocabularyFile("llama").Tokens(tokens).Types(types).Scores(scores);
  }
};

// Merging as it is defined: of all neighbours the pair whose concatenation has the best score, the
// leftmost of equals. Returns ids; a part that is no token gives -1.
std::vector<TokenId> MergePiecesNaively(const std::string& text, const Pieces& pieces) {
  std::map<std::string, TokenId> ids;
  for (size_t i = 3; i < pieces.tokens.size(); ++i) {
    if (pieces.types[i] != test::kByte) ids.try_emplace(pieces.tokens[i], static_cast<TokenId>(i));
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < text.size();) {
    const size_t size = DecodeUtf8(std::string_view(text).substr(i)).size;
    parts.push_back(text.substr(i, size));
    i += size;
  }
  for (;;) {
    size_t best = parts.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ids.find(parts[i] + parts[i + 1]);
      if (found == ids.end()) continue;
      const float score = pieces.scores[static_cast<size_t>(found->second)];
      if (best == parts.size() || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  std::vector<TokenId> result;
  for (const std::string& part : parts) {
    const auto found = ids.find(part);
    result.push_back(found == ids.end() ? -1 : found->second);
  }
  return result;
}

TEST(Spm, MergesLikeTheNaiveLoop) {
  std::mt19937 random(11);
  const std::vector<std::string> letters{"a", "b", "\u00E9", kSpace, "z"};
  for (int vocabulary = 0; vocabulary < 60; ++vocabulary) {
    // Every second vocabulary has spaces within pieces; "z" is in none.
    const bool inner_spaces = vocabulary % 2 == 0;
    Pieces pieces;
    for (size_t i = 0; i < 4; ++i) pieces.Add(letters[i], -100);
    while (pieces.tokens.size() < 40) {
      std::string piece = random() % 3 == 0 ? kSpace : "";
      for (size_t i = random() % 4 + 1; i > 0; --i) {
        piece += letters[random() % (inner_spaces ? 4 : 3)];
      }
      pieces.Add(piece, -static_cast<float>(random() % 20));  // with ties and duplicates
    }
    const TestTokenizer tokenizer = MakeTokenizer(pieces.File());
    ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
    for (int round = 0; round < 50; ++round) {
      std::string text;
      std::string spelt = kSpace;
      for (size_t i = random() % 30 + 1; i > 0; --i) {
        const std::string& letter = letters[random() % letters.size()];
        text += letter == kSpace ? " " : letter;
        spelt += letter;
      }
      std::vector<TokenId> expected;
      for (const TokenId id : MergePiecesNaively(spelt, pieces)) {
        if (id >= 0) {
          expected.push_back(id);
        } else if (expected.empty() || expected.back() != 0) {
          expected.push_back(0);  // unknown, once for a run
        }
      }
      EXPECT_EQ(tokenizer.Encode(text), expected) << text;
    }
  }
}

Pieces SmallPieces() {
  Pieces pieces;
  pieces.Add(kSpace, -1);                    // 3
  pieces.Add("a", -2);                       // 4
  pieces.Add("b", -3);                       // 5
  pieces.Add(kSpace + "a", -4);              // 6
  pieces.Add("ab", -5);                      // 7
  pieces.Add("[x]", 0, test::kUserDefined);  // 8
  return pieces;
}

TEST(Spm, PutsASpaceInFrontAndTakesItAwayAgain) {
  const TestTokenizer tokenizer = MakeTokenizer(SmallPieces().File());
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  EXPECT_THAT(tokenizer.Encode("a ab"), ElementsAre(6, 6, 5));
  EXPECT_THAT(tokenizer.Encode(""), IsEmpty());
  EXPECT_THAT(tokenizer.Encode("", {.add_special = true}), ElementsAre(1));
  EXPECT_THAT(tokenizer.Encode(" a", {.add_special = true}), ElementsAre(1, 3, 6));
  for (const char* text : {"a", " a", "  ab a", "ab[x]a", "[x] a"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer.Encode(text, {.add_special = true}), {.special = false}),
              text);
  }
  EXPECT_EQ(tokenizer->TokenBytes(6, {.special = false}), " a");

  const TestTokenizer bare =
      MakeTokenizer(SmallPieces().File().Bool("tokenizer.ggml.add_space_prefix", false));
  EXPECT_THAT(bare.Encode("a ab"), ElementsAre(4, 6, 5));
  EXPECT_EQ(bare->Decode(bare.Encode(" a"), {.special = false}), " a");
}

TEST(Spm, UnknownCharactersBecomeBytesOrTheUnknownToken) {
  const std::string text =
      "a\u00E9\xFF"
      "b";
  EXPECT_THAT(MakeTokenizer(SmallPieces().File()).Encode(text), ElementsAre(6, 0, 5));

  Pieces pieces = SmallPieces();
  pieces.AddBytes();  // from 9 on
  const TestTokenizer tokenizer = MakeTokenizer(pieces.File());
  EXPECT_THAT(tokenizer.Encode(text), ElementsAre(6, 9 + 0xC3, 9 + 0xA9, 9 + 0xFF, 5));
  EXPECT_EQ(tokenizer->Decode(tokenizer.Encode(text), {.special = false}), text);
  // The name of a byte token is ordinary text, and so is that of a control token.
  for (const char* name : {"<0x41>", "<s>"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer.Encode(name), {.special = false}), name);
    EXPECT_GT(tokenizer.Encode(name).size(), 2U);
  }
}

TEST(Spm, ParsesControlTokensOnlyWhereAsked) {
  Pieces pieces = SmallPieces();
  pieces.AddBytes();
  const TestTokenizer tokenizer = MakeTokenizer(pieces.File());
  EXPECT_THAT(tokenizer.Encode("a</s>a[x]", {.parse_special = true}), ElementsAre(6, 2, 6, 8));
  const std::vector<TokenId> plain = tokenizer.Encode("a</s>[x]");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 2), 0);
  EXPECT_EQ(plain.back(), 8);  // user-defined: always
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{6, 2, 6}, {.special = true}), "a</s>a");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{1, 6}, {.special = false}), "a");
}

TEST(Spm, UnusedPiecesAreOnlyStepsOnTheWay) {
  Pieces pieces = SmallPieces();
  pieces.Add("bb", -1, test::kUnused);    // 9
  pieces.Add("bba", -1);                  // 10
  pieces.Add("bbbb", -1, test::kUnused);  // 11
  const TestTokenizer tokenizer =
      MakeTokenizer(pieces.File().Bool("tokenizer.ggml.add_space_prefix", false));
  EXPECT_THAT(tokenizer.Encode("bba"), ElementsAre(10));
  EXPECT_THAT(tokenizer.Encode("bb"), ElementsAre(5, 5));
  EXPECT_THAT(tokenizer.Encode("bbbb"), ElementsAre(5, 5, 5, 5));
}

TEST(Spm, DefaultsAreThoseOfSentencePiece) {
  const TestTokenizer tokenizer = MakeTokenizer(SmallPieces().File());
  EXPECT_EQ(tokenizer->special().bos, 1);
  EXPECT_EQ(tokenizer->special().eos, 2);
  EXPECT_EQ(tokenizer->special().unk, 0);
  EXPECT_TRUE(tokenizer->special().add_bos);
  EXPECT_FALSE(tokenizer->special().add_eos);
  EXPECT_FALSE(tokenizer->special().pad.has_value());
  EXPECT_THAT(tokenizer->special().end_of_generation, ElementsAre(2));
  EXPECT_STREQ(tokenizer->kind(), "spm");
}

TEST(Spm, LongTextsPass) {
  const TestTokenizer tokenizer = MakeTokenizer(SmallPieces().File());
  for (const char c : {'a', 'b', ' '}) {
    const std::string text(300000, c);
    EXPECT_EQ(tokenizer->Decode(tokenizer.Encode(text), {.special = false}), text);
  }
}

}  // namespace
}  // namespace kvant
