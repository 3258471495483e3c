// The interpreter of chat templates beside Python's jinja2 (tests/reference/template_cases.json),
// its limits, and the marks of foreign text.
#include "engine/jinja/template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace kvant::jinja {
namespace {

using Variables = std::vector<std::pair<std::string, Value>>;

constexpr int64_t kMarch = 1772874303;  // 2026-03-07 09:05:03 UTC

Variables VariablesOf(const std::string& json) {
  Variables variables;
  const auto value = ValueOfJson(json, "variables");
  EXPECT_TRUE(value.ok());
  for (const auto& [key, member] : value->dict().items) {
    variables.emplace_back(key.text().bytes(), member);
  }
  return variables;
}

Result<Text> RenderWith(const std::string& source, const Variables& variables,
                        const Limits& limits = {}) {
  KVANT_ASSIGN(const Template parsed, Template::Parse("test", source));
  return parsed.Render(variables, kMarch, limits);
}

std::string ErrorOf(const std::string& source, const Limits& limits = {}) {
  const auto text = RenderWith(source, {}, limits);
  return text.ok() ? "rendered: " + text->bytes() : text.error().message;
}

TEST(Jinja, RendersWhatPythonRenders) {
  setenv("TZ", "UTC", 1);
  tzset();
  std::ifstream file(std::string(KVANT_SOURCE_DIR) + "/tests/reference/template_cases.json");
  const auto fixture = nlohmann::ordered_json::parse(file);
  const Variables variables = VariablesOf(fixture["variables"].dump());
  ASSERT_GT(fixture["cases"].size(), 400u);
  for (const auto& entry : fixture["cases"]) {
    const auto source = entry["template"].get<std::string>();
    const auto text = RenderWith(source, variables);
    if (entry["text"].is_null()) {
      EXPECT_FALSE(text.ok()) << source << " gave " << text->bytes();
    } else if (!text.ok()) {
      ADD_FAILURE() << source << ": " << text.error().message;
    } else {
      EXPECT_EQ(text->bytes(), entry["text"].get<std::string>()) << source;
    }
  }
}

TEST(Jinja, NamesTheLineOfAnError) {
  EXPECT_EQ(ErrorOf("a\n{% if x %}\n{{ 1 + }}\n{% endif %}"),
            "test: line 3: expected an expression, found the end of the tag");
  EXPECT_EQ(ErrorOf("a\n\n{{ x.y }}"), "test: line 3: 'x' is undefined");
  EXPECT_EQ(ErrorOf("\n{{ raise_exception('no\nway') }}"),
            "test: line 2: the template refuses the conversation: \"no\\nway\"");
  EXPECT_EQ(ErrorOf("{% for x in [1] %}\n{{ x | nothing }}\n{% endfor %}"),
            "test: line 2: no filter is called 'nothing'");
}

TEST(Jinja, EndsAtItsLimits) {
  EXPECT_NE(ErrorOf("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
                    {.steps = 10'000})
                .find("more than 10000 steps"),
            std::string::npos);
  EXPECT_NE(ErrorOf("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("nested deeper"),
            std::string::npos);
  EXPECT_NE(ErrorOf("{{ 'x' * 100000 }}", {.output = 1000}).find("more than 1000 bytes"),
            std::string::npos);
  EXPECT_NE(ErrorOf("{{ 'x' * 9999999999999 }}").find("more than"), std::string::npos);
  EXPECT_NE(ErrorOf("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
                    "{% set ns.x = [ns.x, ns.x] %}{% endfor %}")
                .find("more than"),
            std::string::npos);
  EXPECT_NE(ErrorOf("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}"
                    "{% set ns.x = [ns.x] %}{% endfor %}")
                .find("nested deeper"),
            std::string::npos);
  EXPECT_NE(ErrorOf("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")
                .find("nested deeper"),
            std::string::npos);
  std::string sum = "1";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  EXPECT_NE(ErrorOf("{{ " + sum + " }}").find("nested deeper"), std::string::npos);
}

// Each foreign byte as an asterisk.
std::string Marked(const std::string& source) {
  const auto text = RenderWith(source, VariablesOf(R"({"m": "abc def", "l": ["x", "y"]})"));
  if (!text.ok()) return text.error().message;
  std::string marked = text->bytes();
  for (const ByteRange& range : text->foreign()) {
    marked.replace(range.begin, range.end - range.begin, range.end - range.begin, '*');
  }
  return marked;
}

TEST(Jinja, KnowsWhichTextIsForeign) {
  EXPECT_EQ(Marked("<{{ m }}>"), "<*******>");
  EXPECT_EQ(Marked("{{ '<' + m[1:3] ~ '>' }}"), "<**>");
  EXPECT_EQ(Marked("{{ m | upper | replace('B', '--') | trim }}"), "*--*****");
  EXPECT_EQ(Marked("{{ m.split(' ') | join('+') }}"), "***+***");
  EXPECT_EQ(Marked("{{ l }}{{ l | tojson }}"), "['*', '*'][\"*\", \"*\"]");
  EXPECT_EQ(Marked("{{ '%s|%s' % (m, 'own') }}{{ '{}!'.format(m) }}"), "*******|own*******!");
  EXPECT_EQ(Marked("{% set x %}a{{ m }}{% endset %}{{ x }}{{ 'b' * 2 }}{{ l[0] * 2 }}"),
            "a*******bb**");
  EXPECT_EQ(Marked("{% macro k(x) %}[{{ x }}]{% endmacro %}{{ k(m) }}{{ m | length }}"),
            "[*******]7");
  EXPECT_EQ(Marked("{% for c in m[:2] %}{{ c }},{% endfor %}{{ m | reverse }}"), "*,*,*******");
}

TEST(Jinja, ReadsJsonAsPythonDoes) {
  const auto value = ValueOfJson(R"({"b": 1, "a": 2.0, "b": [null, true]})", "json");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(Str(*value).bytes(), "{'b': [None, True], 'a': 2.0}");
  EXPECT_FALSE(ValueOfJson("[1,]", "json").ok());
  EXPECT_EQ(Str(*ValueOfJson("[18446744073709551615, -9223372036854775808]", "json")).bytes(),
            "[18446744073709551615, -9223372036854775808]");
  EXPECT_FALSE(ValueOfJson("18446744073709551616", "json").ok());
  EXPECT_FALSE(ValueOfJson("-9223372036854775809", "json").ok());
  EXPECT_FALSE(ValueOfJson(std::string(100, '['), "json").ok());
}

}  // namespace
}  // namespace kvant::jinja
