// UTF-8 that arrives in pieces, decoding of invalid bytes, and normalization.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "engine/tokenizer/unicode.h"
#include "kvant/tokenizer.h"

namespace kvant {
namespace {

using namespace std::string_literals;

std::string Stream(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.Push(bytes);
  return out + stream.Finish();
}

TEST(Utf8Stream, ReplacesMaximalSubparts) {
  // Unicode Standard 15.0, table 3-8, and the tables 3-9 to 3-11 beside it.
  EXPECT_EQ(Stream("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(Stream("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(Stream("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(Stream("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(Stream("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

// Text of all lengths of characters, the first and last of each, and invalid bytes between them.
const std::string kMixed =
    "A\u00E9\u0416\u05D0\u0939\u5929\uD55C\U0001F999\u0000\x7F"s
    "\u0080\u07FF\u0800\uD7FF\uE000\uFFFF\U00010000\U0010FFFF"
    "\xFF\xC3\x41\xE5\xA4\x42\xF0\x9F\xA6\x43\x80\xF5\xC1\xED\xA0\x80z\xF0\x9F";

TEST(Utf8Stream, SplitsAnywhereWithoutADifference) {
  const std::string whole = Stream(kMixed);
  ASSERT_TRUE(IsValidUtf8(whole));
  for (size_t i = 0; i <= kMixed.size(); ++i) {
    for (size_t j = i; j <= kMixed.size(); ++j) {
      Utf8Stream stream;
      std::string out;
      for (const std::string& part :
           {kMixed.substr(0, i), kMixed.substr(i, j - i), kMixed.substr(j)}) {
        const std::string shown = stream.Push(part);
        ASSERT_TRUE(IsValidUtf8(shown)) << i << ", " << j;
        out += shown;
      }
      out += stream.Finish();
      ASSERT_EQ(out, whole) << i << ", " << j;
    }
  }
}

TEST(Utf8Stream, ShowsACharacterAsSoonAsItIsComplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xF0"), "");
  EXPECT_EQ(stream.Push("\x9F\xA6"), "");
  EXPECT_EQ(stream.Push("\x99!"), "\U0001F999!");
  EXPECT_EQ(stream.Push("\xE5\xA4"), "");
  EXPECT_EQ(stream.Push("x"), "\uFFFDx");
  EXPECT_EQ(stream.Push("\xC3"), "");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(Unicode, EncodesWhatItDecodes) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    std::string text;
    AppendUtf8(c, text);
    const Utf8Char decoded = DecodeUtf8(text);
    if (c >= 0xD800 && c <= 0xDFFF) {
      ASSERT_EQ(decoded.state, Utf8State::kInvalid);
    } else {
      ASSERT_EQ(decoded.state, Utf8State::kValid);
      ASSERT_EQ(decoded.code_point, c);
      ASSERT_EQ(decoded.size, text.size());
    }
  }
}

TEST(Unicode, NormalizesToNfc) {
  // From NormalizationTest.txt of the Unicode Character Database.
  EXPECT_EQ(NormalizeNfc("\u1E0A\u0323"), "\u1E0C\u0307");
  EXPECT_EQ(NormalizeNfc("D\u0307\u0323"), "\u1E0C\u0307");
  EXPECT_EQ(NormalizeNfc("\u212B"), "\u00C5");
  EXPECT_EQ(NormalizeNfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(NormalizeNfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(NormalizeNfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(NormalizeNfc("\u0958"), "\u0915\u093C");  // a composition exclusion
  EXPECT_EQ(NormalizeNfc("a\u0315\u0300\u05AE\u0300b"), "\u00E0\u05AE\u0300\u0315b");
  EXPECT_EQ(NormalizeNfc(""), "");
  // Invalid bytes stay, and nothing combines across them.
  EXPECT_EQ(NormalizeNfc("e\xFF\u0301\xE5"), "e\xFF\u0301\xE5");
  EXPECT_EQ(NormalizeNfc("e\u0301\xFF"), "\u00E9\xFF");
  // Nor does NUL end anything.
  EXPECT_EQ(NormalizeNfc("a\0e\u0301"s), "a\0\u00E9"s);
}

TEST(Unicode, OrdersLongRunsOfMarks) {
  // Exchanging neighbours one by one would take 10^10 steps.
  std::string marks = "a";
  for (int i = 0; i < 100000; ++i) marks += "\u0315";  // class 232
  for (int i = 0; i < 100000; ++i) marks += "\u0316";  // class 220
  const std::string ordered = NormalizeNfc(marks);
  EXPECT_EQ(ordered.size(), marks.size());
  EXPECT_EQ(ordered.substr(0, 3), "a\u0316");
  EXPECT_EQ(ordered.substr(ordered.size() - 2), "\u0315");
}

}  // namespace
}  // namespace kvant
