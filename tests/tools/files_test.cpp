// The commands on files: tensors that kvant cannot read, texts that a vocabulary cannot spell, what
// is shown and promised, and what a killed writer leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "formats/gguf.h"
#include "formats/imatrix.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/models.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

size_t FileCount(const TemporaryFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

// F32, I64 and a type that nobody has defined; one number that only a float64 can hold.
void WriteUnreadable(const std::string& path) {
  constexpr uint32_t kI64 = 27;
  constexpr uint32_t kNobodys = 1000;
  const Bytes bytes =
      File({Key("general.architecture", formats::GgufType::kString).String("llama"),
            Key("large", formats::GgufType::kFloat64).Number(1e300),
            ArrayEntry("several", formats::GgufType::kFloat64, 2).Number(1e300).Number(0.1)},
           {TensorInfo("floats", {4}, kF32, 0), TensorInfo("longs", {2, 2}, kI64, 32),
            TensorInfo("strange", {9}, kNobodys, 64)},
           96);
  WriteFile(path, bytes.span());
}

TEST(FilesProgram, UnreadableTensorsAreListedHashedAndCopied) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string model = folder / "m.gguf";
  WriteUnreadable(model);
  const ProgramRun shown = RunProgram({"inspect", model, "--tensors"});
  EXPECT_EQ(shown.code, 0) << shown.error;
  for (const char* piece : {"I64", "type 1000", "longs", "2 x 2", "strange"}) {
    EXPECT_THAT(shown.out, HasSubstr(piece));
  }
  EXPECT_THAT(shown.out, HasSubstr(" 1e+300\n"));
  EXPECT_THAT(shown.out, HasSubstr("[1e+300, 0.1] 2 float64"));
  EXPECT_THAT(shown.out, Not(HasSubstr("inf")));
  const ProgramRun as_json = RunProgram({"inspect", model, "--tensors", "--json"});
  EXPECT_EQ(json::parse(as_json.out)["tensors"][1]["type"], "I64");
  EXPECT_EQ(json::parse(as_json.out)["tensors"][2]["bytes"], 32);

  const ProgramRun checked = RunProgram({"inspect", model, "--check-tensors"});
  EXPECT_THAT(checked.error, HasSubstr("longs is not checked: kvant cannot read type I64"));
  const ProgramRun hashed = RunProgram({"hash", model});
  EXPECT_EQ(hashed.code, 0) << hashed.error;
  std::ofstream(folder / "manifest") << hashed.out;
  const ProgramRun split = RunProgram({"split", model, folder / "s", "--max-tensors", "1"});
  EXPECT_EQ(split.code, 0) << split.error;
  const std::string merged = folder / "again.gguf";
  EXPECT_EQ(RunProgram({"merge", folder / "s-00001-of-00003.gguf", merged}).code, 0);
  const ProgramRun same = RunProgram({"hash", merged, "--check", folder / "manifest"});
  EXPECT_EQ(same.code, 0) << same.out << same.error;

  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", model, "-p", "x"},
        std::vector<std::string>{"quantize", model, folder / "q.gguf", "Q8_0"}}) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, 1);
    EXPECT_THAT(run.error,
                HasSubstr("tensor \"longs\" has type I64 (27), which this build cannot"));
  }
}

TEST(FilesProgram, TokenizeTellsWhatTheVocabularyCannotSpell) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TinyStories());
  const ProgramRun plain = RunProgram({"tokenize", TinyStories(), "-p", "Once upon a time"});
  EXPECT_EQ(plain.error, "");
  const ProgramRun lossy = RunProgram({"tokenize", TinyStories(), "-p", "Zoë # 3"});
  EXPECT_EQ(lossy.code, 0);
  EXPECT_EQ(lossy.error_lines(), 1u);
  EXPECT_THAT(lossy.error, HasSubstr("cannot spell 2 of the text's characters"));
  const ProgramRun counted = RunProgram({"tokenize", TinyStories(), "--json", "-p", "Zoë # 3"});
  EXPECT_EQ(json::parse(counted.out)["unknown_characters"], 2);
  const ProgramRun back = RunProgram({"tokenize", TinyStories(), "--decode", "-p", lossy.out});
  EXPECT_EQ(back.out, "Zo  3");
  EXPECT_THAT(back.error, HasSubstr("2 of the "));
  const ProgramRun back_json =
      RunProgram({"tokenize", TinyStories(), "--decode", "--json", "-p", lossy.out});
  EXPECT_EQ(json::parse(back_json.out), (json{{"text", "Zo  3"}, {"unknown_tokens", 2}}));
  EXPECT_THAT(RunProgram({"tokenize", "--help"}).out, HasSubstr("if the vocabulary can spell it"));
}

