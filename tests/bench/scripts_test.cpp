// bench/compare and bench/plot on rows of a small model: the program itself, under llama-bench's
// name, is the other engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/this_build.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class BenchScripts : public testing::Test {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    if (kSanitized) {
      GTEST_SKIP() << "the scripts are not compiled, and what they run has tests of its own";
    }
    if (RunShell("command -v python3 >/dev/null").code != 0) GTEST_SKIP() << "no python3";
    WriteScript("llama-bench",
                "[ \"$1\" = --help ] && echo '-d, --n-depth -fa, --flash-attn <0|1>' && exit\n"
                "exec '" +
                    std::string(kProgramPath) + "' bench --no-bounds \"$@\" 2>/dev/null\n");
  }

  void WriteScript(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path) << "#!/bin/bash\n" << text;
    chmod(path.c_str(), 0755);
  }

  // The output of a script with these arguments; $LLAMA is the other engine.
  std::string Script(const std::string& command, int code = 0) const {
    const std::string source = KVANT_SOURCE_DIR;
    const ProgramRun run =
        RunShell("LLAMA='" + (folder_ / "llama-bench") + "' MODEL='" +
                 SourcePath("tests/reference/random_llamas/mixed-quants.gguf") + "' TMP='" +
                 folder_.path().string() + "'; python3 '" + source + "'/bench/" + command);
    EXPECT_EQ(run.code, code) << run.error;
    return run.out;
  }

  TemporaryFolder folder_;
};

TEST_F(BenchScripts, CompareRunsEveryWayInTurn) {
  const std::string flags =
      "-p 4 -n 2 -d 0,3 -t 1 -r 2 --kvant \"$KVANT\" --llama-bench \"$LLAMA\" \"$MODEL\"";
  std::istringstream lines(Script("compare -o jsonl " + flags));
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
  // Prefill and decode at two depths, by kvant and by two ways of the other.
  ASSERT_EQ(rows.size(), 12u);
  EXPECT_EQ(rows[0]["engine"], "kvant");
  EXPECT_EQ(rows[0]["kvant_ratio"], 1.0);
  EXPECT_EQ(rows[1]["engine"], "llama.cpp -fa 0");
  EXPECT_EQ(rows[2]["engine"], "llama.cpp -fa 1");
  EXPECT_EQ(rows[11]["n_depth"], 3);
  for (const json& row : rows) {
    ASSERT_EQ(row["samples_ts"].size(), 2u);
    EXPECT_LE(row["kvant_ratio_min"], row["kvant_ratio_max"]);
  }
  const std::string table = Script("compare " + flags);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 + 12 + 4);
  EXPECT_THAT(table, HasSubstr("| pp4 @ d3 | best of llama.cpp: llama.cpp -fa "));
}

// A llama-bench without -d leaves depths to the llama-sweep-bench beside it, whose -rtr has no
// value.
TEST_F(BenchScripts, CompareSweepsWhereDepthsAreUnknown) {
  WriteScript("llama-bench", "echo '-fa <0|1> -rtr <0|1>'\n");
  const std::string flags =
      "-p 4 -n 2 -d 8 -t 1 -r 1 --kvant \"$KVANT\" --ik-llama-bench \"$LLAMA\" \"$MODEL\"";
  Script("compare " + flags, 1);  // no llama-sweep-bench
  WriteScript("llama-sweep-bench",
              "echo \"$*\" >>\"${0%/*}/sweeps\"\n"
              "for depth in 0 8; do\n"
              "  echo '{\"n_kv_max\": 12, \"pp\": 4, \"tg\": 2, \"n_kv\": '$depth', '"
              "'\"speed_pp\": 1'$depth', \"speed_tg\": 2'$depth'}' >&2\n"
              "done\n");
  std::istringstream lines(Script("compare -o jsonl --only '-fa 1' " + flags));
  std::vector<json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1]["engine"], "ik_llama.cpp -fa 1");
  EXPECT_EQ(rows[2]["engine"], "ik_llama.cpp -fa 1 -rtr 1");
  EXPECT_EQ(rows[2]["n_depth"], 8);
  EXPECT_EQ(rows[2]["samples_ts"], json({18.0}));
  EXPECT_EQ(rows[5]["samples_ts"], json({28.0}));
  std::ifstream sweeps(folder_ / "sweeps");
  std::string plain, repacked;
  std::getline(sweeps, plain);
  std::getline(sweeps, repacked);
  EXPECT_THAT(plain, HasSubstr("-c 12 --sweep-stride 2"));
  EXPECT_TRUE(plain.ends_with("-fa 1")) << plain;
  EXPECT_TRUE(repacked.ends_with("-fa 1 -rtr")) << repacked;
  Script("compare " + flags + " -d 6", 1);  // not a multiple of -p; the last -d counts
}

