// JSON schemas: which texts each keyword allows, and what is refused.
#include <nlohmann/json.hpp>
#include <random>

#include "tests/engine/grammar/schema/schema_judge.h"

namespace kvant::grammar {
namespace {

TEST(JsonSchema, Types) {
  ExpectTexts(R"({})", {"1", "null", R"({"a": [1, {}]})", "\"x\"", "[ ]", "{}"}, {"", "01", "{,}"});
  ExpectTexts("true", {"1", "[]"}, {"x"});
  ExpectTexts(R"({"type": "integer"})", {"0", "-7", "12345678901234567890"},
              {"1.5", "1e2", "01", "+1", "\"1\""});
  ExpectTexts(R"({"type": "number"})", {"0", "-7.25", "1e2", "1.5E-7", "0.10"}, {"1.", ".5", "1e"});
  ExpectTexts(R"({"type": ["null", "boolean"]})", {"null", "true", "false"}, {"0", "\"null\""});
  ExpectTexts(R"({"type": "array"})", {"[]", "[1, [2]]"}, {"{}", "[1,]", "[1 ,2]"});
}

TEST(JsonSchema, StringsAndTheirEscapes) {
  ExpectTexts(
      R"({"type": "string", "minLength": 2, "maxLength": 3})",
      {R"("ab")", R"("\n\u0041")", R"("\ud83d\ude00x")", "\"\xF0\x9F\x98\x80x\"", R"("é€a")"},
      {R"("a")", R"("abcd")", R"("\ud83d\ude00")", R"("\ud83dx")", "\"a\nb\"", R"("\x41b")"});
  // A pattern is searched for, in the value and not in the text.
  ExpectTexts(R"({"type": "string", "pattern": "^a|b$"})", {R"("ax")", R"("xb")", R"("\u0061")"},
              {R"("xbx")", R"("")"});
  ExpectTexts(R"({"type": "string", "pattern": "\"|\\\\"})", {R"("\"")", R"("a\\b")"},
              {R"("a")", R"(""")"});
  ExpectTexts(R"({"pattern": "^[^,]*$"})", {R"("a\"b")", R"("\n")", "7"},
              {R"("a,b")", R"("\u002c")"});
  ExpectTexts(R"({"type": "string", "pattern": "^a+$", "minLength": 2, "maxLength": 4})",
              {R"("aa")", R"("aaaa")"}, {R"("a")", R"("aaaaa")", R"("ab")"});
  ExpectTexts(R"({"type": "string", "pattern": "^(?!foo)(?=.*z)[a-z]+$"})",
              {R"("abz")", R"("fozo")"}, {R"("fooz")", R"("abc")"});
  ExpectTexts(R"({"type": "string", "maxLength": 1000000})", {R"("abc")"}, {R"("abc)"});
}

TEST(JsonSchema, Formats) {
  ExpectTexts(R"({"type": "string", "format": "date"})", {R"("2020-02-29")", R"("1999-12-31")"},
              {R"("2021-02-29")", R"("2020-02-30")", R"("2020-13-01")", R"("1900-02-29")"});
  ExpectTexts(R"({"type": "string", "format": "date-time"})", {R"("2020-01-01T12:00:00.5Z")"},
              {R"("2020-01-01 12:00:00Z")", R"("2020-01-01T24:00:00Z")"});
  ExpectTexts(R"({"type": "string", "format": "time"})", {R"("23:59:59+01:00")"}, {R"("23:59")"});
  ExpectTexts(R"({"type": "string", "format": "duration"})",
              {R"("P1Y2M3DT4H")", R"("P2W")", R"("PT1S")"}, {R"("P")", R"("P1YT")", R"("P1W1D")"});
  ExpectTexts(R"({"type": "string", "format": "email"})", {R"("a.b+c@x-y.org")"},
              {R"("nope")", R"("a..b@x.org")", R"("@x.org")"});
  ExpectTexts(R"({"type": "string", "format": "hostname"})", {R"("www.example.com")", R"("a")"},
              {R"("-a.b")", R"("a_b")", R"("a..b")", "\"" + std::string(64, 'a') + "\""});
  ExpectTexts(R"({"type": "string", "format": "ipv4"})", {R"("192.168.0.1")"},
              {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"});
  ExpectTexts(R"({"type": "string", "format": "ipv6"})",
              {R"("::")", R"("2001:db8::1")", R"("::1.2.3.4")"},
              {R"("1::2::3")", R"("12345::")", R"("1:2:3:4:5:6:7")"});
  ExpectTexts(R"({"type": "string", "format": "uri"})", {R"("https://a.b/c?d#e")", R"("urn:x:y")"},
              {R"("//a.b")", R"("a b:c")", R"("http://[::1")"});
  ExpectTexts(R"({"type": "string", "format": "uuid"})",
              {R"("123e4567-e89b-12d3-a456-426614174000")"},
              {R"("123e4567-e89b-12d3-a456-42661417400")"});
  ExpectTexts(R"({"type": "integer", "format": "int32"})", {"2147483647"}, {"2147483648"});
  ExpectTexts(R"({"type": "string", "format": "date", "pattern": "^2", "maxLength": 10})",
              {R"("2020-01-01")"}, {R"("1920-01-01")", R"("2x")"});
}

TEST(JsonSchema, Numbers) {
  ExpectTexts(R"({"type": "integer", "minimum": 3, "exclusiveMaximum": 25})", {"3", "24", "10"},
              {"2", "25", "-5", "100"});
  ExpectTexts(R"({"type": "integer", "minimum": -12.5, "maximum": 3.9})", {"-12", "0", "3"},
              {"-13", "4"});
  ExpectTexts(R"({"minimum": 0.01, "type": "number"})", {"0.01", "1", "0.010", "7.5"},
              {"0", "0.0", "0.009", "-1"});
  ExpectTexts(R"({"minimum": 5, "exclusiveMinimum": true})", {"5.1", "6", "\"x\""},
              {"5", "5.0", "4"});
  ExpectTexts(R"({"minimum": 0, "type": "number"})", {"1e5", "0"}, {"-1e5", "-1"});
  ExpectTexts(R"({"multipleOf": 0.01, "type": "number"})", {"3.25", "-1", "0.10"}, {"3.251"});
  ExpectTexts(R"({"multipleOf": 7, "type": "integer", "minimum": 1})", {"7", "343"},
              {"1", "0", "342"});
  ExpectTexts(R"({"minimum": 18446744073709551616, "type": "integer"})", {"18446744073709551616"},
              {"18446744073709551615"});
}

TEST(JsonSchema, Constants) {
  ExpectTexts(R"({"const": {"a": [1, "x\n"], "b": null}})",
              {R"({"a": [1, "x\n"], "b": null})", R"({"a":[1.0,"x\u000a"],"b":null})"},
              {R"({"a": [1]})", R"({"a": [1, "x\n"]})"});
  ExpectTexts(R"({"enum": ["a", 1.50, null, []], "type": ["string", "number"]})", {R"("a")", "1.5"},
              {"null", "[]", "1.51", R"("b")"});
  ExpectTexts(R"({"enum": ["a", "abc", "bcd"], "minLength": 2, "pattern": "c$"})", {R"("abc")"},
              {R"("a")", R"("bcd")"});
}

TEST(JsonSchema, Arrays) {
  ExpectTexts(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
              {"[1]", "[1, 2, 3]", "[ 1,\n  2 ]"}, {"[]", "[1,2,3,4]", "[\"a\"]"});
  ExpectTexts(R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]})",
              {"[]", "[1]", "[1, \"a\", null]"}, {"[\"a\"]", "[1, 2]"});
  ExpectTexts(R"({"type": "array", "prefixItems": [true], "items": false})", {"[]", "[1]"},
              {"[1,2]"});
  ExpectTexts(R"({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}})",
              {"[1,null,null]", "7"}, {"[1,1]", "[null]"});
  ExpectTexts(R"({"type": "array", "contains": {"const": 5}, "items": {"type": "integer"}})",
              {"[5]", "[1,5,2]"}, {"[]", "[1,2]"});
  ExpectTexts(R"({"type": "array", "contains": {"const": 5}, "minContains": 2, "maxContains": 2})",
              {"[5,5]", "[5,1,5]"}, {"[5]", "[5,5,5]", "[5,5.0,5]"});
  ExpectTexts(R"({"type": "array", "items": {"enum": ["a", "b", 3]}, "uniqueItems": true})",
              {"[]", R"(["b","a"])", R"([3,"a","b"])"}, {R"(["a","a"])", "[3,3]", "[3,3.0]"});
}

TEST(JsonSchema, Objects) {
  constexpr const char* kSchema =
      R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
          "required": ["b"]})";
  ExpectTexts(kSchema, {R"({"b": 1})", R"({"a": "x", "b": 1})", R"({"b": 1, "c": [], "d": {}})"},
              {"{}", R"({"a": "x"})", R"({"b": 1, "a": "x"})", R"({"b": 1, "b": 2})",
               R"({"b": 1, "c": 1, "b": 2})", R"({"b": 1, "\u0061": 2})", R"({"b": 1,})"});
  ExpectTexts(R"({"properties": {"a": true}, "additionalProperties": false})",
              {"{}", R"({"a": 1})", "5"}, {R"({"b": 1})", R"({"aa": 1})"});
  ExpectTexts(R"({"properties": {"a": false}, "additionalProperties": {"type": "null"}})",
              {R"({"b": null})", "{}"}, {R"({"a": null})", R"({"b": 1})"});
  ExpectTexts(
      R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
                  "additionalProperties": false})",
      {R"({"xa": 1})", R"({"by": 7, "xy": 9})", R"({"by": "s"})"},
      {R"({"xy": 3})", R"({"xa": "s"})", R"({"a": 1})"});
  ExpectTexts(R"({"type": "object", "required": ["z"]})", {R"({"z": 1})", R"({"z": 1, "a": 2})"},
              {"{}", R"({"a": 2})"});
  ExpectTexts(R"({"type": "object", "propertyNames": {"maxLength": 2}})", {R"({"ab": 1})", "{}"},
              {R"({"abc": 1})"});
  ExpectTexts(R"({"type": "object", "minProperties": 1, "maxProperties": 2})",
              {R"({"a": 1})", R"({"a": 1, "b": 1})"}, {"{}", R"({"a": 1, "b": 1, "c": 1})"});
  ExpectTexts(
      R"({"type": "object", "properties": {"a": true, "b": true, "c": true}, "minProperties": 2,
                  "additionalProperties": false})",
      {R"({"a": 1, "c": 1})", R"({"a": 1, "b": 1, "c": 1})"}, {R"({"b": 1})"});
  ExpectTexts(R"({"type": "object", "properties": {"a": true, "b": true},
                  "dependentRequired": {"a": ["b", "c"]}})",
              {R"({"b": 1})", R"({"a": 1, "b": 1, "c": 2})"},
              {R"({"a": 1})", R"({"a": 1, "b": 1})"});
  ExpectTexts(
      R"({"type": "object", "properties": {"a": true},
          "dependencies": {"a": {"required": ["c"]}}})",
      {"{}", R"({"a": 1, "c": 2})"}, {R"({"a": 1})"});
}

