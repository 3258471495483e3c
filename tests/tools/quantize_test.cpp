// kvant quantize, run as a program.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "formats/imatrix.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/models.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string TrainedModel() {
  return SharedPath("models/tinystories-656k/TinyStories-656K-f32.gguf");
}

TEST(QuantizeProgram, MakesModelsThatTellStories) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TrainedModel());
  TemporaryFolder folder;
  for (const char* type : {"Q8_0", "Q5_0", "q4_k_m", "IQ4_NL", "NVFP4"}) {
    const ProgramRun made = RunProgram({"quantize", TrainedModel(), folder / "q.gguf", type});
    EXPECT_EQ(made.code, 0) << made.error;
    EXPECT_THAT(made.out, HasSubstr("20 tensors, 2.50 MiB -> "));
    const ProgramRun told =
        RunProgram({"run", folder / "q.gguf", "--temp", "0", "-n", "12", "-p", "Once upon a time"});
    EXPECT_THAT(told.out, StartsWith(", a little girl named Lily ")) << type;
  }
}

TEST(QuantizeProgram, DryRunShowsThePlanAndWritesNothing) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TrainedModel());
  TemporaryFolder folder;
  const ProgramRun run =
      RunProgram({"quantize", TrainedModel(), folder / "q.gguf", "Q8_0", "--dry-run", "--tensor",
                  "ffn_down=Q4_1", "--override-kv", "general.name=str:x"});
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("blk.1.ffn_down.weight"));
  EXPECT_THAT(run.out, HasSubstr("F32 -> Q4_1"));
  EXPECT_THAT(run.out, HasSubstr("bits per weight"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(QuantizeProgram, RefusesWithOneLine) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TrainedModel());
  TemporaryFolder folder;
  const std::string out = folder / "q.gguf";
  const auto fails = [&](std::vector<std::string> arguments, int code, const char* message) {
    arguments.insert(arguments.begin(), "quantize");
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, code) << run.error;
    EXPECT_THAT(run.error, HasSubstr(message));
    EXPECT_LE(run.error_lines(), 2u) << run.error;  // a note may come before
    EXPECT_EQ(run.out, "");
  };
  const std::string model = TrainedModel();
  fails({model, out}, 2, "expected the model, the file to write and the type");
  fails({model, out, "Q4_KM"}, 2, "did you mean Q4_K_M?");
  fails({model, out, "Q4_0", "--tensor", "x"}, 2, "expected REGEX=TYPE, found 'x'");
  fails({model, out, "Q4_0", "--tensor", "x=Q9"}, 2, "unknown tensor type 'Q9'");
  fails({model, out, "Q4_0", "--override-kv", "a=int:x"}, 2, "found 'a=int:x'");
  fails({model, out, "Q4_0", "--imatrix", folder / "none"}, 1, "none");
  fails({folder / "none.gguf", out, "Q4_0"}, 1, "none.gguf");
  fails({model, folder / "no/such/folder.gguf", "Q4_0"}, 1, "cannot create");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

const std::string kShakespeare = KVANT_SOURCE_DIR "/models/shakespeare/shakespeare-bf16.gguf";

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Options without effect are errors, not silence.
// To run a model that is refused for a key, one does what the error says.
TEST(QuantizeBySize, RunsModelsWhoseKeysAreIgnored) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string model = folder / "turned.gguf";
  const ProgramRun made = RunProgram(
      {"quantize", kShakespeare, model, "COPY", "--override-kv", "prism.hadamard.kind=str:signed"});
  ASSERT_EQ(made.code, 0) << made.error;
  std::vector<std::string> arguments = {
      "quantize", model, folder / "q.gguf",    "--size", "3M", "--dry-run",
      "-t",       "2",   "--calibrate-tokens", "16"};
  const ProgramRun refused = RunProgram(arguments);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, HasSubstr("--ignore-keys prism.hadamard.kind opens"));
  arguments.insert(arguments.end(), {"--ignore-keys", "prism.hadamard.kind"});
  const ProgramRun run = RunProgram(arguments);
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("divergence about "));
}

