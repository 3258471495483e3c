// Latent attention: its two forms against a double-precision reference and against each other, the
// bits that do not depend on company, both layouts of a file's matrices, what the cache keeps, and
// files that contradict themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/evaluate/importance.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/plan.h"
#include "kvant/memory_plan.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using graph::FormOf;
using graph::LatentForm;

// Long passes are expanded: a head's keys and values are smaller than a latent.
TinyShape ExpandedShape(const std::string& type = "F32") {
  TinyShape shape = LatentShape();
  shape.dim = 128;
  shape.head_dim = 40;
  shape.latent = {.latent = 64, .v_dim = 24};
  shape.type = type;
  shape.context = 1300;
  return shape;
}

graph::LatentShape Sizes(const TinyShape& shape) {
  return {shape.heads, shape.head_dim - shape.latent.rope, shape.latent.rope, shape.latent.latent,
          shape.latent.v_dim};
}

ModelOptions Panels() {
  ModelOptions options;
  options.float_gemm = "panels";
  return options;
}

SessionOptions Cached(KvType type, int64_t chunk, int threads = 2) {
  SessionOptions options;
  options.k_type = options.v_type = type;
  options.chunk = chunk;
  options.threads = threads;
  return options;
}

std::vector<float> LogitsOf(const std::shared_ptr<const Model>& model,
                            const SessionOptions& options, std::span<const TokenId> tokens) {
  return AllLogits(*OpenSession(model, options), tokens, tokens.size());
}

// ---- Forms --------------------------------------------------------------------------------------

TEST(LatentForms, FewTokensAreAbsorbedAtAnyLength) {
  const graph::LatentShape lite = {16, 128, 64, 512, 128};  // DeepSeek-V2-Lite
  for (const int64_t end : {int64_t{63}, int64_t{4096}, int64_t{1} << 20}) {
    EXPECT_EQ(FormOf(lite, 1, end), LatentForm::kAbsorbed) << end;
    EXPECT_EQ(FormOf(lite, 63, end), LatentForm::kAbsorbed) << end;
  }
  // A prompt from the start, and a short piece behind a long text, for which all of it would be
  // multiplied again.
  EXPECT_EQ(FormOf(lite, 64, 64), LatentForm::kExpanded);
  EXPECT_EQ(FormOf(lite, 512, 4096), LatentForm::kExpanded);
  EXPECT_EQ(FormOf(lite, 64, 4096), LatentForm::kAbsorbed);
}

TEST(LatentForms, TheFormWithFewerMultiplicationsIsChosen) {
  std::mt19937 random(5);
  const auto number = [&](int64_t most) {
    return 1 + static_cast<int64_t>(random() % static_cast<uint32_t>(most));
  };
  int expanded = 0;
  for (int i = 0; i < 500; ++i) {
    const graph::LatentShape shape = {number(8), number(64), 2 * number(32), number(128),
                                      number(64)};
    const int64_t rows = 63 + number(200);
    const int64_t end = rows + number(900);
    double absorbed_macs = 0;
    double expanded_macs = 0;
    const double matrices = static_cast<double>(shape.latent * (shape.nope + shape.v_dim));
    for (int64_t position = 0; position < end; ++position) {
      const bool is_row = position >= end - rows;
      const auto seen = static_cast<double>(position + 1);
      expanded_macs += matrices;
      if (!is_row) continue;
      absorbed_macs += matrices + seen * static_cast<double>(2 * shape.latent + shape.rope);
      expanded_macs += seen * static_cast<double>(shape.nope + shape.rope + shape.v_dim);
    }
    const LatentForm form = FormOf(shape, rows, end);
    expanded += form == LatentForm::kExpanded ? 1 : 0;
    EXPECT_EQ(form == LatentForm::kExpanded, expanded_macs < absorbed_macs) << i;
  }
  EXPECT_GT(expanded, 50);
  EXPECT_LT(expanded, 450);
}

struct LatentCase {
  const char* name;
  TinyLatent latent;
  int64_t heads = 4;
  int64_t head_dim = 24;
};

void PrintTo(const LatentCase& test, std::ostream* out) { *out << test.name; }

class LatentReference : public testing::TestWithParam<LatentCase> {};

