// Sets of texts and numbers, against PCRE2, the calendar and integer arithmetic.
#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/grammar/schema/format_set.h"
#include "engine/grammar/schema/number_set.h"
#include "engine/grammar/schema/pattern_set.h"

namespace kvant::grammar {
namespace {

// Whether the pattern matches somewhere, as PCRE2 finds it.
bool Finds(const std::string& pattern, const std::string& text) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr),
      pcre2_code_free);
  EXPECT_NE(code, nullptr) << pattern;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                     data.get(), nullptr) >= 0;
}

std::string RandomText(std::mt19937& random, size_t most) {
  static const std::array<std::string, 6> kParts = {"a", "b", "c", "0", "é", "€"};
  std::string text;
  for (size_t i = random() % (most + 1); i > 0; --i) text += kParts[random() % kParts.size()];
  return text;
}

std::string RandomPattern(std::mt19937& random, int depth) {
  static const std::array<std::string, 9> kAtoms = {"a",   "b", "[ab]", "[^a]", ".",
                                                    "\\d", "é", "^",    "$"};
  std::string pattern;
  for (size_t parts = 1 + random() % 3; parts > 0; --parts) {
    const std::string atom = depth > 0 && random() % 3 == 0
                                 ? "(?:" + RandomPattern(random, depth - 1) + ")"
                                 : kAtoms[random() % kAtoms.size()];
    static const std::array<std::string, 6> kCounts = {"", "", "*", "+", "?", "{1,2}"};
    const bool is_anchor = atom == "^" || atom == "$";
    pattern += atom + (is_anchor ? "" : kCounts[random() % kCounts.size()]);
  }
  return random() % 4 == 0 ? pattern + "|" + kAtoms[random() % kAtoms.size()] : pattern;
}

TEST(PatternSet, MatchesWherePcreFindsIt) {
  std::mt19937 random(3);
  int found = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string pattern = RandomPattern(random, 2);
    const auto set = PatternSet(pattern);
    ASSERT_TRUE(set.ok()) << pattern << " " << set.error().message;
    for (int i = 0; i < 30; ++i) {
      const std::string text = RandomText(random, 6);
      const bool expected = Finds(pattern, text);
      found += expected ? 1 : 0;
      EXPECT_EQ(set->Has(text), expected) << pattern << " in " << text;
    }
  }
  EXPECT_GT(found, 1000);
}

TEST(PatternSet, LookaheadBehindTheBeginning) {
  std::mt19937 random(4);
  for (const std::string pattern :
       {"^(?=.*a)(?!b).*c", "^(?!.*(ab|ba))", "^(?=[ab]{2})a|^c$", "^(?!$)"}) {
    const auto set = PatternSet(pattern);
    ASSERT_TRUE(set.ok()) << set.error().message;
    for (int i = 0; i < 400; ++i) {
      const std::string text = RandomText(random, 5);
      EXPECT_EQ(set->Has(text), Finds(pattern, text)) << pattern << " in " << text;
    }
  }
}

TEST(TextSet, OperationsAreThoseOfSets) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const auto first = PatternSet(RandomPattern(random, 1));
    const auto second = PatternSet(RandomPattern(random, 1));
    ASSERT_TRUE(first.ok() && second.ok());
    const auto both = Combine(*first, *second, TextSetOp::kAnd);
    const auto either = Combine(*first, *second, TextSetOp::kOr);
    const auto without = Combine(*first, *second, TextSetOp::kWithout);
    ASSERT_TRUE(both.ok() && either.ok() && without.ok());
    for (int i = 0; i < 30; ++i) {
      const std::string text = RandomText(random, 5);
      const bool a = first->Has(text);
      const bool b = second->Has(text);
      EXPECT_EQ(both->Has(text), a && b);
      EXPECT_EQ(either->Has(text), a || b);
      EXPECT_EQ(without->Has(text), a && !b);
    }
  }
  const std::vector<std::string> names = {"a", "ab", "é", ""};
  const auto these = TheseTexts(names);
  const auto others = OtherTexts(names);
  ASSERT_TRUE(these.ok() && others.ok());
  for (int i = 0; i < 500; ++i) {
    const std::string text = RandomText(random, 3);
    const bool is_in = std::ranges::find(names, text) != names.end();
    EXPECT_EQ(these->Has(text), is_in);
    EXPECT_EQ(others->Has(text), !is_in);
  }
}

