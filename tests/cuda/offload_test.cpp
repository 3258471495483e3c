// Sessions whose attention a device computes (an emulated one: tests/cuda/fake_driver.cpp): the
// same logits as the CPU's within what halves lose, replayed graphs, layers that do not fit,
// sessions that move between CPU and device, and a device that fails at every call in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kvant/memory_plan.h"
#include "kvant/runner.h"
#include "tests/cuda/emulated_device.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

SessionOptions OnDevice(KvType type, int64_t sequences = 4) {
  SessionOptions options = Options(type, sequences);
  options.offload = Offload::kAttention;
  return options;
}

// Layers with and without a window.
std::shared_ptr<const Model> MixedModel() {
  TinyShape shape = MixedShape(33);
  shape.context = 900;
  return OpenTiny(shape);
}

// Layers with latent attention.
std::shared_ptr<const Model> LatentModel() {
  TinyShape shape = LatentShape();
  shape.context = 900;
  return OpenTiny(shape);
}

// The logits of all of 150 tokens in pieces of 90, 40 and 1: a long pass, short ones, and decoding.
std::vector<float> AllLogits(Runner& runner) {
  const std::vector<TokenId> tokens = RandomTokens(150, 5);
  const SequenceId id = NewSequence(runner);
  std::vector<float> logits = LogitsOfAll(runner, id, std::span(tokens).first(90), 90);
  for (const auto& [rest, piece] : {std::pair(std::span(tokens).subspan(90, 40), size_t{40}),
                                    std::pair(std::span(tokens).subspan(130), size_t{1})}) {
    const std::vector<float> more = LogitsOfAll(runner, id, rest, piece);
    logits.insert(logits.end(), more.begin(), more.end());
  }
  ExpectOk(runner.FreeSequence(id));
  return logits;
}

float Distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

float Largest(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

TEST(Offload, GivesTheLogitsOfTheCpu) {
  const EmulatedDriver driver;
  for (const auto& model : {MixedModel(), LatentModel()}) {
    for (const KvType type : {KvType::kF16, KvType::kQ8}) {
      const std::vector<float> expected = AllLogits(*OpenRunner(model, Options(type, 4)));
      const auto runner = OpenRunner(model, OnDevice(type));
      const std::vector<float> found = AllLogits(*runner);
      EXPECT_EQ(runner->stats().offloaded_layers, std::ssize(model->cache_layers()));
      EXPECT_GT(runner->stats().device_calls_many, 0u);
      EXPECT_NE(expected, found);  // another arithmetic
      EXPECT_LT(Distance(expected, found),
                (type == KvType::kF16 ? 4e-3f : 2e-2f) * Largest(expected));
    }
  }
}

// A long pass is absorbed where the device has the latents, and expanded beside it.
TEST(Offload, LatentsOfSomeLayers) {
  const EmulatedDriver driver;
  const auto model = LatentModel();
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    const std::vector<float> expected = AllLogits(*OpenRunner(model, Options(type, 4)));
    SessionOptions options = OnDevice(type);
    options.offload_layers = {1};
    const auto runner = OpenRunner(model, options);
    const std::vector<float> found = AllLogits(*runner);
    EXPECT_EQ(runner->stats().offloaded_layers, 1);
    EXPECT_LT(Distance(expected, found),
              (type == KvType::kF16 ? 4e-3f : 2e-2f) * Largest(expected));
  }
}

// Where keys and values lie, and which layers are offloaded, is another choice than what computes:
// the host's memory and the device's give equal bits.
TEST(Offload, MemoryOfTheHostGivesTheSameBits) {
  const EmulatedDriver driver;
  const auto model = MixedModel();
  SessionOptions options = OnDevice(KvType::kQ8);
  options.kv_device = KvDevice::kCuda;
  const std::vector<float> expected = AllLogits(*OpenRunner(model, options));
  options.kv_device = KvDevice::kCpu;
  EXPECT_EQ(expected, AllLogits(*OpenRunner(model, options)));
  options.offload_layers = {1};
  const auto runner = OpenRunner(model, options);
  const std::vector<float> partly = AllLogits(*runner);
  EXPECT_EQ(runner->stats().offloaded_layers, 1);
  EXPECT_LT(Distance(expected, partly), 2e-2f * Largest(expected));
}

