// Decode steps, steps of beam search and both together allocate nothing: every allocation of the
// process is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kvant/beam_generator.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/tiny_model.h"

namespace {

std::atomic<int64_t> allocation_count{0};

void* CountedAllocate(size_t size, size_t alignment) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) { return CountedAllocate(size, 1); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return CountedAllocate(size, static_cast<size_t>(alignment));
}
// std::stable_sort and others ask in this form; it must match the deletes below.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace kvant::test {
namespace {

// Layers without a window, with it, and of both kinds in turn.
std::vector<TinyShape> AllocationShapes() {
  TinyShape windowed;
  windowed.window = 20;
  return {TinyShape(), windowed, MixedShape(20)};
}

TEST(Allocation, StepsBehindASourceAllocateNothing) {
  for (const char* name : {"t5", "bart"}) {
    SeededModel seeded(std::string(kSeededPairs) + name);
    const auto model = seeded.Open();
    ASSERT_NE(model, nullptr);
    SessionOptions options;
    options.threads = 2;
    options.sequences = 3;
    options.context = 96;
    auto runner = Runner::Create(model, options);
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    const std::vector<TokenId> source = RandomTokens(50, 3, 64);
    std::vector<SequenceId> beams;
    for (int beam = 0; beam < 3; ++beam) beams.push_back(*(*runner)->NewSequenceOf(source));
    const TokenId token = 5;
    const std::vector<int> parents = {1, 0, 0};
    std::vector<StepInput> inputs;
    for (const SequenceId id : beams) inputs.push_back({id, {&token, 1}});
    ASSERT_TRUE((*runner)->Step(inputs).ok());
    ASSERT_TRUE((*runner)->Reorder(beams, parents).ok());
    const int64_t before = allocation_count.load();
    for (int step = 0; step < 64; ++step) {
      if (!(*runner)->Step(inputs).ok()) FAIL();
      if (!(*runner)->Reorder(beams, parents).ok()) FAIL();
    }
    EXPECT_EQ(allocation_count.load() - before, 0) << name;
  }
}

TEST(Allocation, SixtyFourDecodeStepsAllocateNothing) {
  for (TinyShape shape : AllocationShapes()) {
    for (const char* type : {"F32", "Q8_0"}) {
      shape.ffn = 128;
      shape.type = type;
      const auto model = OpenTiny(shape);
      auto session = OpenSession(model);
      const std::vector<TokenId> tokens = RandomTokens(400, 1);
      ASSERT_TRUE(session->Append(std::span(tokens).first(300)).ok());
      const int64_t before = allocation_count.load();
      for (size_t i = 300; i < 364; ++i) {
        if (!session->Append({&tokens[i], 1}).ok()) FAIL();
      }
      EXPECT_EQ(allocation_count.load() - before, 0)
          << shape.arch << " " << type << " window " << shape.window;
    }
  }
  const int64_t before = allocation_count.load();
  ::operator delete(::operator new(1));  // unlike a new expression, never optimised away
  EXPECT_EQ(allocation_count.load() - before, 1) << "the counter does not count";
}

// All groups and programs, with penalties that look at the history.
TEST(Allocation, StepsOfBeamSearchAllocateNothing) {
  for (const BeamScoring scoring :
       {BeamScoring::kHf, BeamScoring::kCt2, BeamScoring::kWhisper, BeamScoring::kOga}) {
    BeamOptions options;
    options.scoring = scoring;
    options.beams = options.num_return = 4;
    options.groups = scoring == BeamScoring::kHf ? 2 : 1;
    options.diversity_penalty = scoring == BeamScoring::kHf ? 0.5f : 0.0f;
    options.end_tokens = {5};
    options.max_new_tokens = 40;
    options.repetition_penalty = 1.1f;
    options.no_repeat_ngram = 3;
    options.bad_words = {{7}, {8, 9}};
    options.suppress = options.begin_suppress = {10};
    options.min_length = 30;
    if (scoring == BeamScoring::kHf) {
      options.forced_bos = 11;
      options.forced_eos = {5};
      options.renormalize = true;
    }
    auto search = BeamSearch::Create(options, 300);
    ASSERT_TRUE(search.ok());
    ASSERT_TRUE(search->Start(RandomTokens(20, 1)).ok());
    std::vector<std::vector<float>> rows;
    std::mt19937 random(1);
    for (int i = 0; i < 4; ++i) rows.push_back(RandomValues(300, 3.0f, random));
    const std::vector<std::span<const float>> views(rows.begin(), rows.end());
    const int64_t before = allocation_count.load();
    while (!search->done()) {
      if (!search->Step(std::span(views).first(static_cast<size_t>(search->rows()))).ok()) FAIL();
    }
    EXPECT_EQ(allocation_count.load() - before, 0);
    EXPECT_FALSE(search->Results().empty());
  }
}

// With beams: forks, reorders, copies on write and freed beams, whether all memory is taken
// at the start or as it is written.
TEST(Allocation, BeamsInACacheAllocateNothingInSteadyState) {
  for (const bool commit : {false, true}) {
    for (const TinyShape& shape : AllocationShapes()) {
      const auto model = OpenTiny(shape);
      SessionOptions options;
      options.threads = 1;
      options.sequences = 8;
      options.kv_commit = commit;
      auto runner = Runner::Create(model, options);
      ASSERT_TRUE(runner.ok()) << runner.error().message;
      BeamGenerateOptions generate;
      generate.search.beams = 4;
      generate.search.max_new_tokens = 200;
      const uint64_t copied = (*runner)->stats().kv_bytes_copied;
      int64_t steady = 0;
      generate.on_step = [&](size_t request, const BeamSearch& search) {
        if (request == 0 && search.generated() == 20) steady = allocation_count.load();
        if (request == 1 && search.generated() == 199) steady = allocation_count.load() - steady;
        return BeamStep::kGoOn;
      };
      const std::vector<std::vector<TokenId>> prompts = {RandomTokens(45, 1), RandomTokens(7, 2)};
      const auto found = GenerateBeams(**runner, prompts, generate);
      ASSERT_TRUE(found.ok()) << found.error().message;
      EXPECT_EQ((*found)[1].steps, 200);
      EXPECT_GT((*runner)->stats().kv_bytes_copied, copied);
      EXPECT_EQ(steady, 0) << shape.arch << " window " << shape.window << " commit " << commit;
    }
  }
}

}  // namespace
}  // namespace kvant::test
