// The commands on real models, run as programs: known texts, known ids, what the outputs contain.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/cpu_topology.h"
#include "formats/npy.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/this_build.h"
#include "tests/tools/models.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

std::string Stories() { return SharedPath("models/stories260k/stories260K-f32.v3.gguf"); }

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The command succeeded silently and printed this.
std::string Output(const std::vector<std::string>& arguments, const std::string& stdin_text = "") {
  const ProgramRun run = RunProgram(arguments, {.text = stdin_text});
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(run.error, "");
  return run.out;
}

constexpr const char* kStoriesBegin =
    " Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.";

TEST(RunProgram, StoriesFromBosAlone) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(Stories());
  const std::string text = Output({"run", Stories(), "--temp", "0", "-n", "100"});
  EXPECT_THAT(text, StartsWith(kStoriesBegin));
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(Output({"run", "-m", Stories(), "--temp", "0", "-n100", "--kv-type", "f32", "-t", "1"}),
            text);
}

TEST(RunProgram, ContinuesAPromptFromEverySource) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TinyStories());
  TemporaryFolder folder;
  std::ofstream(folder / "prompt.txt") << "Once upon a time";
  const std::vector<std::string> base = {"run", TinyStories(), "--temp", "0", "-n", "24"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const std::string text = Output(with({"-p", "Once upon a time"}));
  EXPECT_THAT(text, StartsWith(", a little girl named Lily lived in a small house with her mom"));
  EXPECT_EQ(Output(with({"-f", folder / "prompt.txt"})), text);
  EXPECT_EQ(Output(with({"-"}), "Once upon a time"), text);
  EXPECT_EQ(Output(with({"-f", "-"}), "Once upon a time"), text);
  EXPECT_EQ(Output(with({"-e", "-p", "Once\\x20upon a time"})), text);
  EXPECT_EQ(Output(with({"--echo", "-p", "Once upon a time"})), "Once upon a time" + text);
  EXPECT_EQ(Output(with({"--no-kv-cache", "-p", "Once upon a time"})), text);
}

TEST(RunProgram, StopTextsLengthAndSeeds) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(Stories());
  EXPECT_EQ(Output({"run", Stories(), "--temp", "0", "--stop", "girl named", "--stop", "zzz"}),
            " Once upon a time, there was a little \n");
  EXPECT_EQ(Output({"run", Stories(), "--temp", "0", "-n", "0"}), "\n");
  const std::vector<std::string> sampled = {"run", Stories(), "-n", "40", "-s", "7"};
  EXPECT_EQ(Output(sampled), Output(sampled));
  EXPECT_NE(Output(sampled), Output({"run", Stories(), "-n", "40", "-s", "8"}));
}

TEST(RunProgram, JsonTellsEverything) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TinyStories());
  const json result = json::parse(Output({"run", TinyStories(), "--temp", "0", "-n", "5", "--json",
                                          "-s", "3", "-p", "Once upon a time"}));
  EXPECT_EQ(result["finish_reason"], "length");
  EXPECT_EQ(result["prompt_ids"], (std::vector<int>{1, 80, 147, 201, 282, 57}));
  EXPECT_EQ(result["prompt_tokens"], 6);
  EXPECT_EQ(result["ids"].size(), 5u);
  EXPECT_THAT(result["text"].get<std::string>(), StartsWith(", a little girl"));
  EXPECT_EQ(result["seed"], 3);
  EXPECT_EQ(result["timings"]["prefill_tokens"], 6);
  EXPECT_EQ(result["timings"]["decode_tokens"], 4);
  EXPECT_GT(result["timings"]["decode_tokens_per_second"].get<double>(), 0);
}

TEST(RunProgram, PromptLongerThanTheContext) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TinyStories());
  const ProgramRun run =
      RunProgram({"run", TinyStories(), "-c", "4", "-p", "Once upon a time there was"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.error, HasSubstr("context has room for 4"));
  EXPECT_EQ(run.error_lines(), 1u);
  const json full = json::parse(
      Output({"run", TinyStories(), "-c", "8", "--temp", "0", "--json", "-p", "Once upon a time"}));
  EXPECT_EQ(full["finish_reason"], "context");
  EXPECT_EQ(full["ids"].size(), 3u);
}

