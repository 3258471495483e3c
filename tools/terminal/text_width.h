// Columns that text takes on a terminal, and where its characters begin.
//
// A character here is what people see as one: a grapheme cluster of Unicode, such as a letter with
// its accents or an emoji of several code points. A control character counts as the escape that
// Visible shows in its place.
//
// Thread-safety: pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvant::tools {

// Bytes [begin, end) of a text, and the columns that they take: 0, 1 or 2, or more for an escape.
struct TextCluster {
  size_t begin = 0;
  size_t end = 0;
  size_t columns = 0;
};

// The cluster at `begin` < text.size(), which must be the beginning of one. Bytes that are no UTF-8
// are clusters of their own.
TextCluster ClusterAt(std::string_view text, size_t begin);

// The beginnings of the clusters before and behind `at`; the ends of the text where there is none.
size_t PreviousCluster(std::string_view text, size_t at);
size_t NextCluster(std::string_view text, size_t at);

// The columns of a text of one line.
size_t TextColumns(std::string_view text);

// The longest beginning of whole clusters that takes at most `columns` columns.
std::string_view CutToColumns(std::string_view text, size_t columns);

// A text of one line as lines of at most `columns` columns, broken at blanks or, where there is
// none, between clusters. The lines behind the first one begin with `indent` blanks, or with two
// where that is more than half the columns.
std::vector<std::string> WrapToColumns(std::string_view text, size_t columns, size_t indent);

}  // namespace kvant::tools