TEST(JsonSchema, Combinations) {
  ExpectTexts(R"({"allOf": [{"minimum": 3}, {"maximum": 7}], "type": "integer"})", {"3", "7"},
              {"2", "8"});
  ExpectTexts(R"({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]})",
              {R"("xbxa")", R"("ab")"}, {R"("a")", R"("b")"});
  ExpectTexts(R"({"anyOf": [{"type": "integer"}, {"minLength": 2}], "maximum": 5})",
              {"3", "2.5", R"("ab")"}, {"6", R"("a")"});
  ExpectTexts(R"({"oneOf": [{"minimum": 2}, {"maximum": 5}], "type": "integer"})", {"1", "6"},
              {"3"});
  ExpectTexts(R"({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
              {R"({"a": 1})", R"({"b": 1})"}, {"{}", R"({"a": 1, "b": 1})"});
  ExpectTexts(R"({"not": {"type": ["string", "object"]}})", {"1", "[]"}, {R"("x")", "{}"});
  ExpectTexts(R"({"type": "string", "not": {"enum": ["a", "b"]}})", {R"("c")", R"("ab")", R"("")"},
              {R"("a")", R"("b")", R"("\u0061")"});
  ExpectTexts(
      R"({"properties": {"k": {"enum": [1, 2]}, "v": true}, "required": ["k"], "type": "object",
                  "if": {"properties": {"k": {"const": 1}}}, "then": {"required": ["v"]},
                  "else": {"properties": {"v": false}}})",
      {R"({"k": 1, "v": 0})", R"({"k": 2})"}, {R"({"k": 1})", R"({"k": 2, "v": 0})"});
}