TEST(RunProgram, ClosedPipeEndsQuietly) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const ProgramRun run =
      RunShell("\"$KVANT\" run '" + SmallModel() + "' --ignore-eos -c 20000 | head -c 1");
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.error, StartsWith("kvant: note: a context of 20000 is beyond"));
  EXPECT_EQ(run.error_lines(), 1u);  // of the pipe, nothing
  for (const std::string command : {"inspect", "hash"}) {
    const ProgramRun other =
        RunShell("\"$KVANT\" " + command + " '" + SmallModel() + "' | head -1 > /dev/null");
    EXPECT_EQ(other.code, 0);
    EXPECT_EQ(other.error, "");
  }
}

TEST(RunProgram, FullDisk) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", SmallModel(), "-n", "3"},
        {"inspect", SmallModel()},
        {"hash", SmallModel()},
        {"tokenize", SmallModel(), "-p", "x"},
        {"--help"}}) {
    const ProgramRun run = RunProgram(arguments, {.stdout_path = "/dev/full"});
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.error, HasSubstr("No space left on device"));
    EXPECT_EQ(run.error_lines(), 1u);
  }
}

TEST(RunProgram, InterruptKeepsTheTextSoFar) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(Stories());
  const ProgramRun run =
      RunProgram({"run", Stories(), "--temp", "0", "--ignore-eos", "-c", "200000"},
                 {.interrupt_after_ms = 700});
  EXPECT_EQ(run.code, 130);
  EXPECT_THAT(run.out, StartsWith(" Once upon a time"));
  EXPECT_EQ(run.out.back(), '\n');
  const ProgramRun waiting =
      RunShell("sleep 2 | (\"$KVANT\" run '" + Stories() +
               "' - & pid=$!; sleep 0.3; kill -TERM $pid; wait $pid; exit $?)");
  EXPECT_EQ(waiting.code, 143) << waiting.error;
}

TEST(TokenizeProgram, OneLineOfIdsAndBack) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TinyStories());
  const std::string ids = "80 147 201 282 57\n";
  EXPECT_EQ(Output({"tokenize", TinyStories(), "-p", "Once upon a time"}), ids);
  EXPECT_EQ(Output({"tokenize", TinyStories(), "-"}, "Once upon a time"), ids);
  EXPECT_EQ(Output({"tokenize", TinyStories(), "--bos", "-p", "Once upon a time"}), "1 " + ids);
  EXPECT_EQ(Output({"tokenize", TinyStories(), "-p", ""}), "\n");
  EXPECT_EQ(Output({"tokenize", TinyStories(), "-"}, ""), "\n");
  EXPECT_NE(Output({"tokenize", TinyStories(), "-"}, "Once upon a time\n"), ids);  // not trimmed
  EXPECT_EQ(Output({"tokenize", TinyStories(), "--decode", "-"}, ids), "Once upon a time");
  EXPECT_EQ(Output({"tokenize", TinyStories(), "--decode", "-p", "[80, 147,201 ,282,57]"}),
            "Once upon a time");
  EXPECT_EQ(Output({"tokenize", TinyStories(), "--decode", "-p", ""}), "");
  const json result =
      json::parse(Output({"tokenize", TinyStories(), "--json", "-p", "Once upon a time"}));
  EXPECT_EQ(result["ids"], (std::vector<int>{80, 147, 201, 282, 57}));
  EXPECT_EQ(result["count"], 5);
  EXPECT_EQ(result["pieces"].size(), 5u);
  for (const char* wrong : {"80 x", "-1", "999999", "80.5"}) {
    EXPECT_EQ(RunProgram({"tokenize", TinyStories(), "--decode", "-p", wrong}).code, 2);
  }
}

