// Teams with far more threads than the machine has CPUs: they finish, and every logit has the bits
// that one thread gives it, in long and short passes, decoding, batches, forks and beams, on models
// of several kinds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "base/cpu_topology.h"
#include "engine/limits.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

struct TeamCase {
  const char* name;
  std::shared_ptr<const Model> (*open)();
  KvType type = KvType::kF16;
};

std::shared_ptr<const Model> OpenTyped(TinyShape shape, const char* type) {
  shape.type = type;
  return OpenTiny(shape);
}

std::vector<TeamCase> TeamCases() {
  return {
      {"llama_f32", [] { return OpenTyped({}, "F32"); }, KvType::kF32},
      {"llama_q4_int8_cache", [] { return OpenTyped({}, "Q4_0"); }, KvType::kQ8},
      // More rows than a team has shares, so that whole tiles of tokens are split, too.
      {"wide_q8", [] { return OpenTyped({.dim = 256, .ffn = 1024, .context = 1200}, "Q8_0"); }},
      {"windows_q4", [] { return OpenTyped(MixedShape(33), "Q4_0"); }, KvType::kQ8},
      {"latent_q8",
       [] {
         return OpenTyped(
             {.arch = "deepseek2", .head_dim = 24, .latent = {.latent = 32, .v_dim = 32}}, "F16");
       }},
      {"experts_q4", [] { return OpenTyped({.experts = {.count = 8, .used = 3}}, "Q4_0"); }},
      {"qwen3next", [] { return SeededModel("qwen3next").Open(); }},
      {"rwkv7", [] { return SeededModel("rwkv7").Open(); }},
      {"mamba2", [] { return SeededModel("mamba2").Open(); }},
      {"shakespeare",
       [] {
         auto model = Model::Open(SourcePath("models/shakespeare/shakespeare.gguf"), {});
         EXPECT_TRUE(model.ok());
         return model.ok() ? *model : nullptr;
       }},
  };
}

class ManyThreads : public testing::TestWithParam<TeamCase> {
 protected:
  void SetUp() override {
    model_ = GetParam().open();
    ASSERT_NE(model_, nullptr);
  }

  SessionOptions OptionsFor(int threads) const {
    SessionOptions options;
    options.k_type = options.v_type = GetParam().type;
    options.sequences = 6;
    options.context = 700;
    options.threads = threads;
    return options;
  }

  std::vector<TokenId> Text(size_t count, uint32_t seed) const {
    return RandomTokens(count, seed, model_->vocab_size());
  }

  // The logits after each of these steps, all in one.
  std::vector<float> Program(const SessionOptions& options) const {
    const auto runner = OpenRunner(model_, options);
    std::vector<float> all;
    const auto keep = [&](SequenceId id) {
      all.insert(all.end(), runner->logits(id).begin(), runner->logits(id).end());
    };
    const SequenceId first = NewSequence(*runner);
    ExpectOk(runner->Append(first, Text(530, 1)));  // a whole chunk and a short one
    keep(first);
    for (const TokenId token : Text(3, 2)) {
      ExpectOk(runner->Append(first, {&token, 1}));
      keep(first);
    }
    std::vector<SequenceId> ids = {first, NewSequence(*runner), NewSequence(*runner)};
    const std::vector<TokenId> texts[] = {Text(1, 3), Text(70, 4), Text(9, 5)};
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < ids.size(); ++i) inputs.push_back({ids[i], texts[i]});
    ExpectOk(runner->Step(inputs));
    for (const SequenceId id : ids) keep(id);
    for (int i = 0; i < 3; ++i) {  // beams that share what they have in common
      const auto fork = runner->Fork(ids[1]);
      EXPECT_TRUE(fork.ok());
      ids.push_back(*fork);
    }
    for (uint32_t step = 0; step < 3; ++step) {
      const std::vector<TokenId> tokens = Text(ids.size(), 10 + step);
      inputs.clear();
      for (size_t i = 0; i < ids.size(); ++i) inputs.push_back({ids[i], {&tokens[i], 1}});
      ExpectOk(runner->Step(inputs));
      for (const SequenceId id : ids) keep(id);
      ExpectOk(runner->Reorder({ids.data() + 1, 5}, std::vector<int>{0, 0, 3, 1, 4}));
    }
    ExpectOk(runner->Rewind(first, 528));
    ExpectOk(runner->Append(first, Text(2, 20)));
    keep(first);
    ExpectOk(runner->Check());
    return all;
  }

  std::shared_ptr<const Model> model_;
};

