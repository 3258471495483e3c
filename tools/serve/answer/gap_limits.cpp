#include "tools/serve/answer/gap_limits.h"

#include <cstddef>

namespace kvant::tools {

std::string_view GapLimits::Take(std::string_view piece, double seconds) {
  if (ended_) return {};
  for (size_t i = 0; i < piece.size(); ++i) {
    const char c = piece[i];
    const bool is_blank = c == ' ' || c == '\t';
    if (in_indentation_ && !is_blank && blanks_ < indent_) {
      ended_ = true;
      return piece.substr(0, i);
    }
    blanks_ += is_blank ? 1 : 0;
    in_indentation_ = in_indentation_ && is_blank;
    if (c != '\n') continue;
    has_line_ = in_indentation_ = true;
    blanks_ = 0;
  }
  ended_ = has_line_ && seconds_max_ > 0 && seconds > seconds_max_;
  return piece;
}

}  // namespace kvant::tools
