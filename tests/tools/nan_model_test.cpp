// The program on a model whose logits are not numbers: every command that writes text ends with
// status 1 and names the file, the position and the token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/engine/nan_model.h"
#include "tests/engine/tiny_model.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

TEST(NanModelProgram, EveryCommandEndsWithTheFileThePositionAndTheToken) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const TemporaryFolder folder;
  const std::string model = folder / "nan.gguf";
  TinyModelWriter(TinyShape()).Write(model);
  DamageToken(model, 3 + 'b');
  const std::string prompts = folder / "prompts.jsonl";
  std::ofstream(prompts) << "{\"prompt\": \"ab\"}\n";
  const std::string message = "logits after token ";
  const std::vector<std::vector<std::string>> commands = {
      {"run", model, "-p", "ab", "-n", "4"},
      {"run", model, "-p", "a", "-n", "4", "--logit-bias", "101+100"},
      {"run", model, "-p", "ab", "-n", "4", "--beams", "3"},
      {"run", model, "--prompts", prompts, "-n", "4"},
      {"run", model, "--prompts", prompts, "-n", "4", "--beams", "3"},
      {"chat", model, "-p", "ab", "-n", "4", "--single-turn", "--chat-template", "chatml"},
  };
  for (const std::vector<std::string>& command : commands) {
    const ProgramRun run = RunProgram(command);
    EXPECT_EQ(run.code, 1) << command[0] << command.back() << run.error;
    EXPECT_THAT(run.error, testing::HasSubstr(model + ": " + message)) << command.back();
    EXPECT_THAT(run.error, testing::HasSubstr("expected numbers, found NaN for token 0"));
  }
}

}  // namespace
}  // namespace kvant::test
