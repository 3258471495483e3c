// Checks of the KV cache on whole models that are stated for any engine: what is computed and
// stored at which step, how much memory it takes, and what can be seen of it.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/kv/kv_cache.h"
#include "engine/run/memory_plan.h"
#include "kvant/kv_type.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

// Keys and values of a position never change once they are stored.
class KvTypes : public testing::TestWithParam<KvType> {};

TEST_P(KvTypes, StoredPositionsStayWhatTheyAre) {
  const auto runner = OpenRunner(OpenTiny(TinyShape(), OwnGemm()), Options(GetParam(), 1));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(60, 1)));
  const auto before = runner->Export({&id, 1}, KvLayout::kBhsd);
  for (const TokenId token : RandomTokens(100, 2)) ExpectOk(runner->Append(id, {&token, 1}));
  const auto after = runner->Export({&id, 1}, KvLayout::kBhsd);
  ASSERT_TRUE(before.ok() && after.ok());
  for (size_t t = 0; t < before->tensors.size(); ++t) {
    const KvTensor& old = before->tensors[t];
    const KvTensor& now = after->tensors[t];
    const size_t dim = static_cast<size_t>(old.shape[3]);
    for (size_t head = 0; head < static_cast<size_t>(old.shape[1]); ++head) {
      ASSERT_TRUE(
          std::equal(old.values.begin() + static_cast<std::ptrdiff_t>(head * 60 * dim),
                     old.values.begin() + static_cast<std::ptrdiff_t>((head + 1) * 60 * dim),
                     now.values.begin() + static_cast<std::ptrdiff_t>(head * 160 * dim)))
          << old.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KvTypes, testing::Values(KvType::kF32, KvType::kF16, KvType::kQ8),
                         [](const auto& test) { return std::string(KvTypeName(test.param)); });

// All rows of logits where they are asked for, and the last of them is the default row.
TEST(KvChecks, TheLastOfAllRowsIsTheDefaultOne) {
  const auto model = OpenTiny(TinyShape(), OwnGemm());
  const std::vector<TokenId> tokens = RandomTokens(130, 4);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 2));
  const SequenceId scored = NewSequence(*runner);
  const SequenceId plain = NewSequence(*runner);
  int64_t rows = 0;
  std::vector<float> last;
  ExpectOk(runner->AppendScoring(scored, tokens, 0, [&](int64_t, int64_t count) {
    rows += count;
    const std::span<const float> row = runner->row(count - 1);
    last.assign(row.begin(), row.end());
    return Status();
  }));
  ExpectOk(runner->Append(plain, tokens));
  EXPECT_EQ(rows, 130);
  EXPECT_EQ(last.size(), static_cast<size_t>(kTinyVocab));
  EXPECT_EQ(MaxDifference(last, runner->logits(plain)), 0.0);
  EXPECT_EQ(MaxDifference(runner->logits(scored), runner->logits(plain)), 0.0);
}

