// Where a text ends that fills a gap in code, besides its stop texts: at a line that is indented
// less than asked for, and at the end of a time once a line is complete. Both are llama-server's,
// which editors ask for.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvant::tools {

class GapLimits {
 public:
  // Every line but the first begins with at least `indent` blanks or tabs, or the text ends behind
  // those that it has. `seconds_max`: 0 is no limit.
  GapLimits(int64_t indent, double seconds_max) : indent_(indent), seconds_max_(seconds_max) {}

  // The beginning of the piece that is part of the text. `seconds` have passed since its first
  // token.
  std::string_view Take(std::string_view piece, double seconds);
  bool ended() const { return ended_; }

 private:
  int64_t indent_;
  double seconds_max_;
  bool has_line_ = false;        // a line is complete
  bool in_indentation_ = false;  // of a line that is not the first
  int64_t blanks_ = 0;
  bool ended_ = false;
};

}  // namespace kvant::tools
