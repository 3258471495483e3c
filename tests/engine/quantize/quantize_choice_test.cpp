// Files of types by tensor: read as they are written whatever the names hold, by hand with any
// blanks, and refused with the number of the line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "engine/quantize/size_plan.h"

namespace kvant::quantize {
namespace {

using testing::HasSubstr;

TEST(SizeChoice, IsReadAsItIsWritten) {
  const TypeChoice choice = {{"blk.0.a b.weight", quant::FindFormat("Q4_K")},
                             {"output.weight", quant::FindFormat("IQ2_KT")}};
  const auto read = ParseChoice(ChoiceText(choice), "c.txt");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, choice);
  const auto commented = ParseChoice("# made by hand\r\n\noutput.weight q8_0\r\n", "c.txt");
  ASSERT_TRUE(commented.ok());
  EXPECT_EQ(commented->at("output.weight"), quant::FindFormat("Q8_0"));
}

TEST(SizeChoice, KeepsNamesOfAllKinds) {
  TypeChoice choice;
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  for (const std::string& name :
       {std::string(), all_bytes, std::string("# no comment"), std::string("#"), std::string("\""),
        std::string("\"quoted\""), std::string("two words"), std::string(" before"),
        std::string("behind "), std::string("tab\t"), std::string("line\nQ8_0"),
        std::string("line\r\nb Q8_0\r"), std::string("\\n \\x41"), std::string("\xff\xfe"),
        std::string("gr\xc3\xbc\xc3\x9f"), std::string(1, '\0'), std::string("a Q4_K")}) {
    choice[name] = quant::FindFormat(choice.size() % 2 == 0 ? "Q4_K" : "Q8_0");
  }
  const std::string text = ChoiceText(choice);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), std::ssize(choice));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(),
                          [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); }));
  const auto read = ParseChoice(text, "c.txt");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, choice);
}

TEST(SizeChoice, TakesBlanksAsTheyCome) {
  const auto read =
      ParseChoice("  # by hand\n\t output.weight \t  Q8_0  \r\n\"a b\"\tQ4_K", "c.txt");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->size(), 2u);
  EXPECT_EQ(read->at("output.weight"), quant::FindFormat("Q8_0"));
  EXPECT_EQ(read->at("a b"), quant::FindFormat("Q4_K"));
}

TEST(SizeChoice, RefusesOtherTexts) {
  const auto message = [](const char* text) { return ParseChoice(text, "c.txt").error().message; };
  EXPECT_THAT(message("a Q4_0\nb\n"), HasSubstr("c.txt: line 2: expected the name of a tensor"));
  EXPECT_THAT(message("a Q4_9"), HasSubstr("line 1"));
  EXPECT_THAT(message("a Q4_0\na Q8_0"), HasSubstr("line 2: tensor \"a\" has a type already"));
  EXPECT_THAT(message("\n\n"), HasSubstr("found none"));
  for (const char* line :
       {"\"a Q4_0", "\"a\"b Q4_0", "\"a\\\" Q4_0", "\"a\\q\" Q4_0", "\"a\\x4\" Q4_0",
        "\"a\\xg0\" Q4_0", "\"a\\x-1\" Q4_0", "\" Q4_0", "Q4_0", "\"a\"Q4_0"}) {
    EXPECT_THAT(message(line), HasSubstr("line 1: expected the name of a tensor")) << line;
  }
}

}  // namespace
}  // namespace kvant::quantize