// Tokens computed per step are 4, 1, 1, 1 with a cache and 4, 5, 6, 7 without,
// which takes no memory and gives the same tokens.
TEST(KvChecks, ACacheComputesEveryTokenOnce) {
  const auto model = OpenTiny(TinyShape(), OwnGemm());
  SessionOptions options = Options(KvType::kF32, 1);
  const auto cached = OpenRunner(model, options);
  options.kv_cache = false;
  const auto uncached = OpenRunner(model, options);
  std::vector<std::vector<uint64_t>> steps;
  std::vector<std::vector<TokenId>> texts;
  for (Runner* runner : {cached.get(), uncached.get()}) {
    const SequenceId id = NewSequence(*runner);
    std::vector<TokenId> next = RandomTokens(4, 9);
    steps.emplace_back();
    for (int i = 0; i < 4; ++i) {
      const uint64_t before = runner->stats().tokens_processed;
      ExpectOk(runner->Append(id, next));
      steps.back().push_back(runner->stats().tokens_processed - before);
      const std::span<const float> logits = runner->logits(id);
      next = {
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
    }
    texts.emplace_back(runner->tokens(id).begin(), runner->tokens(id).end());
  }
  EXPECT_EQ(steps[0], (std::vector<uint64_t>{4, 1, 1, 1}));
  EXPECT_EQ(steps[1], (std::vector<uint64_t>{4, 5, 6, 7}));
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(uncached->stats().kv_bytes_committed, 0u);
  EXPECT_EQ(uncached->stats().kv_bytes_capacity, 0u);
}

// Every layer has a cache of its own, and each matters.
TEST(KvChecks, EveryLayerHasItsOwnCache) {
  TinyShape shape;
  shape.layers = 4;
  const auto runner = OpenRunner(OpenTiny(shape, OwnGemm()), Options(KvType::kF32, 3));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(50, 1)));
  const auto tensors = runner->Export({&id, 1}, KvLayout::kBhsd);
  ASSERT_TRUE(tensors.ok());
  ASSERT_EQ(tensors->tensors.size(), 8u);
  const TokenId next = 7;
  const auto continued = [&](const KvTensors& from) {
    const auto imported = runner->Import(from, KvLayout::kBhsd);
    EXPECT_TRUE(imported.ok());
    ExpectOk(runner->Append(imported->front(), {&next, 1}));
    const std::span<const float> logits = runner->logits(imported->front());
    std::vector<float> copy(logits.begin(), logits.end());
    ExpectOk(runner->FreeSequence(imported->front()));
    return copy;
  };
  const std::vector<float> whole = continued(*tensors);
  for (size_t t = 0; t < tensors->tensors.size(); ++t) {
    KvTensors without = *tensors;
    std::fill(without.tensors[t].values.begin(), without.tensors[t].values.end(), 0.0f);
    EXPECT_GT(MaxDifference(continued(without), whole), 1e-3) << without.tensors[t].name;
  }
}

kv::CacheOptions Llama2(KvType type, int64_t context) {
  kv::CacheOptions options;
  kv::GroupShape group{0, 32, 128, 128, type, type, {}};
  for (int layer = 0; layer < 32; ++layer) group.layers.push_back(layer);
  options.groups = {group};
  options.context = context;
  options.chunk = 512;
  return options;
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Half a GiB for 1024 positions of Llama 2 7B in f16, and so on in proportion.
TEST(KvChecks, MemoryIsProportionalToTheContext) {
  for (int64_t k = 1; k <= 32; k *= 2) {
    EXPECT_EQ(kv::Cache::BytesNeeded(Llama2(KvType::kF16, k * 1024)),
              static_cast<uint64_t>(k) * kGiB / 2);
  }
}

// 24 GiB less 4 GiB of weights hold 20 sequences of 2048 positions; with a fifth kept for
// buffers 16.
TEST(KvChecks, TheLargestBatchIsKnown) {
  const kv::CacheOptions one = Llama2(KvType::kF16, 2048);
  EXPECT_EQ(FitMemory(one, 20 * kGiB).sequences, 20);
  EXPECT_EQ(FitMemory(one, 20 * kGiB * 8 / 10).sequences, 16);
  EXPECT_EQ(FitMemory(one, 20 * kGiB - 1).sequences, 19);
  EXPECT_EQ(FitMemory(Llama2(KvType::kF16, 1 << 20), 20 * kGiB).context, 20 * 2048);
  kv::CacheOptions eight = Llama2(KvType::kF16, 1 << 20);
  eight.sequences = 8;
  EXPECT_EQ(FitMemory(eight, 20 * kGiB).context, 20 * 2048 / 8);
}

// The memory that a step needs is known before the step begins.
TEST(KvChecks, AStepThatDoesNotFitIsRefusedBeforeItBegins) {
  SessionOptions options = Options(KvType::kF32, 4);
  options.chunk = 32;
  const uint64_t row_bytes = 2 * 2 * 2 * 16 * sizeof(float);
  options.kv_bytes_max = 6 * 32 * row_bytes;  // six blocks
  const auto runner = OpenRunner(OpenTiny(TinyShape(), OwnGemm()), options);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(NewSequence(*runner));
  const std::vector<TokenId> tokens = RandomTokens(64, 1);
  std::vector<StepInput> inputs;
  for (const SequenceId id : ids) inputs.push_back({id, tokens});
  const Status refused = runner->Step(inputs);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.error().message,
            "KV cache: 131072 bytes are needed for 64 more tokens of 4 sequences, 98304 of 98304 "
            "are free; 3 of the sequences, or 32 tokens of each, would fit");
  EXPECT_EQ(runner->stats().tokens_processed, 0u);
  EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  ExpectOk(runner->Step(std::span(inputs).first(3)));
  EXPECT_EQ(runner->stats().kv_bytes_used, options.kv_bytes_max);
  // Forks take memory only when they are written to.
  ExpectOk(runner->FreeSequence(ids[3]));
  const auto fork = runner->Fork(ids[0]);
  ASSERT_TRUE(fork.ok());
  EXPECT_EQ(runner->Append(*fork, RandomTokens(1, 2)).error().code, ErrorCode::kOutOfMemory);
  ExpectOk(runner->FreeSequence(ids[2]));
  ExpectOk(runner->Append(*fork, RandomTokens(1, 2)));
}

