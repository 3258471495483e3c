// Grammars in GBNF, the notation of llama.cpp.
//
//     root  ::= "yes" | "no" | number (", " number){0,3}   # a comment
//     number ::= [0-9]+ | "0x" [^G-Zg-z]
//     think ::= <think> [^<]* </think>                     # tokens by their text, or <[1000]>
//     data  ::= %json {"type": "object"}                   # JSON by its schema
//
// Texts have the escapes \n \r \t \\ \" \[ \] \xXX \uXXXX \UXXXXXXXX; classes are of code points,
// and `.` is any code point. A rule ends with its line, but goes on behind `::=` and `|` and inside
// parentheses. Rules may be recursive in any way, on the left too.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/grammar/grammar.h"

namespace kvant {
class Tokenizer;
}  // namespace kvant

namespace kvant::grammar {

// `tokenizer` knows the tokens that a grammar names by their text; null: there are none. kInvalid,
// with line and column, for what is no GBNF, names a rule or token that is not there, or is too
// large.
Result<std::unique_ptr<Grammar>> ParseGbnf(std::string_view text, const Tokenizer* tokenizer);

}  // namespace kvant::grammar
