// Values of arguments as models write them outside of JSON, made into JSON.
//
// Thread-safety: free functions.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/calls/call_cursor.h"
#include "engine/text/calls/tool_list.h"

namespace kvant {

// The text with what JSON wants escaped, without quotes. A text may be escaped piece by piece.
std::string EscapedForJson(std::string_view text);

// The value between two tags: JSON, True, False or None, where it has one of the types; else a
// text. A JSON string is a text whose quotes are a part of it.
std::string JsonOfTagged(std::string_view text, ToolTypes types);

// A literal of Python as JSON. Tuples are arrays; keys of dicts are strings.
bool TakePython(CallCursor& cursor, std::string& json);

// A value as Gemma 4 writes it, as JSON: strings between <|"|>, keys without quotes.
bool TakeBraced(CallCursor& cursor, std::string& json);
inline constexpr std::string_view kBracedQuote = "<|\"|>";

}  // namespace kvant
