// Where the rows of kvant bench go (stdout, and stderr for -oe), and its progress, which is a line
// on the terminal or lines of their own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/bench_options.h"
#include "tools/bench/bench_output.h"
#include "tools/options/json.h"
#include "tools/terminal/console.h"

namespace kvant::tools {

class BenchReport {
 public:
  BenchReport(const BenchOptions& options, ResultStream& out);

  // The table's columns in md; once, before the first row.
  void Begin(const std::vector<MarkdownColumn>& columns);
  void AddRow(const Json& row, const std::vector<TableWriter::Cells>& lines);
  // Adds a line below the table of md; equal lines appear once.
  void Note(const std::string& note);
  void Finish();
  // Clears the terminal for an error message; rows that were written stay.
  void Abandon() { status_.Clear(); }

  void Progress(std::string_view text);

 private:
  const BenchOptions& options_;
  ResultStream& out_;
  StatusLine status_;
  std::vector<TableWriter> writers_;
  std::vector<std::string> notes_;
};

}  // namespace kvant::tools
