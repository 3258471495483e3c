// Attention to the positions that an indexer chooses: against a reference in double precision,
// below and above the number of positions that it chooses, with all ways of the cache, and what the
// cache keeps and the plan counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/dispatch.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/plan.h"
#include "engine/graph/work.h"
#include "kvant/memory_plan.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

struct IndexCase {
  const char* name;
  TinyShape shape;
};

void PrintTo(const IndexCase& test, std::ostream* out) { *out << test.name; }

std::vector<IndexCase> IndexCases() {
  const auto heads = [](TinyShape shape, int64_t count, int64_t dim) {
    shape.index.heads = count;
    shape.index.dim = dim;
    return shape;
  };
  TinyShape expanded = IndexedShape(70);
  expanded.dim = 128;
  expanded.head_dim = 40;
  expanded.latent = {.latent = 64, .v_dim = 24, .q_rank = 20};
  return {{"eight", IndexedShape(8)},
          {"one_of_one_head", heads(IndexedShape(1), 1, 8)},
          {"many_heads", heads(IndexedShape(33), 21, 24)},
          {"expanded_before", expanded},
          {"blocks", BlockShape(2)},
          {"one_block", BlockShape(1)},
          {"blocks_of_one_head", heads(BlockShape(3), 1, 32)}};
}

class Indexers : public testing::TestWithParam<IndexCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Indexers, testing::ValuesIn(IndexCases()),
                         [](const auto& test) { return std::string(test.param.name); });

SessionOptions Exact(int64_t chunk, int threads = 2) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.chunk = chunk;
  options.threads = threads;
  return options;
}

double LargestDifference(std::span<const float> found, const Vector& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  return largest;
}

TEST_P(Indexers, AgreeWithTheReferenceOnEveryInstructionSet) {
  const std::vector<TokenId> tokens = RandomTokens(150, 5);
  Vector expected;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = OpenTiny(GetParam().shape, options);
    ASSERT_NE(model, nullptr);
    if (expected.empty()) expected = ReferenceForward(model->file()).Logits(tokens);
    for (const int64_t chunk : {1, 50, 150}) {
      const auto session = OpenSession(model, Exact(chunk));
      const std::vector<float> logits = AllLogits(*session, tokens, tokens.size());
      EXPECT_LT(LargestDifference(logits, expected), 1e-4) << isa.name << ", " << chunk;
    }
    SessionOptions uncached = Exact(150);
    uncached.kv_cache = false;
    const std::vector<float> logits =
        AllLogits(*OpenSession(model, uncached), tokens, tokens.size());
    EXPECT_LT(LargestDifference(logits, expected), 1e-4) << isa.name << ", without a cache";
  }
}

// An indexer that chooses all positions changes no bit of a model without one.
TEST(IndexerBits, AreThoseOfDeepSeek2WhereAllIsSeen) {
  TinyShape shape = IndexedShape(600);
  shape.epsilon = 1e-6f;  // the one that norms of latents always have beside an indexer
  const std::vector<TokenId> tokens = RandomTokens(300, 6);
  const auto indexed = OpenTiny(shape, OwnGemm());
  // With the tensors in the same file, which the other architecture does not read.
  ModelOptions options = OwnGemm();
  options.ignored_keys = {"deepseek2.attention.indexer.top_k",
                          "deepseek2.attention.indexer.head_count",
                          "deepseek2.attention.indexer.key_length"};
  shape.arch = "deepseek2";
  const auto plain = OpenTiny(shape, options);
  ASSERT_TRUE(indexed != nullptr && plain != nullptr);
  for (const int64_t chunk : {1, 63, 300}) {
    const auto logits = [&](const std::shared_ptr<const Model>& model) {
      return AllLogits(*OpenSession(model, Exact(chunk)), tokens, tokens.size());
    };
    EXPECT_EQ(MaxDifference(logits(indexed), logits(plain)), 0.0) << chunk;
  }
}

TEST_P(Indexers, DoNotDependOnThreadsOrPieces) {
  const auto model = OpenTiny(GetParam().shape, OwnGemm());
  const std::vector<TokenId> tokens = RandomTokens(400, 7);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    SessionOptions options = Exact(63, 1);
    options.k_type = options.v_type = type;
    const std::vector<float> expected =
        AllLogits(*OpenSession(model, options), tokens, tokens.size());
    for (const int threads : {2, 5, 16}) {
      for (const size_t piece : {size_t{1}, size_t{3}, size_t{40}}) {
        if (piece == 1 && threads != 5) continue;
        options.threads = threads;
        EXPECT_EQ(MaxDifference(AllLogits(*OpenSession(model, options), tokens, piece), expected),
                  0.0)
            << threads << ", " << piece;
      }
    }
  }
}