TEST(Offload, MostStepsReplayAGraph) {
  const EmulatedDriver driver;
  const auto runner = OpenRunner(MixedModel(), OnDevice(KvType::kF16));
  const std::vector<TokenId> prompt = RandomTokens(70, 1);
  const SequenceId first = NewSequence(*runner);
  ExpectOk(runner->Append(first, prompt));
  // Beams of three, which are reordered at each step.
  std::vector<SequenceId> beams = {first, *runner->Fork(first), *runner->Fork(first)};
  const RunnerStats before = runner->stats();
  for (int step = 0; step < 200; ++step) {
    std::vector<TokenId> tokens = RandomTokens(3, static_cast<unsigned>(step));
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < beams.size(); ++i) inputs.push_back({beams[i], {&tokens[i], 1}});
    ExpectOk(runner->Step(inputs));
    const std::vector<int> parents = {step % 3, 0, step % 2};
    ExpectOk(runner->Reorder(beams, parents));
  }
  const RunnerStats after = runner->stats();
  const double calls = static_cast<double>(after.device_calls_few - before.device_calls_few);
  const double replayed =
      static_cast<double>(after.device_calls_replayed - before.device_calls_replayed);
  EXPECT_EQ(after.device_calls_many, before.device_calls_many);
  EXPECT_GT(replayed, 0.9 * calls);
  // A step sends the rows and says who sees what, and gets the results: no cache over the bus.
  EXPECT_LT(static_cast<double>(after.bytes_to_host - before.bytes_to_host) / 200, 20e3);
  EXPECT_LT(static_cast<double>(after.bytes_to_device - before.bytes_to_device) / 200, 60e3);
}

TEST(Offload, ASessionMovesBetweenCpuAndDevice) {
  const EmulatedDriver driver;
  TemporaryFolder folder;
  const auto model = MixedModel();
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    for (const bool from_device : {false, true}) {
      const auto from = OpenRunner(model, from_device ? OnDevice(type) : Options(type, 4));
      const auto to = OpenRunner(model, from_device ? Options(type, 4) : OnDevice(type));
      const SequenceId id = NewSequence(*from);
      ExpectOk(from->Append(id, RandomTokens(130, 9)));
      ExpectOk(from->Save(folder / "session", {&id, 1}));
      const auto loaded = to->Load(folder / "session");
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      const std::vector<TokenId> next = RandomTokens(5, 10);
      ExpectOk(from->Append(id, next));
      ExpectOk(to->Append(loaded->front(), next));
      EXPECT_LT(Distance(from->logits(id), to->logits(loaded->front())),
                2e-2f * Largest(from->logits(id)));
      // And back: what the device has stored meanwhile is what it saves.
      ExpectOk(to->Save(folder / "again", *loaded));
      const auto again = from->Load(folder / "again");
      ASSERT_TRUE(again.ok()) << again.error().message;
      EXPECT_EQ(Distance(from->logits(again->front()), to->logits(loaded->front())), 0.0f);
    }
  }
}