TEST(QuantizeBySize, RefusesOptionsThatWouldDoNothing) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string out = folder / "q.gguf";
  const auto fails = [&](std::vector<std::string> arguments, const char* message) {
    arguments.insert(arguments.begin(), {"quantize", kShakespeare, out});
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, 2) << run.error;
    EXPECT_THAT(run.error, HasSubstr(message));
    EXPECT_EQ(run.error_lines(), 1u) << run.error;
    EXPECT_EQ(run.out, "");
  };
  fails({"--size", "3M", "--no-calibrate", "--calibrate-tokens", "100"},
        "--calibrate-tokens: not possible together with --no-calibrate");
  fails({"--size", "3M", "--no-calibrate", "--calibrate", "x"},
        "--calibrate: not possible together with --no-calibrate");
  fails({"--size", "3M", "--no-calibrate", "--ignore-keys", "x"},
        "--ignore-keys: not possible together with --no-calibrate");
  fails({"Q4_K_M", "--ignore-keys", "x"}, "--ignore-keys: expected --size or --bits with it");
  fails({"Q4_K_M", "--calibrate-tokens", "100"}, "--calibrate-tokens: expected --size or --bits");
  fails({"Q4_K_M", "--no-calibrate"}, "--no-calibrate: expected --size or --bits with it");
  fails({"Q4_K_M", "--types", "all"}, "--types: expected --size or --bits with it");
  fails({"Q4_K_M", "--fastest"}, "--fastest: expected --size or --bits with it");
  fails({"--choice", "c", "--save-choice", "d"}, "--save-choice: expected --size or --bits");
  fails({"--choice", "c", "--size", "3M"}, "--size, --bits and --choice exclude each other");
  fails({"--size", "3M", "--pure"}, "--pure: not possible together with types by size");
  fails({"COPY", "--pure"}, "--pure: not possible together with COPY");
  fails({"Q4_K_M", "--leave-output", "--output-type", "Q8_0"},
        "--output-type: not possible together with --leave-output");
  fails({"--size", "3M", "--types", "IQ2_XXS"}, "IQ2_XXS needs an importance matrix");
  fails({"--size", "3M", "--types", "Q4_K,"}, "names of types with commas, found ''");
  for (const char* size : {"nan", "-1", "0", "1e9", "1e99G", "18446744073709551616", "99999999999G",
                           "", "G", "0.0000000001K"}) {
    fails({"--size", size}, "--size: expected a size such as");
  }
  for (const char* bits : {"nan", "-3", "0", "inf", "1e40", "33", "x", ""}) {
    fails({"--bits", bits}, "--bits");
  }
  fails({"--size", "1000"}, "a file of 1000 bytes cannot be reached: with the smallest types it");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(QuantizeBySize, NeverWritesOverWhatItReads) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  std::filesystem::copy(kShakespeare, folder / "m.gguf");
  const std::string text(2000, 'a');
  WriteText(folder / "t.txt", text);
  const auto fails = [&](std::vector<std::string> arguments, const char* message) {
    arguments.insert(arguments.begin(), {"quantize", folder / "m.gguf"});
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, 2) << run.error;
    EXPECT_THAT(run.error, HasSubstr(message));
  };
  fails({folder / "m.gguf", "--size", "3M"}, "m.gguf: the output is also an input");
  fails({folder / "t.txt", "--size", "3M", "--calibrate", folder / "t.txt"},
        "t.txt: the output is also an input");
  fails({folder / "t.txt", "--choice", folder / "t.txt"}, "t.txt: the output is also an input");
  formats::Imatrix imatrix;
  imatrix.entries["a"] = {{1}, {1}};
  ASSERT_TRUE(WriteImatrix(imatrix, folder / "i.dat", formats::ImatrixForm::kDat).ok());
  fails({folder / "i.dat", "Q4_K_M", "--imatrix", folder / "i.dat"},
        "i.dat: the output is also an input");
  fails({folder / "q.gguf", "--size", "3M", "--save-choice", folder / "q.gguf"}, "is another file");
  EXPECT_EQ(TextOf(folder / "t.txt"), text);
  EXPECT_EQ(std::filesystem::file_size(folder / "m.gguf"),
            std::filesystem::file_size(kShakespeare));
  EXPECT_FALSE(std::filesystem::exists(folder / "q.gguf"));
}