TEST_F(BenchScripts, PlotDrawsEverySeries) {
  Script("plot --help");
  const ProgramRun bench =
      RunProgram({"bench", "--synthetic", "tiny:Q8_0,tiny:F16", "-p", "4", "-n", "2", "-d", "0,8",
                  "-t", "1-2", "-r", "1", "-o", "json"});
  ASSERT_EQ(bench.code, 0) << bench.error;
  std::ofstream(folder_ / "rows.json") << bench.out;
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  };
  const std::string by_type = Script("plot --by type \"$TMP\"/rows.json");
  EXPECT_TRUE(by_type.starts_with("<svg xmlns"));
  EXPECT_TRUE(by_type.ends_with("</svg>\n"));
  EXPECT_EQ(count(by_type, "<rect"), 1 + 16);  // the ground and a bar for each row
  const std::string by_depth = Script("plot --by depth --test tg \"$TMP\"/rows.json");
  EXPECT_EQ(count(by_depth, "<polyline"), 2 * 4);  // speed and bound of two models and threads
  EXPECT_THAT(by_depth, HasSubstr(">synthetic tiny F16 tg2 2 threads<"));
  EXPECT_THAT(Script("plot --by threads --title 'a & b' \"$TMP\"/rows.json"),
              HasSubstr("a &amp; b"));
  std::ofstream(folder_ / "none.json") << "[]";
  Script("plot --by type \"$TMP\"/none.json", 1);
}

TEST_F(BenchScripts, ResultsAreWhatTheirFiguresSay) { Script("plot --results --check"); }

TEST_F(BenchScripts, ResultsTakeTheNewestFigureOfTheQuietestMachine) {
  std::filesystem::create_directory(folder_ / "results");
  for (const std::string_view page : {"RESULTS.md", "results/by-type.md"}) {
    std::ofstream(folder_ / page) << "before\n<!-- written by bench/plot --results -->\nold\n"
                                     "<!-- end of what it writes -->\n";
  }
  const std::string fields =
      "machine,date,commit,state,model,type,test,depth,kv,kvant,limit,peer,version,way,"
      "peer_tokens,ratio,command\n";
  const auto write = [&](const std::string& lines) {
    std::ofstream(folder_ / "results/figures.csv") << fields << lines;
  };
  const auto read = [&](const std::string& name) {
    std::stringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  };
  write(
      "Abacus,2026-01-02,a2,quiet,1b,Q4_0,pp512,0,f16,30,,them,v1,,20,,run it\n"
      "Abacus,2026-01-01,a1,quiet,1b,Q4_0,pp512,0,f16,80,,them,v1,,20,,run it\n"
      "Abacus,2026-01-03,a3,shared,1b,Q4_0,pp512,0,f16,90,,them,v1,,20,,run it\n"
      "Abacus,2026-01-01,a1,busy,1b,Q4_0,pp512,0,f16,7,,others,v2,,2,3.49,run it\n"
      "Abacus,2026-01-02,a2,quiet,1b,Q4_0,tg64,0,f16,5,80 %,,,,,,run it\n"
      "Abacus,2026-01-02,a2,quiet,1b,Q8_0,pp512,0,f16,33,,them,v1,,10,,run it\n"
      "Abacus,2026-01-02,a2,quiet,tiny,Q8_0,tg64,0,f16,6,,them,v1,,crashes,,run it\n"
      "Abacus,2026-01-02,a2,quiet,1b,Q4_0,tg64,4096,int8,4,,them,v1,,2,,run it\n");
  Script("plot --results \"$TMP\" --check", 1);
  EXPECT_THAT(read("RESULTS.md"), HasSubstr("\nold\n"));
  Script("plot --results \"$TMP\"");
  const std::string summary = read("RESULTS.md");
  EXPECT_TRUE(summary.starts_with("before\n")) << summary;
  EXPECT_THAT(summary, HasSubstr("| Machine | Models | Prefill / them | Prefill / others | "));
  EXPECT_THAT(summary, HasSubstr("| Abacus | 1B, by type | 2.40 (1.50 to 3.30; 2) | 3.49 | | |\n"));
  EXPECT_THAT(summary, HasSubstr("| 1 machine | 1B behind 4096 tokens | | | 2.00 | |\n"));
  const std::string page = read("results/by-type.md");
  EXPECT_TRUE(page.starts_with("before\n")) << page;
  EXPECT_THAT(page, HasSubstr("| Q4_0 | 30 | | 1.50 (20) | 3.49 (7 : 2) | 5 | 80 % | | |\n"));
  EXPECT_THAT(page, HasSubstr("| tiny Q8_0 | | | | | 6 | | crashes | |\n"));
  EXPECT_THAT(page, HasSubstr("\n- 2026-01-02, commit a2, quiet: pp512 of Q4_0 and Q8_0, "));
  EXPECT_THAT(page, testing::Not(HasSubstr("2026-01-03")));
  EXPECT_THAT(read("results/by-type.svg"), HasSubstr(">beside others<"));
  EXPECT_THAT(read("results/by-depth.svg"), HasSubstr(">4096, int8<"));
  Script("plot --results \"$TMP\" --check");
  for (const std::string_view bad :
       {"Abacus,yesterday,a2,quiet,1b,Q4_0,pp512,0,f16,30,,,,,,,run it\n",
        "Abacus,2026-01-02,a2,quiet,1b,Q4_0,pp512,0,f16,30,,them,v1,,,,run it\n", "Abacus\n"}) {
    write(std::string(bad));
    Script("plot --results \"$TMP\"", 1);
  }
  EXPECT_EQ(read("RESULTS.md"), summary);
  EXPECT_EQ(read("results/by-type.md"), page);
}

