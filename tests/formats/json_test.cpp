// Strict JSON: what is read as nlohmann reads it, and what is refused beyond that.
#include "formats/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using formats::Json;
using testing::HasSubstr;

std::string JsonMessage(std::string_view text) {
  const auto json = formats::ParseJson(text, "f.json");
  return json.ok() ? "accepted" : json.error().message;
}

TEST(Json, ReadsEveryKindOfValue) {
  const char* text =
      R"({"a": [1, -2, 2.5, 18446744073709551615, true, null, "\u00e9"], "b": {"c": []}, "d": {}})";
  const auto json = formats::ParseJson(text, "f.json");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(*json, Json::parse(text));
}

// Python writes Infinity and NaN into JSON, and transformers 5 writes them as objects. Files may
// hold both; inside a string they stay text, and a text that is no file may not hold them.
TEST(Json, FilesMayHoldTheNumbersOfPython) {
  const TemporaryFolder folder;
  const auto read = [&](std::string_view text) {
    WriteFile(folder / "f.json", std::as_bytes(std::span(text)));
    return formats::ReadJson(folder / "f.json", 1000);
  };
  const auto json =
      read(R"({"limit": [0.0, Infinity, -Infinity], "n": NaN, "s\"NaN": "Infinity"})");
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ((*json)["limit"][1], std::numeric_limits<double>::infinity());
  EXPECT_EQ((*json)["limit"][2], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE((*json)["n"].is_null());
  EXPECT_EQ((*json)["s\"NaN"], "Infinity");
  EXPECT_EQ(formats::Shown(*json),
            R"({"limit":[0.0,"Infinity","-Infinity"],"n":null,"s\"NaN":"Infinity"})");
  const auto objects = read(R"({"limit": [0.0, {"__float__": "Infinity"}, {"__float__":
      "-Infinity"}], "n": {"__float__": "NaN"}, "s\"NaN": "Infinity"})");
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  EXPECT_EQ(*objects, *json);
  const auto others = read(R"([{"__float__": "1.5"}, {"__float__": "NaN", "a": 1}, {"a": {}}])");
  ASSERT_TRUE(others.ok()) << others.error().message;
  EXPECT_EQ(others->dump(), R"([{"__float__":"1.5"},{"__float__":"NaN","a":1},{"a":{}}])");
  EXPECT_FALSE(read("[Infinite]").ok());
  EXPECT_FALSE(formats::ParseJson("[Infinity]", "f.json").ok());
}

TEST(Json, RefusesDuplicateKeysAtAnyDepth) {
  EXPECT_THAT(JsonMessage(R"({"a": 1, "b": 2, "a": 1})"), HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(JsonMessage(R"([{"x": {"a": {}, "a": []}}])"), HasSubstr("\"a\" occurs twice"));
  EXPECT_EQ(JsonMessage(R"([{"a": 1}, {"a": 2}, {"b": {"a": 3}}])"), "accepted");
}

TEST(Json, RefusesWhatIsNoJsonWithItsPlace) {
  EXPECT_EQ(JsonMessage("{\n \"a\": x}"), "f.json: not valid JSON at line 2, column 7");
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "nul", "NaN", "1 2", "\"\xff\"",
                           "1e999", "\"\xed\xa0\x80\"", "{'a': 1}", "[1] // x"}) {
    EXPECT_THAT(JsonMessage(text), HasSubstr("f.json: not valid JSON at line")) << text;
  }
}

TEST(Json, RefusesDeepNesting) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(JsonMessage(nested(formats::kJsonDepthMax)), "accepted");
  EXPECT_THAT(JsonMessage(nested(formats::kJsonDepthMax + 1)), HasSubstr("nested deeper than"));
  EXPECT_THAT(JsonMessage(std::string(1'000'000, '[')), HasSubstr("nested deeper than"));
}

TEST(Json, ShowsLongValuesCut) {
  EXPECT_EQ(formats::Shown(Json::parse(R"({"a": [1, "x"]})")), R"({"a":[1,"x"]})");
  const std::string shown = formats::Shown(Json(std::string(1000, 'y')));
  EXPECT_LT(shown.size(), 500u);
  EXPECT_THAT(shown, testing::EndsWith("..."));
}

}  // namespace
}  // namespace kvant::test