TEST(JsonSchema, References) {
  ExpectTexts(
      R"({"$ref": "#/$defs/a~1b%20c", "minimum": 5, "$defs": {"a/b c": {"type": "integer"}}})",
      {"5"}, {"4", R"("x")"});
  ExpectTexts(R"({"$id": "http://x/y.json", "$ref": "z.json#n",
                  "$defs": {"q": {"$id": "z.json",
                   "$defs": {"r": {"$anchor": "n", "type": "null"}}}}})",
              {"null"}, {"1"});
  ExpectTexts(R"({"type": "array", "items": {"$ref": "#"}, "maxItems": 2})", {"[]", "[[], [[]]]"},
              {"[1]", "[[], [], []]"});
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{\"n\":";
  deep += "null";
  for (int i = 0; i < 1000; ++i) deep += "}";
  SchemaJudge list(
      R"({"$ref": "#/$defs/l", "$defs": {"l": {"type": ["object", "null"], "required": ["n"],
                       "properties": {"n": {"$ref": "#/$defs/l"}}}}})");
  EXPECT_TRUE(list.Accepts(deep));
  EXPECT_FALSE(list.Accepts(deep + "}"));
}

TEST(JsonSchema, CompactForm) {
  SchemaJudge judge(R"({"type": "object"})", {.compact = true});
  EXPECT_TRUE(judge.Accepts(R"({"a":[1,{"b":""}]})"));
  EXPECT_FALSE(judge.Accepts(R"({"a": 1})"));
}