// A refused step changes nothing, and what the refusal says would fit does fit.
TEST(KvChecks, ARefusalTellsWhatWouldFit) {
  for (const int64_t window : {0, 7, 100}) {
    TinyShape shape;
    shape.window = window;
    shape.context = 4096;
    const auto model = OpenTiny(shape, OwnGemm());
    SessionOptions options = Options(KvType::kF16, 3);
    options.chunk = 48;
    options.threads = 1;
    options.kv_bytes_max = 16 * 32 * (2 * 2 * 2 * 16 * 2);
    const auto runner = OpenRunner(model, options);
    std::vector<SequenceId> ids = {NewSequence(*runner), NewSequence(*runner)};
    std::mt19937 random(static_cast<uint32_t>(window) + 1);
    int refused = 0;
    for (int i = 0; i < 120; ++i) {
      const SequenceId id = ids[random() % 2];
      if (random() % 8 == 0) ExpectOk(runner->Reset(id));
      if (random() % 6 == 0 && runner->length(ids[0]) > 0) {
        ExpectOk(runner->FreeSequence(ids[1]));
        ids[1] = *runner->Fork(ids[0]);
        continue;
      }
      const int64_t length = runner->length(id);
      const Status status = runner->Append(id, RandomTokens(1 + random() % 150, random()));
      if (!status.ok()) {
        ++refused;
        EXPECT_EQ(runner->length(id), length);
        int64_t fits = -1;
        const std::string& message = status.error().message;
        const size_t at = message.find(", or ");
        ASSERT_NE(at, std::string::npos) << message;
        ASSERT_EQ(std::sscanf(message.c_str() + at, ", or %ld tokens", &fits), 1);
        if (fits > 0) {
          const std::vector<TokenId> tokens = RandomTokens(static_cast<size_t>(fits) + 1, 5);
          EXPECT_EQ(runner->Append(id, tokens).error().code, ErrorCode::kOutOfMemory);
          ExpectOk(runner->Append(id, std::span(tokens).first(tokens.size() - 1)));
        }
        EXPECT_LE(runner->stats().kv_bytes_used, options.kv_bytes_max);
      }
    }
    EXPECT_GT(refused, 0) << window;
  }
}

// Memory that is to be taken at the start is looked for before it is taken.
TEST(KvChecks, PreallocationThatDoesNotFitIsRefused) {
  const auto model = OpenTiny(TinyShape(), OwnGemm());
  SessionOptions options = Options(KvType::kF32, 4);
  options.kv_commit = true;
  options.context = int64_t{1} << 30;  // 2 TiB in all
  const auto huge = Runner::Create(model, options);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(huge.error().message.find("2199023255552 bytes are needed for 4 sequences"),
            std::string::npos)
      << huge.error().message;
  options.context = 512;
  options.kv_bytes_max = 2 * 512 * 2 * 2 * 2 * 16 * sizeof(float) + 1;
  const auto budget = Runner::Create(model, options);
  ASSERT_FALSE(budget.ok());
  EXPECT_NE(budget.error().message.find("2 of the sequences, or 256 positions of each, would fit"),
            std::string::npos)
      << budget.error().message;
  options.kv_bytes_max *= 2;
  EXPECT_TRUE(Runner::Create(model, options).ok());
}

