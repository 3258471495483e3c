#include "tools/bench/bench_report.h"
#include "tools/options/json.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvant::tools {

BenchReport::BenchReport(const BenchOptions& options, ResultStream& out)
    : options_(options),
      out_(out),
      status_(options.quiet ? StatusUse::kHidden : StatusUse::kShown) {}

void BenchReport::Begin(const std::vector<MarkdownColumn>& columns) {
  writers_.emplace_back(options_.output, columns, [this](std::string_view text) {
    status_.Clear();
    out_.Write(text);
  });
  if (options_.error_output) {
    writers_.emplace_back(*options_.error_output, columns, [this](std::string_view text) {
      status_.Clear();
      WriteError(text);
    });
  }
}

void BenchReport::AddRow(const Json& row, const std::vector<TableWriter::Cells>& lines) {
  for (TableWriter& writer : writers_) writer.AddRow(row, lines);
}

void BenchReport::Note(const std::string& note) {
  if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
}

void BenchReport::Finish() {
  status_.Clear();
  for (TableWriter& writer : writers_) writer.Finish(notes_);
}

void BenchReport::Progress(std::string_view text) {
  if (options_.progress && !status_.enabled()) {
    WriteError(fmt::format("kvant bench: {}\n", text));
  } else {
    status_.Set(text);
  }
}

}  // namespace kvant::tools