TEST(JsonSchema, RefusesByPointer) {
  struct Case {
    const char* schema;
    const char* message;
  };
  const Case cases[] = {
      {"{", "schema: line 1"},
      {"7", "schema: #: expected an object, true or false, found 7"},
      {R"({"a": 1, "a": 2})", "expected each key once in an object, found \"a\" twice"},
      {R"({"properties": {"a": {"minimun": 3}}})",
       "schema: #/properties/a/minimun: expected a keyword of JSON Schema, found \"minimun\""
       " (is it 'minimum'?)"},
      {R"({"nullable": true})", "schema: #/nullable: expected a keyword"},
      {R"({"type": "text"})", "schema: #/type: expected null, boolean"},
      {R"({"type": []})", "schema: #/type: expected null, boolean"},
      {R"({"minLength": -1})", "schema: #/minLength: expected a whole number"},
      {R"({"minLength": "2"})", "schema: #/minLength: expected a whole number"},
      {R"({"enum": []})", "schema: #/enum: expected a list"},
      {R"({"anyOf": []})", "schema: #/anyOf: expected a list of schemas"},
      {R"({"pattern": "(a"})", "schema: #/pattern: pattern: line 1, column 3: expected ')'"},
      {R"({"pattern": "(a)\\1"})", "expected no backreference"},
      {R"x({"pattern": "a(?=b)"})x", "expected lookahead only behind a ^"},
      {R"({"format": "color"})", "schema: #/format: expected one of the formats date,"},
      {R"({"$ref": "#"})", "schema: #: expected a schema, found one that refers to itself"},
      {R"({"$ref": "#/x"})", "schema: #/$ref: expected a reference to a schema"},
      {R"({"$ref": "http://a/b"})", "schema: #/$ref: expected a reference into this schema"},
      {R"({"$dynamicRef": "#x"})", "schema: #/$dynamicRef: expected a keyword that kvant enforces"},
      {R"({"uniqueItems": true, "type": "array"})", "expected 'uniqueItems' with items of at most"},
      {R"({"type": "object", "minProperties": 2})", "additional names may repeat"},
      {R"({"oneOf": [{"format": "uri"}, {"pattern": "^a"}], "type": "string"})",
       "schema: #/oneOf: expected alternatives of which never two hold, found 0 and 1"},
      {R"({"not": {"additionalProperties": {"type": "string"}}})",
       "schema: #/not: expected a schema that has"},
      {R"({"multipleOf": 0})", "schema: #/multipleOf: expected a number above 0"},
      {"false", "expected a schema that some value satisfies, found none"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})",
       "that some value satisfies, found none"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
       "that some value satisfies, found none"},
      {R"({"type": "string", "pattern": "^a$", "minLength": 2})", "that some value satisfies"},
      {R"({"required": ["a"], "properties": {"a": false}, "type": "object"})",
       "that some value satisfies"},
      {R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})",
       "expected a text that the root can become"},
      {R"({"$schema": "http://json-schema.org/draft-03/schema#"})",
       "expected JSON Schema of draft 4"},
      {R"({"maxItems": 20000, "type": "array"})",
       "expected minItems and maxItems of at most 10000"},
  };
  for (const Case& one : cases) {
    const SchemaJudge judge(one.schema);
    EXPECT_NE(judge.error().find(one.message), std::string::npos) << one.schema << "\n"
                                                                  << judge.error();
  }
  EXPECT_EQ(SchemaJudge(R"({"nullable": true})", {.allows_unknown = true}).error(), "");
  EXPECT_EQ(SchemaJudge(R"({"x-order": 1, "$comment": "c", "examples": []})").error(), "");
}

// Whatever is chosen among what is allowed, there is a way on; and what is complete is JSON.
TEST(JsonSchema, RandomTextsNeverGetStuck) {
  const char* schemas[] = {
      R"({"type": "object", "properties": {"a": {"type": "string",
          "pattern": "^(ab|ba)+$", "maxLength": 5},
          "b": {"oneOf": [{"type": "integer", "minimum": 17, "multipleOf": 6,
          "maximum": 40}, {"type": "null"}]}},
          "required": ["a"], "additionalProperties": {"type": "boolean"}, "maxProperties": 3})",
      R"({"type": "array", "items": {"enum": ["x", "y"]}, "uniqueItems": true, "minItems": 1})",
      R"({"allOf": [{"pattern": "a.*b"}, {"pattern": "^.{4,6}$"},
          {"not": {"pattern": "[0-9]"}}], "type": "string"})",
      R"({"anyOf": [{"format": "date"}, {"format": "ipv6"}], "type": "string"})",
  };
  std::mt19937 random(7);
  for (const char* schema : schemas) {
    SchemaJudge judge(schema, {.compact = true});
    ASSERT_EQ(judge.error(), "") << schema;
    std::vector<uint64_t> bits(Matcher::WordsFor(judge.matcher().vocab()));
    int complete = 0;
    for (int round = 0; round < 60; ++round) {
      MatchState state = judge.matcher().Begin();
      std::string text;
      while (text.size() < 200) {
        ASSERT_TRUE(judge.matcher().Mask(state, bits).ok());
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token <= SchemaJudge::kEnd; ++token) {
          const auto place = static_cast<size_t>(token);
          if ((bits[place / 64] >> (place % 64) & 1) != 0) allowed.push_back(token);
        }
        ASSERT_FALSE(allowed.empty()) << schema << " " << text;
        const bool may_end = allowed.back() == SchemaJudge::kEnd;
        const TokenId token = may_end ? SchemaJudge::kEnd : allowed[random() % allowed.size()];
        ASSERT_TRUE(*judge.matcher().Advance(state, token));
        if (may_end) break;
        text += static_cast<char>(token);
      }
      if (!state.has_ended) continue;
      ++complete;
      EXPECT_TRUE(nlohmann::json::accept(text)) << text;
    }
    EXPECT_GT(complete, 20) << schema;
  }
}

