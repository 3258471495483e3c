// The table that kvant bench prints for people, and what it takes over from llama-bench: its words
// and the fields of its rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

ProgramRun Bench(std::vector<std::string> more) {
  more.insert(more.begin(), {"bench", "--synthetic", "tiny:Q4_K_M", "-p", "4", "-r", "1"});
  if (std::find(more.begin(), more.end(), "-n") == more.end()) {
    more.insert(more.end(), {"-n", "2"});
  }
  return RunProgram(more);
}

// The number of characters of UTF-8.
size_t Characters(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

TEST(BenchTable, HasAtMost100Columns) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {},
           {"--no-bounds"},
           {"-t", "1,2"},
           {"-ctk", "f16,q8_0", "-ctv", "q8_0"},
           {"-t", "1,2", "-ctk", "q8_0", "-mmp", "0,1"},
           {"-t", "1,2", "-ctk", "q8_0", "-ub", "2,4", "-mmp", "0,1"}}) {
    const ProgramRun run = Bench(options);
    EXPECT_EQ(run.code, 0) << run.error;
    std::istringstream lines(run.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(Characters(line), 100u) << line;
  }
}

TEST(BenchTable, SaysWhatDiffersAndWhatTheBoundIs) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string plain = Bench({"-t", "1"}).out;
  const std::string head = plain.substr(0, plain.find('\n'));
  EXPECT_THAT(head, testing::MatchesRegex("\\| model +\\| +test \\| +t/s \\| +bound \\|"));
  EXPECT_THAT(plain, HasSubstr("| llama 1.44 M Q4_K_M "));  // general.file_type, not Q4_K
  // Which of both limits sets the bound is the machine's, and the sanitizers', affair.
  EXPECT_THAT(plain, testing::ContainsRegex(" % (memory|compute) \\|"));
  EXPECT_THAT(plain, HasSubstr("\nbound: the share that was reached of what the machine allows"));
  EXPECT_THAT(plain, HasSubstr("1 thread, KV cache f16"));
  const std::string listed = Bench({"-t", "1,2", "--kv-type", "f16,q8"}).out;
  EXPECT_THAT(listed, HasSubstr(" threads |"));
  EXPECT_THAT(listed, HasSubstr(" q8_0 |"));
  EXPECT_THAT(Bench({"--no-bounds"}).out, Not(HasSubstr("bound")));
}

TEST(BenchTable, TakesListsOfOptionsWithoutEffect) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-fa", "0,1"},
                                             {"-fa", "on"},
                                             {"-nkvo", "0,1"},
                                             {"-ngl", "0,99"},
                                             {"-b", "512,2048"},
                                             {"-embd", "0"},
                                             {"-nopo", "0"},
                                             {"-dio", "0"},
                                             {"-sm", "none,layer"},
                                             {"-ncmoe", "0"},
                                             {"--delay", "1"},
                                             {"--color=on"}}) {
    std::vector<std::string> options = words;
    options.emplace_back("--no-bounds");
    const ProgramRun run = Bench(options);
    EXPECT_EQ(run.code, 0) << words[0] << ": " << run.error;
    EXPECT_EQ(run.error_lines(), 1u) << run.error;
    EXPECT_THAT(run.error, HasSubstr(words[0].substr(0, words[0].find('=')) + " has no effect"));
  }
}

TEST(BenchTable, ReadsFilesOrMapsThem) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const json rows = json::parse(Bench({"-mmp", "0,1", "-n", "0", "--no-bounds", "-o", "json"}).out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["use_mmap"], false);
  EXPECT_EQ(rows[1]["use_mmap"], true);
  const auto mapped = [](const std::vector<std::string>& options) {
    std::vector<std::string> all = {"-n", "0", "--no-bounds", "-o", "json"};
    all.insert(all.end(), options.begin(), options.end());
    return json::parse(Bench(all).out).at(0)["use_mmap"].get<bool>();
  };
  EXPECT_TRUE(mapped({}));
  EXPECT_FALSE(mapped({"-mmp", "0"}));
  EXPECT_FALSE(mapped({"--no-mmap"}));
  EXPECT_FALSE(mapped({"--load-mode", "none"}));
  const ProgramRun wrong = Bench({"-mmp", "2"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.error, HasSubstr("--mmap: expected whole numbers from 0 to 1"));
}

// tools/llama-bench/llama-bench.cpp, test::get_fields, of 2026.
TEST(BenchTable, HasTheFieldsOfLlamaBench) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const json row = json::parse(Bench({"-n", "0", "--no-bounds", "-o", "json"}).out).at(0);
  for (const char* field : {"build_commit",   "build_number",
                            "cpu_info",       "gpu_info",
                            "backends",       "model_filename",
                            "model_type",     "model_size",
                            "model_n_params", "n_batch",
                            "n_ubatch",       "n_threads",
                            "cpu_mask",       "cpu_strict",
                            "poll",           "type_k",
                            "type_v",         "n_gpu_layers",
                            "n_cpu_moe",      "split_mode",
                            "main_gpu",       "no_kv_offload",
                            "flash_attn",     "devices",
                            "tensor_split",   "tensor_buft_overrides",
                            "use_mmap",       "use_direct_io",
                            "embeddings",     "no_op_offload",
                            "no_host",        "n_prompt",
                            "n_gen",          "n_depth",
                            "test_time",      "avg_ns",
                            "stddev_ns",      "avg_ts",
                            "stddev_ts",      "samples_ns",
                            "samples_ts"}) {
    EXPECT_TRUE(row.contains(field)) << field;
  }
}

}  // namespace
}  // namespace kvant::test
