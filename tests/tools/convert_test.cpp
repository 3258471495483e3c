// The commands convert, split and merge, run as programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/engine/convert/hf_folder.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ConvertProgram, ConvertedSplitAndMergedModelTellsTheSameStory) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string source = SharedPath("models/tinystories-656k");
  KVANT_SKIP_WITHOUT(source);
  TemporaryFolder folder;
  const std::string model = folder / "m.gguf";
  const ProgramRun converted = RunProgram({"convert", source, model, "--type", "f32"});
  EXPECT_EQ(converted.code, 0) << converted.error;
  EXPECT_THAT(converted.out, HasSubstr("llama, 20 tensors, 656000 parameters, matrices in f32"));
  const auto story = [](const std::string& path) {
    return RunProgram({"run", path, "--temp", "0", "-n", "24", "-p", "Once upon a time"}).out;
  };
  const std::string expected = story(source + "/TinyStories-656K-f32.gguf");
  EXPECT_THAT(expected, HasSubstr("a little girl named Lily"));
  EXPECT_EQ(story(model), expected);

  EXPECT_EQ(RunProgram({"split", model, folder / "p", "--max-size", "600K", "--dry-run"}).code, 0);
  const ProgramRun split = RunProgram({"split", model, folder / "p", "--max-size", "600K"});
  EXPECT_EQ(split.code, 0) << split.error;
  EXPECT_EQ(story(folder / "p-00002-of-00004.gguf"), expected) << split.out;
  EXPECT_EQ(RunProgram({"merge", folder / "p-00003-of-00004.gguf", folder / "again.gguf"}).code, 0);
  EXPECT_EQ(FileBytes(folder / "again.gguf"), FileBytes(model));
}

TEST(ConvertProgram, ListsTheClassesThatItKnows) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const ProgramRun run = RunProgram({"convert", "--list-classes"});
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("\nLlamaForCausalLM                         llama\n"));
  EXPECT_THAT(run.out, HasSubstr("\nWhisperForConditionalGeneration          whisper\n"));
  EXPECT_GT(std::ranges::count(run.out, '\n'), 80);
}

TEST(ConvertProgram, ConvertsAFolderOfCTranslate2) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  const std::string source = SourcePath("tests/reference/ctranslate2/whisper");
  const ProgramRun run = RunProgram({"run", source});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.error, HasSubstr("a folder of CTranslate2; 'kvant convert " + source));
  const ProgramRun converted = RunProgram({"convert", source, folder / "m.gguf"});
  EXPECT_EQ(converted.code, 0) << converted.error;
  EXPECT_THAT(converted.out, HasSubstr("m.gguf: whisper, 74 tensors"));
}

TEST(ConvertProgram, WrongUsageAndRefusals) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  HfFolder folder;
  folder.config["architectures"] = {"CLIPModel"};
  folder.Write();
  const auto fails = [](const std::vector<std::string>& arguments, int code, const char* message) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.code, code) << run.error;
    EXPECT_THAT(run.error, HasSubstr(message));
    EXPECT_EQ(run.error_lines(), 1u);
    EXPECT_EQ(run.out, "");
  };
  fails({"convert", folder.Path()}, 2, "expected a folder and the file to write");
  fails({"convert", folder.Path(), folder / "o.gguf"}, 1, "CLIPModel");
  fails({"convert", folder.Path(), folder / "config.json"}, 2,
        "the output is a file of the folder");
  fails({"convert", folder.Path(), folder / "o.gguf", "--type", "q9"}, 2, "q9");
  fails({"split", "m.gguf", "p"}, 2, "expected either --max-size or --max-tensors");
  fails({"split", "m.gguf", "p", "--max-size", "2X"}, 2, "found '2X'");
  fails({"merge", "m.gguf"}, 2, "expected a shard of a model");
  fails({"merge", folder / "none.gguf", folder / "o.gguf"}, 1, "none.gguf");
  EXPECT_FALSE(std::filesystem::exists(folder / "o.gguf"));
}

}  // namespace
}  // namespace kvant::test