// Every vocabulary's test strings, through files, as the program's users would compare them.
TEST(TokenizeProgram, VocabularyFiles) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string vocabulary = SharedPath("tokenizers/ggml-vocab-llama-bpe.gguf");
  KVANT_SKIP_WITHOUT(vocabulary);
  const std::string inputs = FileText(vocabulary + ".inp");
  std::istringstream expected(FileText(vocabulary + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  TemporaryFolder folder;
  int count = 0;
  for (size_t begin = 0; count < 6; ++count) {
    const size_t end = inputs.find(separator, begin);
    if (end == std::string::npos) break;
    std::ofstream(folder / "text", std::ios::binary) << inputs.substr(begin, end - begin);
    std::string line;
    std::getline(expected, line);
    std::string ids = Output({"tokenize", vocabulary, "-f", folder / "text"});
    ids.pop_back();
    line.erase(0, line.find_first_not_of(' ') == std::string::npos ? line.size()
                                                                   : line.find_first_not_of(' '));
    EXPECT_EQ(ids, line) << count;
    begin = end + separator.size();
  }
  EXPECT_EQ(count, 6);
}

TEST(InspectProgram, OverviewOfModelsAndVocabularies) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string text = Output({"inspect", SmallModel(), "--tensors", "--plan", "--cpu"});
  for (const char* part : {"architecture  llama", "GGUF v3", "bits per weight", "tokenizer",
                           "general.architecture", "token_embd.weight", "instruction set"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string vocabulary = SharedPath("tokenizers/ggml-vocab-bert-bge.gguf");
  KVANT_SKIP_WITHOUT(vocabulary);
  EXPECT_THAT(Output({"inspect", vocabulary}), HasSubstr("architecture  bert"));
  const ProgramRun plan = RunProgram({"inspect", vocabulary, "--plan"});
  EXPECT_EQ(plan.code, 1);
  EXPECT_THAT(plan.error, HasSubstr("tensor token_embd.weight is missing"));
}

TEST(InspectProgram, SharesOfTeamsThatTheMachineDoesNotHave) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::vector<std::string> wanted = {"inspect", SmallModel(), "--shares", "-t", "64",
                                           "-c",      "200",        "--chunk",  "100"};
  const std::string text = Output(wanted);
  for (const char* part : {"shares of 64 threads", "100 tokens up to position 99", "blk.*.qkv",
                           "a token at position 199", "all of these"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  std::vector<std::string> as_json = wanted;
  as_json.push_back("--json");
  const json shares = json::parse(Output(as_json))["shares"];
  EXPECT_EQ(shares["threads"], 64);
  ASSERT_EQ(shares["passes"].size(), 2u);
  for (const json& pass : shares["passes"]) {
    int64_t phases = 0;
    for (const json& phase : pass["phases"]) {
      phases += phase["count"].get<int64_t>();
      EXPECT_LE(phase["threads"].get<int64_t>(), 64);
      EXPECT_GE(phase["imbalance"].get<double>(), 0.999) << phase["name"];
      EXPECT_LE(phase["mean"].get<double>(), 1.001 * phase["most"].get<double>());
    }
    EXPECT_EQ(phases, pass["barriers"].get<int64_t>());
  }
}

TEST(RunProgram, ThreadsAndMemoryArePlaced) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::vector<std::string> run = {"run", SmallModel(), "-p", "a", "-n", "8", "--temp", "0"};
  const auto with = [&run](const std::vector<std::string>& options) {
    std::vector<std::string> all = run;
    all.insert(all.end(), options.begin(), options.end());
    return RunProgram(all);
  };
  const std::string expected = with({}).out;
  const std::string first = std::to_string(UsableCpus().front());
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"-t", "64"}, {"--pin", "cores"}, {"--pin", first, "-t", "3"}, {"--pin", "none"}}) {
    const ProgramRun placed = with(options);
    EXPECT_EQ(placed.code, 0) << placed.error;
    EXPECT_EQ(placed.out, expected);
    EXPECT_EQ(placed.error_lines(), with({}).error_lines()) << placed.error;
  }
  for (const char* numa : {"distribute", "isolate"}) {
    const ProgramRun placed = with({"--numa", numa});
    EXPECT_EQ(placed.out, expected);
    if (CountNumaNodes() > 1) continue;
    EXPECT_THAT(placed.error, HasSubstr("one memory node, there is nothing to place"));
    EXPECT_EQ(placed.error_lines(), with({}).error_lines() + 1) << placed.error;
  }
  const ProgramRun absent = with({"--pin", first + ",8191"});
  EXPECT_EQ(absent.code, 2);
  EXPECT_EQ(absent.error_lines(), 1u) << absent.error;
  EXPECT_THAT(absent.error, HasSubstr("pin: expected CPUs that this process may use"));
  EXPECT_THAT(absent.error, HasSubstr("found 8191"));
  for (const char* wrong : {"--pin=core", "--pin=3-1", "--numa=numactl"}) {
    EXPECT_EQ(with({wrong}).code, 2) << wrong;
  }
}

