// kvant on the model that comes with it, on one thread, and programs of `kvant seq`: what the tests
// of sequences from the shell share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;
using Words = std::vector<std::string>;

inline std::string Shakespeare() { return SourcePath("models/shakespeare/shakespeare.gguf"); }

inline Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// kvant run on one thread: the tests share the machine.
inline ProgramRun RunModel(const Words& arguments, const ProgramInput& input = {}) {
  return RunProgram(With({"run", Shakespeare(), "-t", "1"}, arguments), input);
}

// The output of a run that has to succeed and to write nothing to stderr.
inline std::string Text(const Words& arguments, const std::string& stdin_text = "") {
  const ProgramRun run = RunModel(arguments, {.text = stdin_text});
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(run.error, "");
  return run.out;
}

// Lines of JSON.
inline std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
}

inline ProgramRun Seq(const std::string& program, const Words& options = {}) {
  return RunProgram(With({"seq", Shakespeare(), "-t", "1", "-"}, options), {.text = program});
}

// The lines of a program that succeeds.
inline std::vector<json> SeqLines(const std::string& program, const Words& options = {}) {
  const ProgramRun run = Seq(program, options);
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(run.error, "");
  return Lines(run.out);
}

inline json State(const json& line, size_t i = 0) { return line["state"][i]; }

inline void ExpectRefused(const ProgramRun& run, int code, const std::string& message) {
  EXPECT_EQ(run.code, code) << run.error;
  EXPECT_THAT(run.error, HasSubstr(message));
  EXPECT_EQ(run.error_lines(), 1u) << run.error;
}

// The likeliest tokens after a prompt.
inline Words Greedy(const std::string& prompt, const std::string& tokens) {
  return {"-p", prompt, "--temp", "0", "-n", tokens};
}

class Sequences : public testing::Test {
 protected:
  void SetUp() override { KVANT_SKIP_WITHOUT_PROGRAM(); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  TemporaryFolder folder_;
};

}  // namespace kvant::test
