// Fuzzes grammars in GBNF and regular expressions: whatever they say, they are refused or say which
// tokens may follow, and every token that is allowed can be taken.
//
// The first byte chooses the notation; the rest is the text.
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex_syntax.h"
#include "tests/fuzz/grammar_walk.h"

namespace {

namespace grammar = kvant::grammar;

using Built = kvant::Result<std::unique_ptr<grammar::Grammar>>;

Built Build(bool is_regex, std::string_view text) {
  if (!is_regex) return grammar::ParseGbnf(text, nullptr);
  grammar::GrammarBuilder builder;
  const auto expr = grammar::ParseRegex(text, builder.pool());
  if (!expr.ok()) return expr.error();
  const grammar::RuleId root = builder.AddRule();
  builder.Define(root, builder.Regex(*expr));
  return builder.Build(root);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 2000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto built = Build((data[0] & 1) != 0, text);
  if (!built.ok()) return 0;
  kvant::test::WalkThrough(std::move(*built), data[0] / 2);
  return 0;
}
