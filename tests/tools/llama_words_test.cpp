// The words of llama.cpp in docs/from-llama.md: each row of the table does what the table says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Cells = std::vector<std::string>;

struct WordRow {
  Cells words;  // of the option, as typed
  std::string command;
  std::string state;
};

// "| a | b |": the texts between the bars.
Cells CellsOf(const std::string& line) {
  Cells cells;
  std::istringstream stream(line);
  std::string cell;
  std::getline(stream, cell, '|');
  while (std::getline(stream, cell, '|')) {
    const size_t begin = cell.find_first_not_of(' ');
    const size_t end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

std::vector<WordRow> ReadRows() {
  std::ifstream page(SourcePath("docs/from-llama.md"));
  std::vector<WordRow> rows;
  bool begun = false;
  for (std::string line; std::getline(page, line);) {
    begun |= line.starts_with("| Option | Command |");
    const Cells cells = CellsOf(line);
    if (!begun || cells.size() != 5 || !cells[0].starts_with('`')) continue;
    WordRow row{{}, cells[1], cells[3]};
    std::istringstream words(cells[0].substr(1, cells[0].size() - 2));
    for (std::string word; words >> word;) row.words.push_back(word);
    rows.push_back(row);
  }
  return rows;
}

// A short run of the command with these words.
ProgramRun RunWords(const WordRow& row, const std::string& file) {
  Cells words = {row.command};
  const auto has = [&row](const char* word) {
    return std::find(row.words.begin(), row.words.end(), word) != row.words.end();
  };
  if (!has("-m") && row.command != "bench") words.emplace_back("dialogue");
  if (row.command == "run" && !has("-p") && !has("--prompts"))
    words.insert(words.end(), {"-p", "Hello"});
  if (row.command == "run") words.insert(words.end(), {"-n", "1"});
  if (row.command == "bench") {
    words.insert(words.end(),
                 {"--synthetic", "tiny", "-p", "2", "-n", "0", "-r", "1", "--no-bounds"});
  }
  for (const std::string& word : row.words) words.push_back(word == "FILE" ? file : word);
  return RunProgram(words, {.text = has("--prompts") ? "{\"prompt\": \"Hello\"}\n" : ""});
}

TEST(LlamaWords, DoWhatTheTableSays) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::vector<WordRow> rows = ReadRows();
  ASSERT_GT(rows.size(), 100u);
  for (const WordRow& row : rows) {
    SCOPED_TRACE(row.command + testing::PrintToString(row.words));
    const ProgramRun run = RunWords(row, folder / "file");
    if (row.state == "not here") {
      EXPECT_EQ(run.code, 2) << run.error;
      EXPECT_EQ(run.error_lines(), 1u) << run.error;
      EXPECT_THAT(run.error, Not(HasSubstr("unknown option")));
      EXPECT_THAT(run.error, Not(HasSubstr("did you mean")));
      continue;
    }
    EXPECT_EQ(run.code, 0) << run.error;
    const bool noted = run.error.find(" has no effect: ") != std::string::npos;
    EXPECT_EQ(noted, row.state == "noted") << run.error;
    EXPECT_TRUE(row.state == "noted" || row.state == "works") << row.state;
  }
}

}  // namespace
}  // namespace kvant::test