TEST(FormatSet, DatesAreThoseOfTheCalendar) {
  const auto set = FormatSet("date");
  ASSERT_NE(set, nullptr);
  constexpr std::array<int, 12> kDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  for (const int year : {1, 4, 100, 400, 1900, 1996, 2000, 2023, 2024, 2100, 9999}) {
    const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    for (int month = 0; month <= 13; ++month) {
      for (int day = 0; day <= 32; ++day) {
        std::array<char, 16> text;
        std::snprintf(text.data(), text.size(), "%04d-%02d-%02d", year, month, day);
        const bool is_month = month >= 1 && month <= 12;
        const int days =
            !is_month ? 0 : kDays[static_cast<size_t>(month - 1)] + (month == 2 && is_leap ? 1 : 0);
        EXPECT_EQ(set->Has(text.data()), day >= 1 && day <= days) << text.data();
      }
    }
  }
}

// A number of thousandths, as texts with all numbers of zeros that may follow.
std::vector<std::string> TextsOfThousandths(int value) {
  std::array<char, 32> text;
  const int size = value < 0 ? -value : value;
  std::snprintf(text.data(), text.size(), "%s%d.%03d", value < 0 ? "-" : "", size / 1000,
                size % 1000);
  std::vector<std::string> texts = {text.data(), std::string(text.data()) + "0"};
  std::string shorter = text.data();
  while (shorter.back() == '0') {
    shorter.pop_back();
    if (shorter.back() == '.') shorter.pop_back();
    texts.push_back(shorter);
    if (shorter.find('.') == std::string::npos) break;
  }
  return texts;
}

TEST(NumberSet, BoundsAndMultiplesAreThoseOfIntegers) {
  const int bounds[] = {-2345, -1000, -999, -10, 0, 1, 10, 999, 1000, 1010, 2500, 12340, 99000};
  for (const int bound : bounds) {
    const Decimal number = ParseDecimal(TextsOfThousandths(bound)[0]).value();
    const NumberSet least = NumbersFrom(NumberBound::kLeast, number);
    const NumberSet above = NumbersFrom(NumberBound::kAbove, number);
    const NumberSet greatest = NumbersFrom(NumberBound::kGreatest, number);
    const NumberSet below = NumbersFrom(NumberBound::kBelow, number);
    const auto multiples = MultiplesOf(bound == 0 ? ParseDecimal("1").value() : number.Magnitude());
    ASSERT_TRUE(multiples.ok()) << bound;
    const int unit = bound == 0 ? 1000 : std::abs(bound);
    for (const int base : bounds) {
      for (int value = base - 12; value <= base + 12; ++value) {
        for (const std::string& text : TextsOfThousandths(value)) {
          EXPECT_EQ(least.plain.Has(text), value >= bound) << text << " " << bound;
          EXPECT_EQ(above.plain.Has(text), value > bound) << text << " " << bound;
          EXPECT_EQ(greatest.plain.Has(text), value <= bound) << text << " " << bound;
          EXPECT_EQ(below.plain.Has(text), value < bound) << text << " " << bound;
          EXPECT_EQ(multiples->plain.Has(text), value % unit == 0) << text << " " << unit;
        }
      }
    }
  }
}

TEST(NumberSet, NoOtherTexts) {
  const NumberSet set = NumbersFrom(NumberBound::kLeast, ParseDecimal("-3").value());
  for (const char* text : {"", "-", "01", "1.", ".5", "--1", "00", "1e2", "-01", "+1"}) {
    EXPECT_FALSE(set.plain.Has(text)) << text;
  }
}

TEST(Decimal, ComparesAsNumbers) {
  const char* ascending[] = {"-1e10", "-12",  "-2",  "-1.5", "-0.05", "0",
                             "1e-9",  "0.05", "0.5", "12",   "120",   "1e10"};
  for (size_t i = 0; i < std::size(ascending); ++i) {
    for (size_t j = 0; j < std::size(ascending); ++j) {
      const Decimal a = ParseDecimal(ascending[i]).value();
      const Decimal b = ParseDecimal(ascending[j]).value();
      EXPECT_EQ(a < b, i < j) << ascending[i] << " " << ascending[j];
      EXPECT_EQ(a == b, i == j) << ascending[i] << " " << ascending[j];
    }
  }
  EXPECT_EQ(ParseDecimal("1.50e1"), ParseDecimal("15"));
  EXPECT_FALSE(ParseDecimal("1e401").has_value());
}

}  // namespace
}  // namespace kvant::grammar
