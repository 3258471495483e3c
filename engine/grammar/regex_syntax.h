// Regular expressions in the syntax that RE2, PCRE2 and ECMAScript share.
//
//     a b . [a-z] [^\d_] \d \D \w \W \s \S \n \t \r \f \v \0 \xXX \uXXXX \x{X...} \u{X...}
//     (...) (?:...) (?<name>...) (?P<name>...) a|b  * + ? {m} {m,} {m,n}, each also with a `?`
//     behind
//
// Texts are code points in UTF-8. `.` is any but a line feed; \d \w \s are of ASCII. The whole text
// must match: `^` at the beginning and `$` at the end are allowed and mean nothing. What is not
// regular (lookaround, backreferences) and what depends on the surroundings (\b, anchors elsewhere,
// flags) is refused.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/byte_regex.h"

namespace kvant::grammar {

struct RegexTree {
  enum class Kind : uint8_t { kChars, kSequence, kEither, kRepeat, kBegin, kEnd, kAhead };
  Kind kind = Kind::kSequence;
  bool negated = false;                            // kChars, kAhead
  uint32_t least = 0;                              // kRepeat
  uint32_t most = 0;                               // kRepeat; kNoLimit: any number
  std::vector<RegexPool::CodePoints> ranges = {};  // kChars
  std::vector<RegexTree> parts = {};               // kRepeat, kAhead: one
};

// kWhole: the syntax above. kSearch: ECMAScript's, for an expression that matches anywhere within a
// text. There anchors and lookahead stay in the tree, `.` accepts no line terminator, and \s has
// the white space of Unicode.
enum class RegexUse : uint8_t { kWhole, kSearch };

// kInvalid, with line and column, for what is not understood.
Result<RegexTree> ParseRegexTree(std::string_view text, RegexUse use);

// kInvalid, with line and column, for what is not understood.
Result<ExprId> ParseRegex(std::string_view text, RegexPool& pool);

}  // namespace kvant::grammar