// Counters agree with each other after every operation.
TEST(KvChecks, CountersAddUp) {
  TinyShape shape;
  shape.window = 33;
  SessionOptions options = Options(KvType::kQ8, 6);
  options.prefix_cache = true;
  const auto runner = OpenRunner(OpenTiny(shape, OwnGemm()), options);
  uint64_t peak = 0;
  const auto check = [&] {
    const RunnerStats stats = runner->stats();
    uint64_t used = 0;
    for (const KvGroupStats& group : stats.groups) {
      EXPECT_LE(group.blocks_used, group.blocks_committed);
      EXPECT_LE(group.blocks_committed, group.blocks_capacity);
      EXPECT_LE(group.blocks_private + group.blocks_kept, group.blocks_used);
      EXPECT_LE(group.blocks_shared, group.blocks_used);
      EXPECT_GE(group.blocks_private + group.blocks_kept + group.blocks_shared, group.blocks_used);
      used += static_cast<uint64_t>(group.blocks_used) * group.block_bytes;
    }
    EXPECT_EQ(used, stats.kv_bytes_used);
    peak = std::max(peak, used);
    EXPECT_GE(stats.kv_bytes_peak, peak);
    EXPECT_LE(stats.kv_bytes_used, stats.kv_bytes_committed);
  };
  const SequenceId a = NewSequence(*runner);
  ExpectOk(runner->Append(a, RandomTokens(200, 1)));
  check();
  EXPECT_EQ(runner->stats().kv_blocks_copied, 0u);
  const SequenceId b = *runner->Fork(a);
  check();
  ExpectOk(runner->Append(b, RandomTokens(1, 2)));
  check();
  EXPECT_EQ(runner->stats().kv_blocks_copied, runner->stats().groups.size());
  const auto snapshot = runner->TakeSnapshot(b);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(runner->stats().snapshots, 1);
  ExpectOk(runner->Rewind(a, 150));
  ExpectOk(runner->FreeSequence(b));
  check();
  EXPECT_GT(runner->stats().groups[0].blocks_kept, 0);
  EXPECT_EQ(runner->stats().rewinds, 1u);
  EXPECT_EQ(runner->stats().replays, 0u);
  ExpectOk(runner->Append(a, RandomTokens(300, 3)));
  check();
  ExpectOk(runner->Rewind(a, 100));
  EXPECT_EQ(runner->stats().replays, 1u);
  check();
}

// A quarter of the heads takes a quarter of the bytes; and kv head j serves the queries
// j * G ... j * G + G - 1: against the double-precision pass in session_test.cpp.
TEST(KvChecks, FewerKvHeadsTakeFewerBytes) {
  TinyShape all;
  all.heads = all.kv_heads = 4;
  TinyShape one = all;
  one.kv_heads = 1;
  std::vector<uint64_t> bytes;
  for (const TinyShape& shape : {all, one}) {
    const auto runner = OpenRunner(OpenTiny(shape, OwnGemm()), Options(KvType::kF16, 1));
    const SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, RandomTokens(100, 1)));
    bytes.push_back(runner->stats().kv_bytes_used);
  }
  EXPECT_EQ(bytes[0], 4 * bytes[1]);
}

// Memory that is taken at the start is that of the plan, and nothing is taken later.
TEST_P(RunnerKinds, PreallocatedMemoryIsThatOfThePlan) {
  const auto model = OpenModel();
  SessionOptions options = Options(GetParam().type, 2);
  options.kv_commit = true;
  const auto runner = OpenRunner(model, options);
  const auto plan = PlanMemory(*model, options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(runner->stats().kv_bytes_committed, plan->kv);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(300, 1)));
  EXPECT_EQ(runner->stats().kv_bytes_committed, plan->kv);
}

