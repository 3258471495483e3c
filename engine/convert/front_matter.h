// The front matter of a model card: the YAML between two lines "---" at the beginning of a folder's
// README.md, in which authors name the license, the languages and what a model was made from.
//
// Only what such cards hold is read: keys at the left margin with a text, with a list in brackets,
// or with a list of lines "- text". What goes deeper (nested keys, texts of several lines) is
// passed over, and so are texts that are not UTF-8: a card is read by people, so none is an error.
//
// Thread-safety: pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant::convert {

// Texts by key; one for a plain text, any number for a list.
using FrontMatter = std::map<std::string, std::vector<std::string>, std::less<>>;

// Empty for a text without front matter.
FrontMatter ParseFrontMatter(std::string_view text);

// Reads README.md in the folder; empty if there is none. kIo for one that cannot be read.
Result<FrontMatter> ReadModelCard(const std::string& folder);

}  // namespace kvant::convert