INSTANTIATE_TEST_SUITE_P(
    Cases, LatentReference,
    testing::Values(LatentCase{"one_step", {.latent = 32}},
                    LatentCase{"two_steps", {.latent = 32, .q_rank = 20}},
                    LatentCase{"together", {.latent = 32, .together = true}},
                    LatentCase{"both", {.latent = 32, .both = true}},
                    LatentCase{"odd", {.latent = 37, .rope = 6, .v_dim = 5, .q_rank = 7}, 7, 13},
                    LatentCase{"one_head", {.latent = 24, .v_dim = 20}, 1},
                    LatentCase{"small_latent", {.latent = 9, .v_dim = 30}, 4, 30},
                    LatentCase{"many_heads", {.latent = 20, .rope = 2, .v_dim = 4}, 71, 6}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(LatentReference, BothFormsAgreeWithTheReference) {
  TinyShape shape = LatentShape();
  shape.latent = GetParam().latent;
  shape.heads = GetParam().heads;
  shape.head_dim = GetParam().head_dim;
  const auto model = OpenTiny(shape);
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = RandomTokens(150, 5);
  const Vector expected = ReferenceForward(model->file()).Logits(tokens);
  for (const int64_t chunk : {1, 50, 70, 150}) {
    const std::vector<float> logits = LogitsOf(model, Cached(KvType::kF32, chunk), tokens);
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    EXPECT_LT(largest, 1e-4) << chunk;  // as in session_test.cpp
  }
}

// Random shapes, over more than a span, in all formats of the cache. Other products have one
// arithmetic here, so both forms read equal values in the cache and differ by roundings of floats
// only. But queries meet q8 rows as codes in one form alone.
TEST(LatentForms, AgreeOverManyShapes) {
  std::mt19937 random(8);
  for (int i = 0; i < 24; ++i) {
    TinyShape shape = ExpandedShape();
    shape.layers = 1;
    shape.seed = static_cast<uint32_t>(i);
    shape.heads = 1 + static_cast<int64_t>(random() % 9);
    shape.latent.rope = 2 * (1 + static_cast<int64_t>(random() % 12));
    shape.latent.v_dim = 1 + static_cast<int64_t>(random() % 40);
    shape.head_dim = shape.latent.rope + 1 + static_cast<int64_t>(random() % 40);
    shape.latent.latent = 40 + static_cast<int64_t>(random() % 60);
    shape.latent.together = random() % 2 == 0;
    const auto model = OpenTiny(shape, OwnGemm());
    ASSERT_NE(model, nullptr);
    const int64_t count = 64 + static_cast<int64_t>(random() % 700);
    ASSERT_EQ(FormOf(Sizes(shape), count, count), LatentForm::kExpanded);
    const std::vector<TokenId> tokens = RandomTokens(count, static_cast<uint32_t>(i));
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
      const std::vector<float> absorbed = LogitsOf(model, Cached(type, 63), tokens);
      const std::vector<float> expanded = LogitsOf(model, Cached(type, count), tokens);
      const double tolerance = type == KvType::kQ8 ? 0.3 : 1e-4;
      EXPECT_LE(MaxDifference(absorbed, expanded), tolerance)
          << "shape " << i << ", " << count << " tokens, type " << static_cast<int>(type);
    }
  }
}

// Matrices of blocks: their transpose is F16, and the forms quantize other activations.
TEST(LatentForms, AgreeForQuantizedMatrices) {
  for (const char* type : {"F16", "BF16", "Q8_0", "Q4_0"}) {
    for (const bool together : {false, true}) {
      TinyShape shape = ExpandedShape(type);
      shape.head_dim = 40;  // 32 that are not rotated
      shape.latent.together = together;
      const auto model = OpenTiny(shape);
      ASSERT_NE(model, nullptr);
      const std::vector<TokenId> tokens = RandomTokens(300, 7);
      const std::vector<float> absorbed = LogitsOf(model, Cached(KvType::kF32, 63), tokens);
      const std::vector<float> expanded = LogitsOf(model, Cached(KvType::kF32, 300), tokens);
      const bool plain = type[0] != 'Q';
      EXPECT_LE(MaxDifference(absorbed, expanded), plain ? 1e-3 : 0.5) << type << together;
    }
  }
}

// ---- Bits ---------------------------------------------------------------------------------------

class LatentBits : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Formats, LatentBits,
                         testing::Values("Q4_0", "Q8_0", "F16", "BF16", "F32"));