// Everything that a runner does with a device: passes, forks that are copied on write, a rewind, a
// file. Returns the first error.
Status UseRunner(const std::shared_ptr<const Model>& model, const std::string& path) {
  SessionOptions options = OnDevice(KvType::kQ8);
  options.kv_check = false;
  options.threads = 1;
  KVANT_ASSIGN(const auto runner, Runner::Create(model, options));
  KVANT_ASSIGN(const SequenceId first, runner->NewSequence());
  KVANT_TRY(runner->Append(first, RandomTokens(66, 1)));
  KVANT_ASSIGN(const SequenceId second, runner->Fork(first));
  for (const TokenId token : RandomTokens(3, 2)) {
    const StepInput inputs[] = {{first, {&token, 1}}, {second, {&token, 1}}};
    KVANT_TRY(runner->Step(inputs));
  }
  KVANT_TRY(runner->Rewind(first, 40));
  KVANT_TRY(runner->Append(first, RandomTokens(2, 3)));
  KVANT_TRY(runner->Save(path, {&first, 1}));
  KVANT_TRY(runner->FreeSequence(first));
  KVANT_TRY(runner->FreeSequence(second));
  return runner->Load(path).ok() ? Status() : runner->Load(path).error();
}

TEST(Offload, AFailureAtAnyCallEndsTheRequestAndNothingElse) {
  const EmulatedDriver driver;
  TemporaryFolder folder;
  const auto model = MixedModel();
  const auto cpu = OpenRunner(model, Options(KvType::kF16, 1));
  const SequenceId other = NewSequence(*cpu);
  const Status whole = UseRunner(model, folder / "session");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  const int all = driver.calls();
  ASSERT_GT(all, 200);
  int noticed = 0;
  for (int failing = 1; failing <= all; failing += failing < 80 ? 1 : 7) {
    for (const bool lost : {false, true}) {
      lost ? driver.LoseAt(failing) : driver.FailAt(failing);
      const Status status = UseRunner(model, folder / "session");
      if (driver.calls() >= failing) ++noticed;
      if (failing < all - 20) {  // the last calls are those of destructors
        ASSERT_FALSE(status.ok()) << failing;
        EXPECT_THAT(status.error().message, HasSubstr("CUDA driver: cu")) << failing;
      }
      ASSERT_EQ(driver.used_bytes(), 0u) << failing;
    }
    ExpectOk(cpu->Append(other, RandomTokens(1, 1)));
  }
  EXPECT_GT(noticed, 100);
}

TEST(Offload, AfterAFailureEveryStepFailsAndTheSequencesStay) {
  const EmulatedDriver driver;
  const auto runner = OpenRunner(MixedModel(), OnDevice(KvType::kF16));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(40, 1)));
  driver.FailAt(3);
  const Status failed = runner->Append(id, RandomTokens(1, 2));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
  EXPECT_EQ(runner->length(id), 40);
  driver.FailAt(0);
  // Nobody knows what the failed call has left on the device.
  EXPECT_FALSE(runner->Append(id, RandomTokens(1, 2)).ok());
  EXPECT_EQ(runner->length(id), 40);
  ExpectOk(runner->Check());
  ExpectOk(runner->FreeSequence(id));
}

TEST(Offload, LayersThatDoNotFitStayWithTheCpu) {
  const EmulatedDriver driver;
  const auto model = MixedModel();
  SessionOptions options = OnDevice(KvType::kF16, 1);
  const auto plan = PlanMemory(*model, options);
  ASSERT_TRUE(plan.ok());
  ASSERT_GT(plan->device, 0u);
  driver.SetMemory(plan->device + (1 << 20));
  const auto whole = OpenRunner(model, options);
  EXPECT_EQ(whole->stats().offloaded_layers, std::ssize(model->cache_layers()));
  EXPECT_LE(driver.used_bytes(), plan->device);

  const auto planned_for = [&](std::vector<int> layers) {
    SessionOptions some = options;
    some.offload_layers = std::move(layers);
    return PlanMemory(*model, some)->device;
  };
  driver.SetMemory(driver.used_bytes() + planned_for({0, 1}));
  const auto partly = OpenRunner(model, options);
  EXPECT_EQ(partly->stats().offloaded_layers, 2);
  const std::vector<float> expected = AllLogits(*OpenRunner(model, Options(KvType::kF16, 1)));
  EXPECT_LT(Distance(expected, AllLogits(*partly)), 4e-3f * Largest(expected));

  options.kv_device = KvDevice::kCuda;
  driver.SetMemory(driver.used_bytes() + planned_for({0, 1}));
  const auto refused = Runner::Create(model, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("2 of the layers would fit"));

  driver.SetMemory(driver.used_bytes());
  options.kv_device = KvDevice::kAuto;
  EXPECT_FALSE(Runner::Create(model, options).ok());
}