TEST(QuantizeBySize, RepeatsAChoice) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const ProgramRun made =
      RunProgram({"quantize", kShakespeare, folder / "a.gguf", "--bits", "5", "--types",
                  "Q4_0,Q4_K,IQ2_XXS,Q8_0", "--save-choice", folder / "c.txt"});
  ASSERT_EQ(made.code, 0) << made.error;
  EXPECT_THAT(made.error, HasSubstr("without an importance matrix (--imatrix), left out: IQ2_XXS"));
  const ProgramRun again =
      RunProgram({"quantize", kShakespeare, folder / "b.gguf", "--choice", folder / "c.txt"});
  ASSERT_EQ(again.code, 0) << again.error;
  EXPECT_EQ(TextOf(folder / "a.gguf"), TextOf(folder / "b.gguf"));
  const ProgramRun quantized =
      RunProgram({"quantize", folder / "a.gguf", folder / "d.gguf", "--size", "2500K"});
  EXPECT_EQ(quantized.code, 2);
  EXPECT_THAT(quantized.error, HasSubstr("making another type of it would lose quality"));
  EXPECT_FALSE(std::filesystem::exists(folder / "d.gguf"));
}

// The text is so long that the calibration takes minutes.
TEST(QuantizeBySize, LeavesNothingWhenItIsInterrupted) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 20'000; ++line) text += fmt::format("What, {} times, my lord?\n", line);
  WriteText(folder / "t.txt", text);
  std::filesystem::create_directory(folder / "out");
  const ProgramRun run = RunProgram({"quantize", kShakespeare, folder / "out/q.gguf", "--bits", "5",
                                     "--calibrate", folder / "t.txt", "--calibrate-tokens", "60000",
                                     "--types", "Q4_0,Q8_0", "--save-choice", folder / "out/c.txt"},
                                    {.interrupt_after_ms = 1500});
  EXPECT_EQ(run.code, 130) << run.error;
  EXPECT_EQ(run.error, "");
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));
}

// llama-quantize's last word is the number of threads, and its types have numbers.
TEST(QuantizeProgram, TakesLlamaQuantizesWords) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string input = SourcePath("models/shakespeare/shakespeare-bf16.gguf");
  const auto file_of = [&](std::vector<std::string> words) {
    const std::string out = folder / "q.gguf";
    words.insert(words.begin(), {"quantize", input, out});
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.code, 0) << run.error;
    return run.code == 0 ? ReadFile(out) : std::vector<std::byte>();
  };
  const auto named = file_of({"Q4_K_M"});
  EXPECT_EQ(file_of({"15"}), named);  // LLAMA_FTYPE_MOSTLY_Q4_K_M
  EXPECT_EQ(file_of({"Q4_K_M", "2"}), named);
  EXPECT_EQ(file_of({"15", "1"}), named);
  const auto refused = [&](const std::vector<std::string>& more, const std::string& message) {
    std::vector<std::string> words = {"quantize", input, folder / "r.gguf"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.code, 2) << run.error;
    EXPECT_THAT(run.error, HasSubstr(message));
  };
  refused({"Q4_K_M", "0"}, "threads: expected a whole number from 1 to 1024, found '0'");
  refused({"Q4_K_M", "x"}, "expected the model, the file to write and the type");
  refused({"999"}, "unknown type '999'");
}

// Rows of 288 values do not fit into formats whose blocks have 256.
TEST(QuantizeProgram, TheClosingLineNamesWhatFellBack) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const ProgramRun whole =
      RunProgram({"quantize", SourcePath("models/shakespeare/shakespeare-bf16.gguf"),
                  folder / "q.gguf", "Q8_0"});
  EXPECT_THAT(whole.out, testing::Not(HasSubstr("rows that do not fit")));
  const ProgramRun run = RunProgram({"quantize", SmallModel(), folder / "q.gguf", "Q2_K"});
  EXPECT_EQ(run.code, 0) << run.error;
  const std::string line = run.out.substr(run.out.find('\n') + 1);
  EXPECT_THAT(line, testing::ContainsRegex("bits per weight \\(rows that do not fit: [0-9]+ "
                                           "[A-Z0-9_]+ for [A-Z0-9_]+.*\\), [0-9.]+ s"));
  const ProgramRun dry =
      RunProgram({"quantize", SmallModel(), folder / "q.gguf", "Q2_K", "--dry-run"});
  EXPECT_THAT(dry.out, HasSubstr("(rows that do not fit: "));
}

// The limit on file sizes stands for a full disk.
TEST(QuantizeProgram, LeavesNothingWhereTheFileDoesNotFit) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TrainedModel());
  TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100'000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const ProgramRun run = RunProgram({"quantize", TrainedModel(), folder / "q.gguf", "Q8_0"});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.error, HasSubstr("q.gguf: cannot write: "));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace kvant::test
