// The forms in which kvant bench writes its rows: md, csv, json, jsonl and sql, as llama-bench
// writes them.
//
// A row is an object of named values in a fixed order, the same names in every row. md shows chosen
// cells instead, in one or more lines; csv and sql leave lists out. md, csv, jsonl and sql are
// written row by row, json as one array at the end.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tools/options/json.h"

namespace kvant::tools {

enum class OutputForm : uint8_t { kMarkdown, kCsv, kJson, kJsonLines, kSql };

// "md", "csv", "json", "jsonl", "sql". kInvalid names the option.
Result<OutputForm> ParseOutputForm(const char* option, std::string_view name);

struct MarkdownColumn {
  const char* title;
  size_t width;  // characters; the first column is left-aligned, others right-aligned
};

class TableWriter {
 public:
  using Sink = std::function<void(std::string_view text)>;

  TableWriter(OutputForm form, std::vector<MarkdownColumn> columns, Sink sink)
      : form_(form), columns_(std::move(columns)), sink_(std::move(sink)) {}

  using Cells = std::vector<std::string>;
  void AddRow(const Json& row, const std::vector<Cells>& lines);

  // `notes` are lines below the table of md.
  void Finish(const std::vector<std::string>& notes);

 private:
  std::string Header(const Json& row) const;
  std::string Line(const Cells& cells) const;

  OutputForm form_;
  std::vector<MarkdownColumn> columns_;
  Sink sink_;
  size_t rows_ = 0;
  Json array_ = Json::array();  // of json
};

}  // namespace kvant::tools
