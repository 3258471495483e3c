// The table of kvant bench in md: a column for what every row says, and one for each list of values
// that was asked for. No line has more than 100 columns; what all rows have in common stands below.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/bench_options.h"
#include "tools/bench/bench_output.h"
#include "tools/options/json.h"

namespace kvant::tools {

class SpeedTable {
 public:
  explicit SpeedTable(const BenchOptions& options);

  std::vector<MarkdownColumn> Columns() const;
  // The cells of a row of the result, whose test is called `test`.
  TableWriter::Cells Cells(const Json& row, const std::string& test) const;
  // "llama 1.10 B Q4_K_M: 643.75 MiB, avx2, 2 threads, KV cache f16, ..."
  static std::string Common(const Json& row);
  // Tells what the last columns say; "" where they are not there.
  std::string Explanation() const;

 private:
  struct Column {
    MarkdownColumn head;
    std::function<std::string(const Json& row, const std::string& test)> cell;
  };

  void Add(const char* title, size_t width,
           std::function<std::string(const Json& row, const std::string& test)> cell);
  size_t Width() const;

  std::vector<Column> columns_;
  bool has_bounds_ = false;
  bool has_drafts_ = false;
};

}  // namespace kvant::tools
