// Memory of a grammar once a text has been read: names and the blanks before them are most of a
// schema, and their states need no table.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/grammar/schema/schema_judge.h"

namespace kvant::grammar {
namespace {

TEST(AutomataMemory, NamesAndBlanksTakeNoTable) {
  std::string names;
  std::string properties;
  std::string text;
  for (int i = 0; i < 250; ++i) {
    const char* comma = i == 0 ? "" : ",";
    const std::string name = fmt::format("\"property_number_{:03}_of_many\"", i);
    names += comma + name;
    properties += comma + name + R"(: {"type": "boolean"})";
    text += fmt::format("{}\n{}{}: true", comma, std::string(20, ' '), name);
  }
  SchemaJudge judge(fmt::format(R"({{"type": "object", "additionalProperties": false,
      "properties": {{{}}}, "required": [{}]}})",
                                properties, names));
  ASSERT_EQ(judge.error(), "");
  EXPECT_TRUE(judge.Accepts("{" + text + "}"));
  EXPECT_FALSE(judge.Accepts("{" + text + ",\"a\": true}"));
  // Some 12,000 states of 40 classes of bytes.
  EXPECT_LT(judge.matcher().bytes().automata, size_t{5} << 18);
}

}  // namespace
}  // namespace kvant::grammar