// Large schemas are read at once, and what would take too long is refused at once.
TEST(JsonSchema, LargeSchemas) {
  std::string many = R"({"type": "object", "properties": {)";
  for (int i = 0; i < 1000; ++i) {
    many += (i == 0 ? "" : ",") + ("\"p" + std::to_string(i)) + R"(": {"type": "integer"})";
  }
  SchemaJudge object(many + "}}");
  ASSERT_EQ(object.error(), "");
  EXPECT_TRUE(object.Accepts(R"({"p0": 1, "p500": 2, "p999": 3, "q": null})"));
  EXPECT_FALSE(object.Accepts(R"({"p500": 1, "p400": 2})"));

  std::string choices = R"({"enum": [)";
  for (int i = 0; i < 10000; ++i)
    choices += (i == 0 ? "\"word" : ",\"word") + std::to_string(i) + "\"";
  SchemaJudge words(choices + "]}");
  EXPECT_TRUE(words.Accepts("\"word9999\""));
  EXPECT_FALSE(words.Accepts("\"word10000\""));

  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += R"({"not":)";
  EXPECT_NE(SchemaJudge(nested).error().find("expected at most 128 nested"), std::string::npos);
  EXPECT_NE(
      SchemaJudge(R"({"type": "string", "pattern": "^(a|b)*a(a|b){40}$"})").error().find("states"),
      std::string::npos);
}

}  // namespace
}  // namespace kvant::grammar