// Tokens that were taken out are neither chosen nor seen.
TEST_P(Indexers, LeaveOutPrunedPositions) {
  TinyShape shape = GetParam().shape;
  shape.layers = 1;  // whose rows depend on nothing before them
  const auto model = OpenTiny(shape, OwnGemm());
  const std::vector<TokenId> tokens = RandomTokens(300, 4);
  for (const PrunePositions positions : {PrunePositions::kKept, PrunePositions::kMoved}) {
    SessionOptions options = Exact(512);
    options.kv_poison = true;
    const auto pruned = OpenSession(model, options);
    ExpectOk(pruned->Append(tokens));
    ExpectOk(pruned->Prune(32, 76, positions));
    std::vector<TokenId> kept(tokens.begin(), tokens.begin() + 32);
    kept.insert(kept.end(), tokens.end() - 76, tokens.end());
    const auto shorter = OpenSession(model, options);
    ExpectOk(shorter->Append(kept));
    const std::vector<TokenId> next = {7, 8};
    ExpectOk(pruned->Append(next));
    ExpectOk(shorter->Append(next));
    // Positions that stay where they are keep their distances to the first ones, and blocks their
    // borders; so only moved ones are compared.
    if (positions == PrunePositions::kMoved && shape.index.block == 0) {
      EXPECT_LE(MaxDifference(pruned->logits(), shorter->logits()), 1e-4);
    }
    for (const float logit : pruned->logits()) ASSERT_TRUE(std::isfinite(logit));
  }
}

// ---- The cache ----------------------------------------------------------------------------------

TEST(IndexerCache, IsAGroupOfItsOwn) {
  const TinyShape shape = IndexedShape(8);
  const auto model = OpenTiny(shape);
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF16;
  const auto plan = PlanMemory(*model, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->groups.size(), 2u);
  EXPECT_EQ(plan->groups[1].kv_heads, 1);
  EXPECT_EQ(plan->groups[1].bytes_per_token,
            static_cast<uint64_t>(2 * shape.index.dim * shape.layers));
}

TEST(IndexerCache, IsInSessionFiles) {
  for (const TinyShape& shape : {IndexedShape(8), BlockShape(2)}) {
    const auto model = OpenTiny(shape, OwnGemm());
    const std::vector<TokenId> tokens = RandomTokens(120, 8);
    const std::string path = TempPath("indexed.kvs");
    const auto first = OpenSession(model, Exact(64));
    ExpectOk(first->Append(tokens));
    ExpectOk(first->Save(path));
    const auto second = OpenSession(model, Exact(64));
    ExpectOk(second->Load(path));
    std::filesystem::remove(path);
    const std::vector<TokenId> next = {9, 10, 11};
    ExpectOk(first->Append(next));
    ExpectOk(second->Append(next));
    EXPECT_EQ(MaxDifference(first->logits(), second->logits()), 0.0);
  }
}

// ---- Work ---------------------------------------------------------------------------------------

// Beyond the number of positions that are chosen, a token reads the indexer's keys and no more of
// the latents.
TEST(IndexerWork, GrowsWithTheKeysAlone) {
  const TinyShape shape = IndexedShape(32);
  const auto model = OpenTiny(shape);
  const auto bytes = [&](int64_t end) {
    graph::PassShape pass;
    pass.rows.Set(graph::RowSpace::kPass, 1);
    const graph::PassShape::Part part = {.rows = 1, .end = end};
    pass.parts = {&part, 1};
    pass.cache = graph::PassShape::CacheTypes{KvType::kF16, KvType::kF16};
    return model->plan().WorkOf(pass).cache_bytes;
  };
  const int64_t numbers = shape.latent.latent + shape.latent.rope;
  EXPECT_EQ(bytes(32) - bytes(31), static_cast<double>(2 * shape.layers * numbers));
  EXPECT_EQ(bytes(501) - bytes(500), static_cast<double>(2 * shape.layers * shape.index.dim));
}

// ---- Files that cannot be ----------------------------------------------------------------------

TEST(IndexerFiles, AreRefusedWhereTheyContradictThemselves) {
  const auto message = [](const TinyShape& shape) {
    const std::string path = TempPath("tiny.gguf");
    TinyModelWriter(shape).Write(path);
    const auto model = Model::Open(path);
    std::filesystem::remove(path);
    return model.ok() ? std::string("opened") : model.error().message;
  };
  TinyShape shape = IndexedShape(8);
  shape.index.dim = 4;
  EXPECT_THAT(message(shape),
              testing::HasSubstr("attention.indexer.key_length: expected at least 8"));
  shape = IndexedShape(8);
  shape.latent.q_rank = 0;
  EXPECT_THAT(message(shape), testing::HasSubstr("q_lora_rank"));
  shape = BlockShape(2);
  shape.index.block = 24;
  EXPECT_THAT(message(shape),
              testing::HasSubstr("block_size: expected a multiple of 16, found 24"));
  shape = BlockShape(2);
  shape.index.heads = 3;
  EXPECT_THAT(message(shape), testing::HasSubstr("head_count: expected a divisor of 2 kv heads"));
}

}  // namespace
}  // namespace kvant::test
