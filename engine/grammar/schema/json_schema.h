// JSON schemas (draft 2020-12, and 4 to 2019-09 where they mean the same) as grammars of the JSON
// texts that satisfy them.
//
// Properties stand in the order of the schema; optional ones may be left out; additional ones
// follow them. What a keyword says is enforced, or the schema is refused. The texts are a subset of
// the valid ones: integers have neither point nor exponent, bounded numbers no exponent, constants
// only the escapes that they need. docs/constrained.md has the details.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/grammar/grammar.h"

namespace kvant::grammar {

struct JsonSchemaForm {
  bool compact = false;         // no white space between parts
  bool allows_unknown = false;  // unknown keywords are annotations, as the specification says
};

// Adds the rules of a schema to a grammar, and returns that of the JSON texts that satisfy it.
// kInvalid or kNotSupported, with the JSON pointer of what is wrong or not enforced.
Result<RuleId> AddJsonSchema(GrammarBuilder& builder, std::string_view text,
                             const JsonSchemaForm& form);

// A grammar of nothing else. Errors as above.
Result<std::unique_ptr<Grammar>> ParseJsonSchema(std::string_view text, const JsonSchemaForm& form);

}  // namespace kvant::grammar