TEST(FilesProgram, ImatrixShowsOnlyWhatTheFileHolds) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  formats::Imatrix imatrix;
  imatrix.entries["blk.0.ffn_up.weight"] = {.sums = {1024, 2048}, .counts = {1024}};
  imatrix.chunk_count = 2;
  using formats::ImatrixForm;
  ASSERT_TRUE(formats::WriteImatrix(imatrix, folder / "a.dat", ImatrixForm::kDat).ok());
  ASSERT_TRUE(formats::WriteImatrix(imatrix, folder / "a.gguf", ImatrixForm::kGguf).ok());
  const std::string dat = RunProgram({"imatrix", "--show", folder / "a.dat"}).out;
  EXPECT_THAT(dat, HasSubstr("chunks    2\n"));
  EXPECT_THAT(dat, HasSubstr("calls"));
  EXPECT_THAT(dat, Not(HasSubstr("tokens")));
  const std::string gguf = RunProgram({"imatrix", "--show", folder / "a.gguf"}).out;
  EXPECT_THAT(gguf, HasSubstr("chunks    2 of 512 tokens\n"));
}

TEST(FilesProgram, HelpSaysWhatIsNeeded) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string convert = RunProgram({"convert", "--help"}).out;
  for (const char* word : {"--type", "f32", "f16", "bf16", "q8_0", "--name"}) {
    EXPECT_THAT(convert, HasSubstr(word));
  }
  // Its rows hold whole blocks of every type.
  const std::string model = SourcePath("models/shakespeare/shakespeare-bf16.gguf");
  // Every type whose help does not ask for an importance matrix works without one.
  TemporaryFolder folder;
  std::istringstream help(RunProgram({"quantize", "--help"}).out);
  int types = 0;
  bool listed = false;
  for (std::string line; std::getline(help, line);) {
    if (line == "Types:") listed = true;
    if (!listed || !line.starts_with("  ")) {
      listed = listed && line == "Types:";
      continue;
    }
    const std::string type = line.substr(2, line.find(' ', 2) - 2);
    const bool needs = line.find("needs an importance matrix") != std::string::npos;
    const ProgramRun run =
        RunProgram({"quantize", model, folder / "q.gguf", type, "--dry-run", "--pure"});
    ++types;
    if (type == "IQ3_XXS") continue;  // --pure spares it the IQ2_S that needs one
    EXPECT_EQ(run.code != 0, needs) << type << ": " << run.error;
  }
  EXPECT_GT(types, 30);
}

TEST(FilesProgram, RunSamplesAsTheFileRecommends) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TinyStories());
  TemporaryFolder folder;
  const std::string model = folder / "m.gguf";
  const ProgramRun made =
      RunProgram({"quantize", TinyStories(), model, "COPY", "--override-kv",
                  "general.sampling.temp=float:0", "--override-kv", "general.sampling.top_k=int:7",
                  "--override-kv", "general.sampling.top_p=float:7"});
  ASSERT_EQ(made.code, 0) << made.error;
  const auto run = [](const std::string& path, std::vector<std::string> more) {
    more.insert(more.begin(), {"run", path, "-n", "24", "-p", "Once upon a time", "--seed", "1"});
    return RunProgram(more);
  };
  const ProgramRun taken = run(model, {});
  EXPECT_EQ(taken.out, run(TinyStories(), {"--temp", "0"}).out);
  EXPECT_THAT(taken.error, HasSubstr("as the model's file recommends: --temp 0 --top-k 7\n"));
  EXPECT_EQ(run(model, {"-q"}).error, "");
  const ProgramRun chosen = run(model, {"--temp", "0.8", "--top-k", "40"});
  EXPECT_EQ(chosen.out, run(TinyStories(), {}).out);
  EXPECT_EQ(chosen.error, "");
}

// Whatever the moment at which the writer dies, it leaves the whole file or none.
TEST(FilesProgram, AKilledQuantizeLeavesNothingBehind) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  KVANT_SKIP_WITHOUT(TinyStories());
  TemporaryFolder folder;
  const std::string out = folder / "q.gguf";
  for (int delay_ms = 0; delay_ms < 40; delay_ms += 2) {
    std::string program = kProgramPath;
    std::string command = "quantize";
    std::string model = TinyStories();
    std::string type = "Q8_0";
    std::string target = out;
    char* const arguments[] = {program.data(), command.data(), model.data(),
                               target.data(),  type.data(),    nullptr};
    pid_t child = 0;
    ASSERT_EQ(posix_spawn(&child, kProgramPath, nullptr, nullptr, arguments, environ), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
  }
  std::filesystem::remove(out);
  // A process that died while it replaced an older file may have left one, which goes now.
  EXPECT_LE(FileCount(folder), 1u);
  EXPECT_EQ(RunProgram({"quantize", TinyStories(), out, "Q8_0"}).code, 0);
  EXPECT_EQ(FileCount(folder), 1u);
}

}  // namespace
}  // namespace kvant::test