// Runs prompts in passes of many and of few rows over five spans, and as many sequences as share a
// pass, on a device that has no memory beyond the plan. Without the last byte it has room for one
// layer less.
TEST(Offload, PassesTakeNoMoreMemoryThanPlanned) {
  const EmulatedDriver driver;
  TinyShape shape = MixedShape(33);
  shape.context = 1100;
  const auto model = OpenTiny(shape);
  for (const int64_t sequences : {int64_t{1}, kSharedRowsMax}) {
    SessionOptions options = OnDevice(KvType::kF16, sequences);
    options.chunk = kSharedRowsMax + 1;
    options.kv_check = false;
    const auto plan = PlanMemory(*model, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    driver.SetMemory(plan->device);
    const auto runner = OpenRunner(model, options);
    EXPECT_EQ(runner->stats().offloaded_layers, shape.layers);
    const size_t at_first = driver.used_bytes();
    std::vector<SequenceId> ids = {NewSequence(*runner)};
    for (const int64_t rows : {960, 1, 2, 33, 63}) {
      ExpectOk(runner->Append(ids[0], RandomTokens(rows, 1)));
    }
    while (std::ssize(ids) < sequences) ids.push_back(*runner->Fork(ids[0]));
    for (int step = 0; step < 3; ++step) {
      const std::vector<TokenId> tokens = RandomTokens(sequences, 2);
      std::vector<StepInput> inputs;
      for (size_t i = 0; i < ids.size(); ++i) inputs.push_back({ids[i], {&tokens[i], 1}});
      ExpectOk(runner->Step(inputs));
    }
    // The kernel's results: of 63 rows in eight spans, v_dim sums and four numbers a head.
    const auto partials = static_cast<size_t>(63 * 8 * shape.heads * (shape.head_dim + 4) * 4);
    EXPECT_GT(driver.used_bytes(), at_first + partials);

    driver.SetMemory(driver.used_bytes() + plan->device - 1);
    EXPECT_EQ(OpenRunner(model, options)->stats().offloaded_layers, shape.layers - 1);
  }
}

TEST(Offload, RefusesWhatItCannotDo) {
  const EmulatedDriver driver;
  const auto model = MixedModel();
  const auto error_of = [&](const std::function<void(SessionOptions&)>& change) {
    SessionOptions options = OnDevice(KvType::kF16);
    change(options);
    const auto runner = Runner::Create(model, options);
    return runner.ok() ? std::string() : runner.error().message;
  };
  EXPECT_THAT(error_of([](SessionOptions& o) { o.k_type = KvType::kF32; }),
              HasSubstr("expected keys and values of type f16 or q8, found f32"));
  EXPECT_THAT(error_of([](SessionOptions& o) { o.kv_cache = false; }),
              HasSubstr("expected a KV cache, found none"));
  EXPECT_THAT(error_of([](SessionOptions& o) { o.offload_layers = {99}; }), HasSubstr("found 99"));
  EXPECT_THAT(error_of([](SessionOptions& o) { o.offload_layers = {-1}; }), HasSubstr("found -1"));
  EXPECT_THAT(error_of([](SessionOptions& o) {
                o.offload = Offload::kNone;
                o.kv_device = KvDevice::kCuda;
              }),
              HasSubstr("nothing is offloaded"));
  TinyShape odd;
  odd.head_dim = 20;
  const auto refused = Runner::Create(OpenTiny(odd), OnDevice(KvType::kF16));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotSupported);
  EXPECT_THAT(refused.error().message, HasSubstr("multiple of 8"));
}

}  // namespace
}  // namespace kvant::test