INSTANTIATE_TEST_SUITE_P(Models, ManyThreads, testing::ValuesIn(TeamCases()),
                         [](const auto& team) { return std::string(team.param.name); });

TEST_P(ManyThreads, HaveTheBitsOfOne) {
  const std::vector<float> expected = Program(OptionsFor(1));
  ASSERT_FALSE(expected.empty());
  for (const int threads : {2, 3, 7, 61, 64, 128}) {
    EXPECT_EQ(Program(OptionsFor(threads)), expected) << threads;
  }
}

TEST_P(ManyThreads, BoundToCpusHaveThem) {
  SessionOptions options = OptionsFor(5);
  const std::vector<float> expected = Program(options);
  options.placement.pin = Pin::kCores;
  for (const Numa numa : {Numa::kNone, Numa::kDistribute, Numa::kIsolate}) {
    options.placement.numa = numa;
    EXPECT_EQ(Program(options), expected);
  }
}

// The machine's CPUs as if each had a memory node of its own, some of which do not exist: threads
// are bound, pages are asked for and refused, and the bits are the same.
TEST_P(ManyThreads, OnMadeUpNodesHaveThem) {
  const std::vector<int> usable = UsableCpus();
  if (usable.size() < 2) GTEST_SKIP() << "one CPU, so one node";
  const TemporaryFolder sys;
  for (const int cpu : usable) {
    std::filesystem::create_directories(
        sys.path() / fmt::format("devices/system/cpu/cpu{}/node{}", cpu, cpu % 2));
  }
  SessionOptions options = OptionsFor(5);
  const std::vector<float> expected = Program(options);
  setenv("KVANT_TEST_SYS", sys.path().c_str(), 1);
  EXPECT_EQ(CountNumaNodes(), 2);
  for (const Numa numa : {Numa::kDistribute, Numa::kIsolate}) {
    for (const Pin pin : {Pin::kNone, Pin::kCores}) {
      options.placement = {.pin = pin, .numa = numa};
      EXPECT_EQ(Program(options), expected);
      const auto runner = OpenRunner(model_, options);
      EXPECT_GT(runner->stats().weight_pages, 0u);
      EXPECT_LE(runner->stats().weight_pages_placed, runner->stats().weight_pages);
    }
  }
  unsetenv("KVANT_TEST_SYS");
  EXPECT_EQ(UsableCpus(), usable);
}

TEST(ManyThreads, TheLargestTeamHasThem) {
  const auto model = OpenTyped({}, "Q4_0");
  const std::vector<TokenId> tokens = RandomTokens(150, 1);
  SessionOptions options;
  options.threads = 1;
  const std::vector<float> expected = AllLogits(*OpenSession(model, options), tokens, 70);
  options.threads = static_cast<int>(kThreadsMax);
  EXPECT_EQ(AllLogits(*OpenSession(model, options), tokens, 70), expected);
}

TEST(ManyThreads, ACpuThatMayNotBeUsedIsRefused) {
  const auto model = OpenTyped({}, "F32");
  SessionOptions options;
  options.placement = {.pin = Pin::kList, .cpus = {8191}};
  const auto session = Session::Create(model, options);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().code, ErrorCode::kInvalid);
  EXPECT_NE(session.error().message.find("pin: expected CPUs that this process may use"),
            std::string::npos);
}

}  // namespace
}  // namespace kvant::test
