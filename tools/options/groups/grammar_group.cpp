#include "tools/options/groups/grammar_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/options/groups/text_group.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

std::vector<std::string> BetweenCommas(std::string_view list) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    out.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace

void GrammarGroup::Add(OptionList& list) {
  list.Group("Output that follows a grammar");
  list.Text("--grammar", &text, "TEXT",
            "Write only texts of this grammar in GBNF: 'root ::= \"yes\" | \"no\"'");
  list.Text("--grammar-file", &file, "FILE", "Read the grammar from a file");
  list.Text("--regex", &regex, "EXPR",
            "Write only texts that match this regular expression as a whole");
  list.Texts("--choice", &choices, "TEXT", "Write this text or another --choice");
  list.Text("--choices", &choice_list, "A,B,...", "Write one of these texts between commas");
  list.Text("-j,--json-schema", &json_schema, "TEXT|FILE",
            "Write only JSON that satisfies this schema, for example '{\"type\": \"integer\"}'");
  list.Text("--json-schema-file", &json_schema_file, "FILE", "Read the schema from a file");
  list.Flag("--json-object", &json_object, "Write a JSON object");
  list.Flag("--json-compact", &json_compact, "Write JSON without white space");
  list.Flag("--json-any-keywords", &json_any_keywords,
            "Let a schema have keywords that JSON Schema does not know");
  list.Texts("--grammar-trigger", &triggers, "TEXT",
             "Leave the text free up to this text or another --grammar-trigger, with which the "
             "grammar's own text begins");
  list.Texts("--grammar-trigger-pattern", &trigger_patterns, "EXPR",
             "The same with a text that this regular expression matches");
}

Status GrammarGroup::Check(const OptionList& list) {
  constexpr std::array kAll = {"--grammar",          "--grammar-file", "--regex",
                               "--choice",           "--choices",      "--json-schema",
                               "--json-schema-file", "--json-object"};
  const char* given = nullptr;
  for (const char* option : kAll) {
    if (!list.Given(option)) continue;
    if (given != nullptr) return list.Exclude({option}, given);
    given = option;
  }
  if (given == nullptr) {
    KVANT_TRY(list.Need({"--grammar-trigger", "--grammar-trigger-pattern"}, "a grammar"));
  }
  const bool has_schema = list.Given("--json-schema") || list.Given("--json-schema-file");
  if (!has_schema) KVANT_TRY(list.Need({"--json-any-keywords"}, "--json-schema"));
  if (has_schema || list.Given("--json-object")) return {};
  return list.Need({"--json-compact"}, "--json-schema or --json-object");
}

Result<std::shared_ptr<const Grammar>> GrammarGroup::Make(const Tokenizer& tokenizer) const {
  GrammarText grammar;
  std::string option = "--grammar";
  if (text.has_value()) {
    grammar.text = *text;
  } else if (file.has_value()) {
    TextGroup source;
    source.file = file;
    KVANT_ASSIGN(const auto content, source.Read({}));
    grammar.text = content.value_or("");
    option = *file;
  } else if (regex.has_value()) {
    grammar = {GrammarText::Kind::kRegex, *regex, {}};
    option = "--regex";
  } else if (!choices.empty() || choice_list.has_value()) {
    grammar.kind = GrammarText::Kind::kChoices;
    grammar.choices = choice_list.has_value() ? BetweenCommas(*choice_list) : choices;
    option = choice_list.has_value() ? "--choices" : "--choice";
  } else if (json_schema.has_value() || json_schema_file.has_value()) {
    grammar.kind = GrammarText::Kind::kJsonSchema;
    option = "--json-schema";
    const std::string given = json_schema.value_or("");
    const size_t begin = std::min(given.find_first_not_of(" \t\r\n"), given.size());
    const std::string_view rest = std::string_view(given).substr(begin);
    if (!json_schema_file.has_value() &&
        (rest.starts_with('{') || rest == "true" || rest == "false")) {
      grammar.text = given;
    } else {
      TextGroup source;
      source.file = json_schema_file.has_value() ? json_schema_file : json_schema;
      KVANT_ASSIGN(const auto content, source.Read({}));
      grammar.text = content.value_or("");
      option = *source.file;
    }
  } else if (json_object) {
    grammar.kind = GrammarText::Kind::kJson;
    option = "--json-object";
  } else {
    return std::shared_ptr<const Grammar>();
  }
  grammar.triggers.words = triggers;
  grammar.triggers.patterns = trigger_patterns;
  grammar.json_compact = json_compact;
  grammar.json_allows_unknown = json_any_keywords;
  auto made = Grammar::Create(grammar, tokenizer);
  if (made.ok()) return made;
  // A grammar that is not enforced is wrong usage, too.
  return MakeError(ErrorCode::kInvalid, "{}: {}", Visible(option), made.error().message);
}

}  // namespace kvant::tools