TEST_P(LatentBits, ATokenAloneAndInAChunkAreEqual) {
  const auto model = OpenTiny(ExpandedShape(GetParam()), Panels());
  const std::vector<TokenId> tokens = RandomTokens(60, 3);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    std::vector<float> expected;
    for (const int64_t chunk : {1, 7, 60}) {
      for (const int threads : {1, 3}) {
        const std::vector<float> logits = LogitsOf(model, Cached(type, chunk, threads), tokens);
        if (expected.empty()) expected = logits;
        EXPECT_EQ(MaxDifference(logits, expected), 0.0) << chunk << ", threads " << threads;
      }
    }
  }
}

TEST_P(LatentBits, OfAnExpandedPassDoNotDependOnThreads) {
  const auto model = OpenTiny(ExpandedShape(GetParam()), Panels());
  const std::vector<TokenId> tokens = RandomTokens(700, 3);
  for (const KvType type : {KvType::kF16, KvType::kQ8}) {
    const std::vector<float> expected = LogitsOf(model, Cached(type, 200, 1), tokens);
    for (const int threads : {2, 5, 16}) {
      EXPECT_EQ(MaxDifference(LogitsOf(model, Cached(type, 200, threads), tokens), expected), 0.0)
          << threads;
    }
  }
}

TEST_P(LatentBits, ASequenceAloneAndBesideOthersAreEqual) {
  const auto model = OpenTiny(ExpandedShape(GetParam()), Panels());
  for (const size_t count : {size_t{20}, size_t{90}}) {
    const std::vector<TokenId> tokens = RandomTokens(count, 3);
    const std::vector<TokenId> other = RandomTokens(count, 4);
    const std::vector<float> alone = LogitsAlone(model, KvType::kQ8, tokens);
    const auto runner = OpenRunner(model, Options(KvType::kQ8, 3));
    const SequenceId first = NewSequence(*runner);
    const SequenceId second = NewSequence(*runner);
    const SequenceId third = NewSequence(*runner);
    const StepInput inputs[] = {{first, other}, {second, tokens}, {third, {other.data(), 3}}};
    ExpectOk(runner->Step(inputs));
    EXPECT_EQ(MaxDifference(runner->logits(second), alone), 0.0) << count;
  }
}

// The numbers of a transpose are those of the matrix, in formats without blocks.
TEST(LatentFiles, BothLayoutsGiveTheSameBits) {
  for (const char* type : {"F32", "F16", "BF16"}) {
    std::vector<float> expected;
    for (const bool together : {false, true}) {
      for (const bool both : {false, true}) {
        TinyShape shape = ExpandedShape(type);
        shape.latent.together = together && !both;
        shape.latent.both = both;
        const auto model = OpenTiny(shape);
        const std::vector<TokenId> tokens = RandomTokens(200, 4);
        const std::vector<float> logits = LogitsOf(model, Cached(KvType::kF32, 130), tokens);
        if (expected.empty()) expected = logits;
        EXPECT_EQ(MaxDifference(logits, expected), 0.0) << type << together << both;
      }
    }
  }
}

// ---- The cache ----------------------------------------------------------------------------------

TEST(LatentCache, KeepsOneRowOfAPosition) {
  const TinyShape shape = ExpandedShape();
  const auto model = OpenTiny(shape);
  const auto plan = PlanMemory(*model, Cached(KvType::kF16, 512));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->groups.size(), 1u);
  EXPECT_EQ(plan->groups[0].kv_heads, 1);
  const int64_t numbers = shape.latent.latent + shape.latent.rope;
  EXPECT_EQ(plan->groups[0].bytes_per_token, static_cast<uint64_t>(2 * numbers * shape.layers));
}

