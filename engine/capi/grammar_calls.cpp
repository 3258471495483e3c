// The calls of kvant/kvant_generate.h on grammars.
#include "engine/capi/handles.h"

namespace kvant::capi {
namespace {

constexpr kvant_grammar_options kGrammarDefaults = {
    .struct_size = sizeof(kvant_grammar_options),
    .kind = KVANT_GRAMMAR_GBNF,
    .text = nullptr,
    .text_size = 0,
    .choices = nullptr,
    .choice_count = 0,
    .json_compact = 0,
    .json_allows_unknown = 0,
    .trigger_words = nullptr,
    .trigger_word_count = 0,
    .trigger_tokens = nullptr,
    .trigger_token_count = 0,
    .trigger_patterns = nullptr,
    .trigger_pattern_count = 0,
    .trigger_full_patterns = nullptr,
    .trigger_full_pattern_count = 0,
};

using Kind = GrammarText::Kind;
static_assert(static_cast<int>(Kind::kGbnf) == KVANT_GRAMMAR_GBNF);
static_assert(static_cast<int>(Kind::kRegex) == KVANT_GRAMMAR_REGEX);
static_assert(static_cast<int>(Kind::kChoices) == KVANT_GRAMMAR_CHOICES);
static_assert(static_cast<int>(Kind::kJson) == KVANT_GRAMMAR_JSON_OBJECT);
static_assert(static_cast<int>(Kind::kJsonSchema) == KVANT_GRAMMAR_JSON_SCHEMA);

Result<GrammarText> ReadGrammar(const kvant_grammar_options* given) {
  KVANT_TRY(Need(given, "options"));
  KVANT_ASSIGN(const auto in, ReadStruct(given, kGrammarDefaults, "grammar options"));
  KVANT_TRY(CheckChoice(in.kind, KVANT_GRAMMAR_JSON_SCHEMA, "kind"));
  GrammarText out;
  out.kind = static_cast<Kind>(in.kind);
  KVANT_ASSIGN(out.text, Text(in.text, in.text_size, "text"));
  KVANT_ASSIGN(out.choices, ReadTexts(in.choices, in.choice_count, "choices"));
  out.json_compact = in.json_compact != 0;
  out.json_allows_unknown = in.json_allows_unknown != 0;
  KVANT_ASSIGN(out.triggers.words,
               ReadTexts(in.trigger_words, in.trigger_word_count, "trigger_words"));
  KVANT_ASSIGN(const auto tokens,
               Array(in.trigger_tokens, in.trigger_token_count, "trigger_tokens"));
  out.triggers.tokens.assign(tokens.begin(), tokens.end());
  KVANT_ASSIGN(out.triggers.patterns,
               ReadTexts(in.trigger_patterns, in.trigger_pattern_count, "trigger_patterns"));
  KVANT_ASSIGN(
      out.triggers.full_patterns,
      ReadTexts(in.trigger_full_patterns, in.trigger_full_pattern_count, "trigger_full_patterns"));
  return out;
}

}  // namespace
}  // namespace kvant::capi

using namespace kvant;
using namespace kvant::capi;

kvant_status kvant_grammar_options_default(kvant_grammar_options* options, size_t size) {
  return FillDefault(options, size, kGrammarDefaults);
}

kvant_status kvant_grammar_new(const kvant_tokenizer* tokenizer,
                               const kvant_grammar_options* options, kvant_grammar** grammar) {
  return Call(tokenizer, [&]() -> Status {
    KVANT_TRY(Need(tokenizer, "tokenizer"));
    KVANT_TRY(Need(grammar, "grammar"));
    *grammar = nullptr;
    KVANT_ASSIGN(const GrammarText text, ReadGrammar(options));
    KVANT_ASSIGN(auto made, Grammar::Create(text, *tokenizer->tokenizer));
    return Give(grammar, std::make_unique<kvant_grammar>(kvant_grammar{std::move(made)}));
  });
}

void kvant_grammar_free(kvant_grammar* grammar) { Free(grammar); }