// An engine whose encoder writes zeros, whose error is therefore 1.
TEST_F(BenchScripts, MeasureTypesTellsLossAndSpeed) {
  const auto measure = [](const std::string& arguments) {
    const std::string source = KVANT_SOURCE_DIR;
    const ProgramRun run = RunShell(
        "cd '" + source + "' && KVANT=\"$KVANT\" python3 bench/measure_types " + arguments);
    EXPECT_EQ(run.code, 0) << run.error;
    return run.out;
  };
  EXPECT_THAT(measure("speed --shape tiny Q8_0 F16"),
              testing::MatchesRegex("type,bits,bytes,prefill,decode\n"
                                    "Q8_0,8\\.[0-9]+,[0-9]+,[0-9.]+,[0-9.]+\n"
                                    "F16,16\\.[0-9]+,[0-9]+,[0-9.]+,[0-9.]+\n"));
  std::istringstream lines(
      measure("loss models/shakespeare/shakespeare-bf16.gguf README.md Q8_0 Q4_0 BF16"));
  std::string head, type;
  std::getline(lines, head);
  EXPECT_EQ(head, "type,bits,divergence,same_top,perplexity_ratio");
  std::vector<double> divergence;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string bits, loss;
    std::getline(std::getline(std::getline(fields, type, ','), bits, ','), loss, ',');
    divergence.push_back(std::stod(loss));
  }
  ASSERT_EQ(divergence.size(), 3u);
  EXPECT_GT(divergence[1], divergence[0]);
  EXPECT_GT(divergence[0], 0);
  EXPECT_EQ(divergence[2], 0);

  std::stringstream page;
  page << std::ifstream(SourcePath("docs/quantization.md")).rdbuf();
  EXPECT_THAT(
      page.str(),
      HasSubstr(measure("table bench/results/types-loss.csv bench/results/types-speed.csv")));
}

TEST_F(BenchScripts, CompareEncodersCompilesAnEngine) {
  const std::string source = KVANT_SOURCE_DIR;
  if (!std::filesystem::exists(source + "/build/release/bench/encoders")) {
    GTEST_SKIP() << "build/release has no bench/encoders";
  }
  if (RunShell("command -v cc >/dev/null").code != 0) GTEST_SKIP() << "no compiler";
  std::filesystem::create_directories(folder_ / "engine/ggml/src");
  std::ofstream(folder_ / "engine/ggml/src/ggml-quants.c") << "void ggml_elsewhere(void);\n";
  std::ofstream(folder_ / "engine/ggml/src/ggml.c")
      << "#include <string.h>\nvoid ggml_elsewhere(void);\nvoid (*ggml_used)(void) = "
         "ggml_elsewhere;\n"
         "size_t quantize_q8_0(const float* x, void* out, long rows, long cols, const float* w) {\n"
         "  memset(out, 0, rows * cols / 32 * 34);\n  return 0;\n}\n";
  const std::string script = "'" + source + "/bench/compare_encoders' --rounds 1 --isa scalar ";
  const ProgramRun run = RunShell(script + "--llama '" + (folder_ / "engine") + "' --values '" +
                                  source + "/models/shakespeare/shakespeare.gguf' Q8_0 Q4_0");
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("Cases: normal, weighted, Laplace, weighted, model, weighted."));
  // kvant's error is its ratio to the other's; Q4_0 has no other encoder.
  EXPECT_THAT(run.out, testing::ContainsRegex(
                           "\\| Q8_0 \\| [0-9.]+ \\| [0-9.]+ \\| [0-9.]+ \\| [0-9., ]+ \\| "
                           "0\\.005[0-9]+, [0-9., ]+ \\| 0\\.00[56], [0-9., ]+ \\|\n"));
  EXPECT_THAT(run.out, testing::ContainsRegex("\\| Q4_0 \\| [0-9.]+ \\| \\| \\| \\| 0\\.0"));
  const ProgramRun nowhere = RunShell(script + "--ik '" + (folder_ / "nowhere") + "' Q8_0");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.error, HasSubstr("nowhere: expected an engine's sources"));
}

}  // namespace
}  // namespace kvant::test
