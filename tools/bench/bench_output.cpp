#include "tools/bench/bench_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/result.h"
#include "tools/options/json.h"
#include "tools/terminal/text_width.h"

namespace kvant::tools {
namespace {

constexpr size_t kNoteColumns = 100;

// A value without quotes around it; true and false as 1 and 0.
std::string Plain(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return Dump(value, -1);
}

std::string Quoted(const std::string& text, char quote) {
  std::string out(1, quote);
  for (const char c : text) out.append(c == quote ? 2 : 1, c);
  return out + quote;
}

const char* SqlType(const Json& value) {
  if (value.is_string()) return "TEXT";
  return value.is_number_float() ? "REAL" : "INTEGER";
}

std::vector<std::string> Names(const Json& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) {
    if (!value.is_array()) names.push_back(name);
  }
  return names;
}

// Characters of UTF-8 text.
size_t Length(const std::string& text) {
  size_t length = 0;
  for (const char c : text) length += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return length;
}

}  // namespace

Result<OutputForm> ParseOutputForm(const char* option, std::string_view name) {
  if (name == "md") return OutputForm::kMarkdown;
  if (name == "csv") return OutputForm::kCsv;
  if (name == "json") return OutputForm::kJson;
  if (name == "jsonl") return OutputForm::kJsonLines;
  if (name == "sql") return OutputForm::kSql;
  return MakeError(ErrorCode::kInvalid, "{}: expected md, csv, json, jsonl or sql, found '{}'",
                   option, name);
}

std::string TableWriter::Line(const Cells& cells) const {
  std::string line = "|";
  for (size_t i = 0; i < columns_.size(); ++i) {
    const size_t length = Length(cells[i]);
    const std::string padding(columns_[i].width > length ? columns_[i].width - length : 0, ' ');
    line += i == 0 ? fmt::format(" {}{} |", cells[i], padding)
                   : fmt::format(" {}{} |", padding, cells[i]);
  }
  return line + "\n";
}

// The lines before the first row.
std::string TableWriter::Header(const Json& row) const {
  if (form_ == OutputForm::kMarkdown) {
    Cells titles;
    std::string rule = "|";
    for (const MarkdownColumn& column : columns_) {
      titles.emplace_back(column.title);
      const std::string dashes(column.width, '-');
      rule += titles.size() == 1 ? fmt::format(" {} |", dashes)
                                 : fmt::format(" {}: |", dashes.substr(1));
    }
    return Line(titles) + rule + "\n";
  }
  if (form_ == OutputForm::kCsv) return fmt::format("{}\n", fmt::join(Names(row), ","));
  if (form_ != OutputForm::kSql) return "";
  std::vector<std::string> fields;
  for (const std::string& name : Names(row)) {
    fields.push_back(fmt::format("  {} {}", name, SqlType(row[name])));
  }
  return fmt::format("CREATE TABLE IF NOT EXISTS test (\n{}\n);\n\n", fmt::join(fields, ",\n"));
}

void TableWriter::AddRow(const Json& row, const std::vector<Cells>& lines) {
  std::string out = rows_++ == 0 ? Header(row) : "";
  const std::vector<std::string> names = Names(row);
  std::vector<std::string> values;
  switch (form_) {
    case OutputForm::kMarkdown:
      for (const Cells& cells : lines) out += Line(cells);
      break;
    case OutputForm::kCsv:
      for (const std::string& name : names) values.push_back(Quoted(Plain(row[name]), '"'));
      out += fmt::format("{}\n", fmt::join(values, ","));
      break;
    case OutputForm::kSql:
      for (const std::string& name : names) {
        const std::string text = Plain(row[name]);
        values.push_back(row[name].is_string() ? Quoted(text, '\'') : text);
      }
      out += fmt::format("INSERT INTO test ({}) VALUES ({});\n", fmt::join(names, ", "),
                         fmt::join(values, ", "));
      break;
    case OutputForm::kJsonLines: out += Dump(row, -1) + "\n"; break;
    case OutputForm::kJson: array_.push_back(row); break;
  }
  if (!out.empty()) sink_(out);
}

void TableWriter::Finish(const std::vector<std::string>& notes) {
  if (form_ == OutputForm::kJson) sink_(Dump(array_, 2) + "\n");
  if (form_ != OutputForm::kMarkdown || notes.empty()) return;
  std::string below = "\n";
  for (const std::string& note : notes) {
    for (const std::string& line : WrapToColumns(note, kNoteColumns, 2)) below += line + "\n";
  }
  sink_(below);
}

}  // namespace kvant::tools
