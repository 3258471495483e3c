// kvant quantize, run as a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"
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