// A matrix that is made when the file is opened counts among the weights.
TEST(LatentCache, MemoryForTransposesIsPlanned) {
  TinyShape shape = ExpandedShape();
  const auto weights = [&shape](bool both) {
    shape.latent.both = both;
    const auto model = OpenTiny(shape);
    uint64_t file = 0;
    for (const formats::GgufTensor& tensor : model->file().tensors()) file += tensor.size_bytes;
    return PlanMemory(*model, Cached(KvType::kF16, 512))->weights - file;
  };
  EXPECT_EQ(weights(true), 0u);
  const auto nope = static_cast<uint64_t>(shape.head_dim - shape.latent.rope);
  EXPECT_EQ(weights(false), static_cast<uint64_t>(shape.layers * shape.heads) * 4 * nope *
                                static_cast<uint64_t>(shape.latent.latent));
}

// Positions that were taken out of the cache, or only hidden, in both forms.
TEST(LatentCache, PrunedPositionsAreNotSeen) {
  const auto model = OpenTiny(ExpandedShape());
  for (const KvType type : {KvType::kF32, KvType::kQ8}) {
    const std::vector<TokenId> tokens = RandomTokens(700, 4);
    const std::vector<TokenId> more = RandomTokens(120, 5);
    std::vector<float> logits[2];
    for (const int64_t chunk : {63, 512}) {
      SessionOptions options = Cached(type, chunk);
      options.kv_poison = true;
      const auto session = OpenSession(model, options);
      ExpectOk(session->Append(tokens));
      ExpectOk(session->Prune(10, 130, PrunePositions::kKept));
      ExpectOk(session->Append(more));
      logits[chunk > 63 ? 1 : 0].assign(session->logits().begin(), session->logits().end());
    }
    EXPECT_LE(MaxDifference(logits[0], logits[1]), type == KvType::kQ8 ? 0.15 : 1e-4);
  }
}

// Rotated parts of rows turn back by the distance that they move.
TEST(LatentCache, MovedPositionsAreThoseOfAShorterText) {
  TinyShape shape = ExpandedShape();
  shape.layers = 1;  // whose rows depend on nothing before them
  const auto model = OpenTiny(shape);
  const std::vector<TokenId> tokens = RandomTokens(300, 4);
  const auto pruned = OpenSession(model, Cached(KvType::kF32, 512));
  ExpectOk(pruned->Append(tokens));
  ExpectOk(pruned->Prune(20, 100, PrunePositions::kMoved));
  std::vector<TokenId> kept(tokens.begin(), tokens.begin() + 20);
  kept.insert(kept.end(), tokens.end() - 100, tokens.end());
  const auto shorter = OpenSession(model, Cached(KvType::kF32, 512));
  ExpectOk(shorter->Append(kept));
  const std::vector<TokenId> next = {7, 8};
  ExpectOk(pruned->Append(next));
  ExpectOk(shorter->Append(next));
  EXPECT_LE(MaxDifference(pruned->logits(), shorter->logits()), 1e-4);
}

// ---- Work ---------------------------------------------------------------------------------------

TEST(LatentWork, IsThatOfTheForm) {
  TinyShape shape = ExpandedShape();
  shape.layers = 1;
  shape.latent.both = true;
  const auto model = OpenTiny(shape);
  const graph::LatentShape sizes = Sizes(shape);
  const auto work = [&model](int64_t rows, int64_t end) {
    const graph::PassShape::Part part = {rows, end};
    return model->plan().WorkOf(
        {.rows = {}, .parts = {&part, 1}, .cache = {{KvType::kF32, KvType::kF32}}});
  };
  const auto heads = static_cast<double>(sizes.heads);
  const auto matrices = static_cast<double>(sizes.latent * (sizes.nope + sizes.v_dim));
  const graph::Work one = work(1, 500);
  EXPECT_EQ(one.float_macs,
            heads * (matrices + 500 * static_cast<double>(2 * sizes.latent + sizes.rope)));
  EXPECT_EQ(one.weight_bytes, 4 * heads * matrices);
  EXPECT_EQ(one.cache_bytes, 4 * 500 * static_cast<double>(sizes.latent + sizes.rope));
  ASSERT_EQ(FormOf(sizes, 100, 100), LatentForm::kExpanded);
  EXPECT_EQ(
      work(100, 100).float_macs,
      heads * (100 * matrices + 5050 * static_cast<double>(sizes.nope + sizes.rope + sizes.v_dim)));
}

