// The program tells of itself: short and whole helps, variables of the environment, and the
// words and values that a shell completes.
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

TEST(Help, HelpShowsLlamaCppsDefaults) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  std::string help = RunProgram({"run", "--help-all"}).out;
  for (size_t at; (at = help.find("\n                 ")) != std::string::npos;) {
    help.replace(at, help.find_first_not_of(" \n", at) - at, " ");  // undo the line breaks
  }
  for (const char* text : {"likeliest token (default: 0.8)", "0 is all (default: 40)",
                           "1 is all (default: 0.95)", "0 is all (default: 0.05)"}) {
    EXPECT_THAT(help, HasSubstr(text));
  }
}

// A short help has what is used most; the whole one has all that the program takes, and what is for
// debugging comes last.
TEST(Help, TheShortHelpIsShort) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const std::string command : {"run", "chat", "bench"}) {
    const std::string brief = RunProgram({command, "--help"}).out;
    const std::string all = RunProgram({command, "--help-all"}).out;
    EXPECT_LE(std::count(brief.begin(), brief.end(), '\n'), 46) << command;
    EXPECT_THAT(brief, HasSubstr("--help-all"));
    EXPECT_THAT(brief, testing::Not(HasSubstr("--kv-poison")));
    std::istringstream options(RunProgram({command, "--list-options"}).out);
    for (std::string option; std::getline(options, option);) {
      EXPECT_THAT(all, HasSubstr(option)) << command;
    }
    std::istringstream lines(all);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
  const std::string all = RunProgram({"run", "--help-all"}).out;
  const size_t debugging = all.find("\nDebugging\n");
  ASSERT_NE(debugging, std::string::npos);
  for (const char* option : {"--kv-check", "--kv-poison", "--no-kv-cache", "--log "}) {
    EXPECT_GT(all.find(option), debugging) << option;
  }
  EXPECT_LT(all.find("\nSpeed and memory\n"), debugging);
  // Commands with many options of sessions leave the rare ones out.
  const std::string score = RunProgram({"score", "--help"}).out;
  EXPECT_THAT(score, HasSubstr("--kv-type"));
  EXPECT_THAT(score, testing::Not(HasSubstr("--numa")));
  EXPECT_THAT(RunProgram({"score", "--help-all"}).out, HasSubstr("--numa"));
}

TEST(Help, HelpNamesVariablesOfTheEnvironment) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string help = RunProgram({"--help"}).out;
  for (const char* name : {"KVANT_ISA", "KVANT_CUDA_DRIVER", "KVANT_FLOAT_GEMM", "KVANT_API_KEY",
                           "KVANT_PORT", "NO_COLOR", "XDG_STATE_HOME"}) {
    EXPECT_THAT(help, HasSubstr(std::string("  ") + name + " "));
  }
}

// An option that the help leaves out is one that nobody finds.
TEST(Help, OptionsWithoutAGroupAreInTheHelp) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  EXPECT_THAT(RunProgram({"hash", "--help"}).out, HasSubstr("\nOptions\n  -c, --check MANIFEST"));
  EXPECT_THAT(RunProgram({"split", "--help"}).out,
              HasSubstr("\nOptions\n      --max-size, --split-max-size SIZE"));
}

TEST(Help, CompletionWordsComeFromTheProgram) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const std::string commands = RunProgram({"--list-commands"}).out;
  for (const std::string command : {"run", "inspect", "tokenize", "bench", "hash", "score"}) {
    EXPECT_THAT(commands, HasSubstr(command + "\n"));
    EXPECT_THAT(RunProgram({command, "--list-options"}).out, HasSubstr("--model\n"));
  }
  EXPECT_THAT(RunProgram({"run", "--list-options"}).out, testing::Not(HasSubstr("--list-options")));
  const ProgramRun run =
      RunShell("source '" + SourcePath("tools/completion/kvant.bash") +
               "'; COMP_WORDS=(\"$KVANT\" run --typ); COMP_CWORD=2; _kvant; echo ${COMPREPLY[@]}");
  EXPECT_EQ(run.out, "--typical --typical-p\n") << run.error;
}

TEST(Help, CompletionKnowsValues) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TemporaryFolder folder;
  std::ofstream(folder / "qwen3.gguf").close();
  const auto complete = [&](const std::string& words, int word) {
    const ProgramRun run =
        RunShell("cd '" + folder.path().string() + "' && source '" +
                 SourcePath("tools/completion/kvant.bash") + "'; COMP_WORDS=(\"$KVANT\" " + words +
                 "); COMP_CWORD=" + std::to_string(word) + "; _kvant; echo ${COMPREPLY[@]}");
    EXPECT_EQ(run.code, 0) << run.error;
    return run.out;
  };
  EXPECT_EQ(complete("run m.gguf --kv-type ''", 4), "f32 f16 q8\n");
  EXPECT_EQ(complete("run m.gguf -ctk f", 4), "f32 f16\n");
  EXPECT_EQ(complete("run m.gguf --state-type f", 4), "f32 f16\n");
  EXPECT_EQ(complete("run m.gguf --numa d", 4), "distribute\n");
  EXPECT_EQ(complete("run m.gguf --pin ''", 4), "none cores\n");
  EXPECT_EQ(complete("run m.gguf --beam-scoring w", 4), "whisper\n");
  EXPECT_EQ(complete("chat --reasoning s", 3), "show\n");
  EXPECT_EQ(complete("chat --chat-template chat", 3), "chatml\n");
  EXPECT_EQ(complete("bench -o j", 3), "json jsonl\n");
  EXPECT_EQ(complete("run -m sh", 3), "shakespeare\n");
  EXPECT_EQ(complete("run sh", 2), "shakespeare\n");
  EXPECT_EQ(complete("run qwen3", 2), "qwen35-tiny qwen3.gguf\n");
  EXPECT_EQ(complete("run m --draft n", 4), "number-words ngram\n");
  EXPECT_EQ(complete("quantize in out Q4_K", 4), "Q4_K_S Q4_K_M\n");
}

}  // namespace
}  // namespace kvant::test