TEST(InspectProgram, JsonAddsUp) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const json result = json::parse(
      Output({"inspect", SmallModel(), "--json", "--tensors", "--memory", "-c", "64", "--cpu"}));
  uint64_t bytes = 0;
  for (const json& tensor : result["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(result["model"]["tensor_bytes"], bytes);
  EXPECT_EQ(result["memory"]["weights"], bytes);
  EXPECT_EQ(result["memory"]["context"], 64);
  uint64_t total = 0;
  for (const char* part : {"weights", "kv", "activations", "logits"}) {
    total += result["memory"][part].get<uint64_t>();
  }
  EXPECT_EQ(result["memory"]["total"], total);
  EXPECT_EQ(result["metadata"]["general.architecture"], "llama");
  EXPECT_GT(result["metadata"]["tokenizer.ggml.tokens"]["count"].get<int>(), 8);
  EXPECT_EQ(result["metadata"]["tokenizer.ggml.tokens"]["first"].size(), 8u);
  EXPECT_FALSE(result["cpu"]["isa"].get<std::string>().empty());
}

// The most memory that a run has held, in bytes; 0 if it failed.
uint64_t PeakOfRun(const std::vector<std::string>& options) {
  std::vector<std::string> words = {kProgramPath, "run", "shakespeare", "-q"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  if (posix_spawn(&child, kProgramPath, &actions, nullptr, argv.data(), environ) != 0) return 0;
  posix_spawn_file_actions_destroy(&actions);
  // Not what wait4 tells, which begins with the memory of this process.
  const std::string path = fmt::format("/proc/{}/status", child);
  uint64_t peak = 0;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      uint64_t kib = 0;
      const bool found = std::sscanf(line.c_str(), "VmHWM: %" SCNu64, &kib) == 1;
      if (found) peak = std::max(peak, kib * 1024);
    }
    usleep(1000);
  }
  return status == 0 ? peak : 0;
}

// A run needs no more memory than --memory tells: nothing large is left out.
TEST(InspectProgram, TheMemoryPlanCoversTheRun) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  if (kSanitized) GTEST_SKIP() << "the address sanitizer keeps what is freed";
  const json memory =
      json::parse(Output({"inspect", "shakespeare", "--memory", "--json", "-t", "2"}))["memory"];
  const uint64_t peak = PeakOfRun({"-t", "2", "-n", "1000", "--ignore-eos"});
  EXPECT_GT(peak, 0u);
  EXPECT_LE(peak, memory["total"].get<uint64_t>() + memory["program"].get<uint64_t>());
  EXPECT_THAT(Output({"inspect", "shakespeare", "--memory"}), HasSubstr("\n  not counted "));
}

TEST(InspectProgram, CpuNeedsNoModel) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string text = Output({"inspect", "--cpu"});
  for (const char* part : {"scalar", "avx2", "avx512vnni", "threads", "chosen"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const ProgramRun forced = RunShell("KVANT_ISA=scalar \"$KVANT\" inspect --cpu");
  EXPECT_THAT(forced.out, HasSubstr("instruction set  scalar"));
  const ProgramRun impossible = RunShell("KVANT_ISA=mmx \"$KVANT\" inspect --cpu");
  EXPECT_NE(impossible.code, 0);
  EXPECT_THAT(impossible.error, HasSubstr("KVANT_ISA"));
}

// Without a driver, with the one of tests/cuda, and with one that is none.
TEST(InspectProgram, DevicesNeedNoModelAndNoDriver) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string drivers = std::filesystem::path(kFakeCudaDriver).parent_path();
  const std::string with_fake = "LD_LIBRARY_PATH='" + drivers + "' \"$KVANT\" inspect --devices";
  const ProgramRun two = RunShell(with_fake);
  EXPECT_EQ(two.code, 0) << two.error;
  EXPECT_EQ(two.out,
            "CUDA devices     2, driver for CUDA 12.4\n"
            "  0              Large Card, compute capability 9.0, 132 multiprocessors, 80.00 GiB\n"
            "  1              Small Card, compute capability 7.5, 40 multiprocessors, 16.00 GiB\n");
  const json devices = json::parse(RunShell(with_fake + " --json").out)["cuda"]["devices"];
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1]["memory_bytes"], uint64_t{16} << 30);

  const TemporaryFolder folder;
  const std::string text = "no library";
  WriteFile(folder / "libcuda.so.1", std::as_bytes(std::span(text)));
  const ProgramRun none =
      RunShell("LD_LIBRARY_PATH='" + folder.path().string() + "' \"$KVANT\" inspect --devices");
  EXPECT_EQ(none.code, 0) << none.error;
  EXPECT_THAT(none.out, StartsWith("CUDA devices     none: "));
  EXPECT_THAT(none.out, HasSubstr("libcuda.so.1"));
}