// The last kept token's logits are to be had again, and a failure changes nothing.
TEST_P(RunnerKinds, LogitsComeBackAfterARewind) {
  const auto model = OpenModel();
  const auto runner = OpenRunner(model, Options(GetParam().type, 2));
  const SequenceId id = NewSequence(*runner);
  EXPECT_EQ(runner->ComputeLogits(id).error().code, ErrorCode::kInvalid);
  const std::vector<TokenId> tokens = RandomTokens(97, 1);
  for (const int64_t length : {97, 96, 70, 1}) {
    ExpectOk(runner->Reset(id));
    ExpectOk(runner->Append(id, tokens));
    ExpectOk(runner->Rewind(id, length));
    const SequenceId shared = *runner->Fork(id);
    ExpectOk(runner->ComputeLogits(id));
    EXPECT_EQ(runner->length(id), length);
    const auto alone =
        LogitsAlone(model, GetParam().type, std::span(tokens).first(static_cast<size_t>(length)));
    EXPECT_EQ(MaxDifference(runner->logits(id), alone), 0.0) << length;
    ExpectOk(runner->FreeSequence(shared));
  }
  // A token that was pruned has none, and stays pruned.
  ExpectOk(runner->Reset(id));
  ExpectOk(runner->Append(id, tokens));
  ExpectOk(runner->Prune(id, 40, 0, PrunePositions::kKept));
  const SequenceId beside = *runner->Fork(id);
  EXPECT_EQ(runner->ComputeLogits(id).error().code, ErrorCode::kInvalid);
  const TokenId next = 5;
  for (const SequenceId either : {id, beside}) ExpectOk(runner->Append(either, {&next, 1}));
  EXPECT_EQ(MaxDifference(runner->logits(id), runner->logits(beside)), 0.0);
}

// The two line forms, with the lengths that a prompt of 15 tokens and two more give.
TEST(KvChecks, TheLogTellsShapesAndEvents) {
  TinyShape shape;
  const auto runner = OpenRunner(OpenTiny(shape, OwnGemm()), Options(KvType::kF16, 2));
  std::vector<std::string> lines;
  runner->SetKvLog([&](std::string_view line) { lines.emplace_back(line); });
  EXPECT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "Adding KV cache input: past_key_values.0.key shape=[2,2,0,16]");
  EXPECT_EQ(lines[3], "Adding KV cache input: past_key_values.1.value shape=[2,2,0,16]");
  const SequenceId id = NewSequence(*runner);
  const auto updates = [&] {
    std::vector<std::string> found;
    for (const std::string& line : lines) {
      if (line.starts_with("KV cache update: present.1.value")) found.push_back(line.substr(33));
    }
    lines.clear();
    return found;
  };
  ExpectOk(runner->Append(id, RandomTokens(15, 1)));
  EXPECT_EQ(updates(), std::vector<std::string>{"shape=[1,2,15,16]"});
  ExpectOk(runner->Append(id, RandomTokens(1, 2)));
  EXPECT_EQ(updates(), std::vector<std::string>{"shape=[1,2,16,16]"});
  const SequenceId fork = *runner->Fork(id);
  EXPECT_EQ(lines, std::vector<std::string>{"KV event: fork sequence=0 copy=1"});
  lines.clear();
  const TokenId token = 5;
  const std::vector<StepInput> both = {{id, {&token, 1}}, {fork, {&token, 1}}};
  ExpectOk(runner->Step(both));
  EXPECT_NE(std::ranges::find(lines, "KV event: cow_copy group=0 from=0 to=1"), lines.end());
  EXPECT_EQ(updates(), std::vector<std::string>{"shape=[2,2,17,16]"});
  ExpectOk(runner->Rewind(id, 3));
  EXPECT_EQ(lines, std::vector<std::string>{"KV event: rewind sequence=0 from=17 to=3"});
  lines.clear();
  runner->SetKvLog({});
  ExpectOk(runner->Append(id, RandomTokens(40, 2)));
  EXPECT_TRUE(lines.empty());
}

// The defaults of a session.
TEST(KvChecks, DefaultsAreHalfPrecisionAndWindows) {
  TinyShape shape;
  shape.window = 33;
  const auto runner = OpenRunner(OpenTiny(shape), SessionOptions());
  EXPECT_EQ(runner->options().k_type, KvType::kF16);
  EXPECT_EQ(runner->options().v_type, KvType::kF16);
  EXPECT_FALSE(runner->options().kv_commit);
  EXPECT_TRUE(std::ranges::any_of(runner->stats().groups,
                                  [](const KvGroupStats& group) { return group.window == 33; }));
}

}  // namespace
}  // namespace kvant::test
