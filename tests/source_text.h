// A reader of C++ source text, just good enough for tests/tidy_test.cpp: it finds includes and the
// length of every function without a compiler.
//
// Relies on the formatting of .clang-format: a blank stands before the brace that opens a body and
// none before the brace of an initialiser. Functions inside functions belong to the outer one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvant::test {

// The text with comments, the insides of literals and preprocessor lines blanked; newlines stay.
std::string BlankNonCode(std::string_view text);

struct FunctionSize {
  std::string name;  // "Parse", "GgufFile::Open", for tests "Suite.Name"
  int line;          // of the opening brace, from 1
  int lines;         // from the opening to the closing brace, both included
};

std::vector<FunctionSize> FindFunctions(std::string_view text);

// The insides of string literals, as they are written; raw ones are left out.
std::vector<std::string> StringLiterals(std::string_view text);

// Comments from // to the end of their lines.
std::vector<std::string> LineComments(std::string_view text);

// Lines that are a comment alone and begin with a word that stands where a subject belongs: "Of",
// "The same", "Likewise", "Those", "What". Every line of a comment counts, not only the first.
std::vector<std::string> CommentsWithoutSubject(std::string_view text);

// Parameters of type bool, as they are written: "bool add". Those called `value` and `otherwise`
// are left out: they are data that is stored or returned, and choose nothing.
std::vector<std::string> BoolParameters(std::string_view text);

// The path between the quotes of each #include "...".
std::vector<std::string> QuotedIncludes(std::string_view text);

std::vector<std::string_view> SplitLines(std::string_view text);

}  // namespace kvant::test