// ---- Importances --------------------------------------------------------------------------------

// Importances come from the values that each head's matrices are multiplied with; where keys and
// values have one matrix, from the latents.
TEST(LatentImportances, AreThoseOfEachHead) {
  for (const bool together : {false, true}) {
    TinyShape shape = ExpandedShape();
    shape.latent.together = together;
    evaluate::ImportanceCollector collector(evaluate::OutputMatrix::kSkipped);
    ModelOptions options;
    options.observer = &collector;
    const auto model = OpenTiny(shape, options);
    ASSERT_NE(model, nullptr);
    const std::vector<TokenId> tokens = RandomTokens(90, 3);
    ExpectOk(OpenSession(model, Cached(KvType::kF32, 70))->Append(tokens));
    const auto imatrix = collector.Take();
    ASSERT_TRUE(imatrix.ok()) << imatrix.error().message;
    ReferenceForward reference(model->file());
    reference.Logits(tokens);
    const auto expect = [&](const std::string& name, size_t matrices) {
      const auto entry = imatrix->entries.find(name);
      ASSERT_NE(entry, imatrix->entries.end()) << name;
      ASSERT_EQ(entry->second.counts.size(), matrices);
      for (const int64_t count : entry->second.counts) EXPECT_EQ(count, 90);
      const Vector& expected = reference.input_squares().at(name);
      ASSERT_EQ(entry->second.sums.size(), expected.size()) << name;
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(entry->second.sums[i], expected[i], 1e-2 * expected[i] + 1e-4) << name << i;
      }
    };
    if (together) {
      expect("blk.1.attn_kv_b.weight", 1);
    } else {
      expect("blk.1.attn_k_b.weight", 4);
      expect("blk.1.attn_v_b.weight", 4);
    }
  }
}

// ---- Files that contradict themselves -----------------------------------------------------------

std::string MessageOfLatent(const TinyShape& shape) {
  const std::string path = TempPath("wrong.gguf");
  TinyModelWriter(shape).Write(path);
  const auto model = Model::Open(path);
  std::filesystem::remove(path);
  return model.ok() ? "accepted" : model.error().message;
}

struct WrongLatentKey {
  const char* key;
  uint32_t value;
  const char* expected;
};

void PrintTo(const WrongLatentKey& test, std::ostream* out) { *out << test.key << test.value; }

class WrongLatents : public testing::TestWithParam<WrongLatentKey> {};

INSTANTIATE_TEST_SUITE_P(
    Keys, WrongLatents,
    testing::Values(
        WrongLatentKey{"attention.kv_lora_rank", 0, "deepseek2.attention.kv_lora_rank is missing"},
        WrongLatentKey{"attention.kv_lora_rank", 5000, "kv_lora_rank: expected 1 to 4096"},
        WrongLatentKey{"attention.kv_lora_rank", 15,
                       "attn_k_b.weight: expected [16 x 15 x 4], found [16 x 16 x 4]"},
        WrongLatentKey{"attention.key_length_mla", 8,
                       "key_length_mla: expected more than the 8 rotated dimensions, found 8"},
        WrongLatentKey{"attention.key_length_mla", 4294967295u, "key_length_mla: expected 1 to"},
        WrongLatentKey{"attention.value_length_mla", 31, "attn_v_b.weight: expected [16 x 31 x 4]"},
        WrongLatentKey{"rope.dimension_count", 0, "deepseek2.rope.dimension_count is missing"},
        WrongLatentKey{"rope.dimension_count", 7, "rope.dimension_count: expected an even number"},
        WrongLatentKey{"attention.q_lora_rank", 10, "blk.0.attn_q_a.weight is missing"}));

TEST_P(WrongLatents, AreRefusedByTheKey) {
  TinyShape shape = LatentShape();
  ASSERT_EQ(MessageOfLatent(shape), "accepted");
  shape.extra[GetParam().key] = GetParam().value;
  EXPECT_THAT(MessageOfLatent(shape), testing::HasSubstr(GetParam().expected));
}

}  // namespace
}  // namespace kvant::test