TEST(LogitsProgram, ShapeAndOracle) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string tokens = "1,5,9,13,2,7,7,40";
  const auto logits = [&](std::vector<std::string> more) {
    const std::string path = folder / "out.npy";
    std::vector<std::string> words = {"logits", SmallModel(), "--tokens", tokens, "-o", path};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(Output(words), "");
    const auto array = formats::NpyRead(path);
    EXPECT_TRUE(array.ok());
    return array.ok() ? *array : formats::NpyArray{};
  };
  const formats::NpyArray all = logits({});
  ASSERT_EQ(all.shape.size(), 2u);
  EXPECT_EQ(all.shape[0], 8);
  const formats::NpyArray last = logits({"--last"});
  EXPECT_EQ(last.shape, (std::vector<int64_t>{1, all.shape[1]}));
  EXPECT_TRUE(std::equal(last.values.begin(), last.values.end(),
                         all.values.end() - static_cast<std::ptrdiff_t>(last.values.size())));
  EXPECT_EQ(logits({"--chunk", "3"}).values, all.values);
  const formats::NpyArray oracle = logits({"--no-kv-cache"});
  ASSERT_EQ(oracle.shape, all.shape);
  for (size_t i = 0; i < all.values.size(); ++i) {
    ASSERT_NEAR(oracle.values[i], all.values[i], 1e-4) << i;
  }
  EXPECT_EQ(logits({"-t", "3"}).values, all.values);
}

TEST(BenchProgram, JsonHasLlamaBenchFields) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const json rows = json::parse(
      Output({"bench", SmallModel(), "-p", "16", "-n", "4", "-r", "3", "-t", "2", "-o", "json"}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["n_prompt"], 16);
  EXPECT_EQ(rows[0]["n_gen"], 0);
  EXPECT_EQ(rows[1]["n_prompt"], 0);
  EXPECT_EQ(rows[1]["n_gen"], 4);
  for (const json& row : rows) {
    // Field names of llama-bench -o json, February 2025.
    for (const char* field :
         {"build_commit", "cpu_info",       "backends",  "model_filename", "model_type",
          "model_size",   "model_n_params", "n_batch",   "n_ubatch",       "n_threads",
          "type_k",       "type_v",         "use_mmap",  "test_time",      "avg_ns",
          "stddev_ns",    "avg_ts",         "stddev_ts", "samples_ns",     "samples_ts"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
    EXPECT_EQ(row["n_threads"], 2);
    EXPECT_EQ(row["samples_ts"].size(), 3u);
    double mean = 0;
    for (const json& sample : row["samples_ts"]) mean += sample.get<double>() / 3;
    EXPECT_NEAR(row["avg_ts"].get<double>(), mean, 1e-6 * mean);
  }
  const std::string table = Output({"bench", SmallModel(), "-p", "0", "-n", "2", "-r", "1"});
  EXPECT_THAT(table, HasSubstr(" tg2 |"));
}

// The whole-model hash against xxhsum over the tensors' bytes, which lie one after the other in a
// file whose tensors need no padding.
TEST(HashProgram, ManifestForm) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  std::istringstream lines(Output({"hash", SmallModel()}));
  std::vector<std::string> manifest;
  for (std::string line; std::getline(lines, line);) manifest.push_back(line);
  ASSERT_GT(manifest.size(), 2u);
  for (const std::string& line : manifest) {
    EXPECT_THAT(line, testing::MatchesRegex("xxh64     [0-9a-f]{16}  .*"));
    EXPECT_THAT(line, HasSubstr(SmallModel()));
  }
  EXPECT_THAT(manifest[0], testing::EndsWith(":token_embd.weight"));
  EXPECT_THAT(manifest.back(), testing::EndsWith("  " + SmallModel()));
}

}  // namespace
}  // namespace kvant::test
