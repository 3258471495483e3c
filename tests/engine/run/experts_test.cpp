// Mixtures of experts: what a token gets does not depend on the tokens beside it, routings agree
// with the double-precision reference, importances are those of each expert, the work of a pass
// counts the experts that it uses, and metadata that make no sense are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/evaluate/importance.h"
#include "engine/graph/matmul/expert_nodes.h"
#include "engine/graph/plan.h"
#include "tests/engine/reference/experts.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

TinyShape ExpertShape(const std::string& type = "F32") {
  TinyShape shape;
  shape.dim = 256;  // whole blocks of every format
  shape.head_dim = 64;
  shape.ffn = 256;
  shape.type = type;
  shape.experts = {.count = 6, .used = 2};
  return shape;
}

class ExpertBits : public testing::TestWithParam<const char*> {
 protected:
  // In the arithmetic of panels float matrices have two arithmetics, as the others do.
  static std::shared_ptr<const Model> OpenModel() {
    ModelOptions options;
    options.float_gemm = "panels";
    return OpenTiny(ExpertShape(GetParam()), options);
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, ExpertBits,
                         testing::Values("Q4_K", "Q8_0", "Q4_0", "F16", "BF16", "F32"));

TEST_P(ExpertBits, ATokenAloneAndInAChunkAreEqual) {
  const auto model = OpenModel();
  const std::vector<TokenId> tokens = RandomTokens(50, 3);
  std::vector<float> expected;
  for (const size_t piece : {size_t{1}, size_t{7}, tokens.size()}) {
    for (const int threads : {1, 3}) {
      const auto session =
          OpenSession(model, {.k_type = KvType::kF32, .v_type = KvType::kF32, .threads = threads});
      const std::vector<float> logits = AllLogits(*session, tokens, piece);
      if (expected.empty()) expected = logits;
      EXPECT_EQ(MaxDifference(logits, expected), 0.0) << piece << ", threads " << threads;
    }
  }
}

// Few tokens in a pass, and many.
TEST_P(ExpertBits, ASequenceAloneAndBesideOthersAreEqual) {
  const auto model = OpenModel();
  for (const size_t count : {size_t{20}, size_t{90}}) {
    const std::vector<TokenId> tokens = RandomTokens(count, 3);
    const std::vector<TokenId> other = RandomTokens(count, 4);
    const std::vector<float> alone = LogitsAlone(model, KvType::kF32, tokens);
    const auto runner = OpenRunner(model, Options(KvType::kF32, 3));
    const SequenceId first = NewSequence(*runner);
    const SequenceId second = NewSequence(*runner);
    const SequenceId third = NewSequence(*runner);
    const StepInput inputs[] = {{first, other}, {second, tokens}, {third, {other.data(), 3}}};
    ExpectOk(runner->Step(inputs));
    EXPECT_EQ(MaxDifference(runner->logits(second), alone), 0.0) << count;
  }
}

// ---- Routings -----------------------------------------------------------------------------------

struct RoutingCase {
  const char* name;
  TinyExperts experts;
  std::map<std::string, uint32_t> extra;
  // The family decides how groups are scored: by their best expert, or by their two best.
  std::string arch = "llama";
};

void PrintTo(const RoutingCase& test, std::ostream* out) { *out << test.name; }

class ExpertRouting : public testing::TestWithParam<RoutingCase> {};

INSTANTIATE_TEST_SUITE_P(
    Cases, ExpertRouting,
    testing::Values(RoutingCase{"softmax", {.count = 6, .used = 2}, {}},
                    RoutingCase{"all", {.count = 3, .used = 3}, {}},
                    RoutingCase{"one", {.count = 1, .used = 1}, {}},
                    RoutingCase{"many", {.count = 70, .used = 5}, {}},
                    RoutingCase{"fused", {.count = 6, .used = 2, .fused = true}, {}},
                    RoutingCase{"biased", {.count = 6, .used = 2, .selection_bias = true}, {}},
                    RoutingCase{"with_biases", {.count = 6, .used = 2, .biases = true}, {}},
                    RoutingCase{"fused_with_biases",
                                {.count = 6, .used = 2, .biases = true, .fused = true},
                                {}},
                    RoutingCase{"of_chosen_with_biases",
                                {.count = 8, .used = 3, .biases = true},
                                {{"expert_gating_func", 3}}},
                    RoutingCase{"sigmoid",
                                {.count = 8, .used = 3, .selection_bias = true},
                                {{"expert_gating_func", 2}}},
                    RoutingCase{"of_chosen", {.count = 8, .used = 3}, {{"expert_gating_func", 3}}},
                    RoutingCase{"softplus", {.count = 8, .used = 3}, {{"expert_gating_func", 4}}},
                    RoutingCase{"groups",
                                {.count = 12, .used = 3},
                                {{"expert_group_count", 4}, {"expert_group_used_count", 2}}},
                    RoutingCase{"groups_of_one",
                                {.count = 6, .used = 2},
                                {{"expert_group_count", 6}, {"expert_group_used_count", 3}}},
                    RoutingCase{"groups_by_two",
                                {.count = 16, .used = 4},
                                {{"expert_group_count", 4}, {"expert_group_used_count", 2}},
                                "dots1"},
                    RoutingCase{"groups_by_two_biased",
                                {.count = 12, .used = 3, .selection_bias = true, .biases = true},
                                {{"expert_group_count", 4}, {"expert_group_used_count", 2}},
                                "dots1"},
                    RoutingCase{"groups_of_one_by_two",
                                {.count = 6, .used = 2},
                                {{"expert_group_count", 6}, {"expert_group_used_count", 3}},
                                "dots1"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ExpertRouting, AgreesWithTheReference) {
  TinyShape shape;
  shape.experts = GetParam().experts;
  shape.extra = GetParam().extra;
  shape.arch = GetParam().arch;
  const auto model = OpenTiny(shape);
  ASSERT_NE(model, nullptr);
  // More tokens than a chunk, which is many tokens.
  const std::vector<TokenId> tokens = RandomTokens(100, 5);
  const Vector expected = ReferenceForward(model->file()).Logits(tokens);
  for (const size_t piece : {size_t{1}, tokens.size()}) {
    const auto session =
        OpenSession(model, {.k_type = KvType::kF32, .v_type = KvType::kF32, .chunk = 70});
    const std::vector<float> logits = AllLogits(*session, tokens, piece);
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    EXPECT_LT(largest, 1e-4) << piece;  // as in session_test.cpp
  }
}

// One of two groups has the best expert, the other the larger sum of two experts.
// AgreesWithTheReference holds the engine to the same reference.
TEST(ExpertGroups, AreScoredAsTheFamilySays) {
  for (const auto& [arch, expected] :
       {std::pair("llama", size_t{0}), std::pair("dots1", size_t{2})}) {
    TinyShape shape;
    shape.arch = arch;
    shape.experts = {.count = 4, .used = 1};
    shape.extra = {{"expert_group_count", 2}, {"expert_group_used_count", 1}};
    const auto model = OpenTiny(shape);
    ASSERT_NE(model, nullptr);
    const arch::Sublayer& sublayer = model->spec().stacks[0].layers[0].sublayers[1];
    const std::string prefix = "blk.0.";
    ReferenceWeights weights(model->file());
    ReferenceExperts experts(std::get<arch::Experts>(sublayer.block), prefix, weights);
    EXPECT_EQ(experts.Choose({3.0, -3.0, 2.0, 1.9}).front().first, expected) << arch;
  }
}

// ---- Importances and work -----------------------------------------------------------------------

TEST(Experts, ImportancesAreThoseOfEachExpert) {
  evaluate::ImportanceCollector collector(evaluate::OutputMatrix::kSkipped);
  ModelOptions options;
  options.observer = &collector;
  const auto model = OpenTiny(ExpertShape(), options);
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = RandomTokens(90, 3);
  const auto session = OpenSession(model, {.threads = 2, .chunk = 70});
  ExpectOk(session->Append(tokens));
  const auto imatrix = collector.Take();
  ASSERT_TRUE(imatrix.ok()) << imatrix.error().message;
  ReferenceForward reference(model->file());
  reference.Logits(tokens);
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight",
                           "blk.1.ffn_down_exps.weight", "blk.0.ffn_gate_inp.weight"}) {
    const auto entry = imatrix->entries.find(name);
    ASSERT_NE(entry, imatrix->entries.end()) << name;
    const Vector& expected = reference.input_squares().at(name);
    ASSERT_EQ(entry->second.sums.size(), expected.size()) << name;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(entry->second.sums[i], expected[i], 1e-2 * expected[i] + 1e-4) << name << i;
    }
  }
  const auto& counts = imatrix->entries.find("blk.1.ffn_down_exps.weight")->second.counts;
  ASSERT_EQ(counts.size(), 6u);
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  EXPECT_EQ(sum, 2 * 90);
}

double WeightBytes(const Model& model, int64_t tokens) {
  graph::PassShape pass;
  pass.rows.Set(graph::RowSpace::kPass, tokens);
  return model.plan().WorkOf(pass).weight_bytes;
}

TEST(Experts, WorkCountsTheExpertsThatAPassUses) {
  const auto model = OpenTiny(ExpertShape());
  ASSERT_NE(model, nullptr);
  double of_experts = 0;
  for (const formats::GgufTensor& tensor : model->file().tensors()) {
    if (tensor.dims[2] > 1) of_experts += static_cast<double>(tensor.size_bytes);
  }
  // A token uses 2 of 6 experts; a second one uses each of the others with a chance of 2 / 6.
  const double all = WeightBytes(*model, 10000);
  EXPECT_NEAR(all - WeightBytes(*model, 1), of_experts * 4 / 6, 1);
  EXPECT_NEAR(all - WeightBytes(*model, 2), of_experts * 4 / 6 * 4 / 6, 1);
  EXPECT_NEAR(graph::ExpectedExperts(128, 8, 1), 8, 1e-9);
  EXPECT_NEAR(graph::ExpectedExperts(4, 4, 3), 4, 1e-9);
}

// ---- Metadata that make no sense ----------------------------------------------------------------

std::string MessageOf(const TinyShape& shape) {
  const std::string path = TempPath("wrong.gguf");
  TinyModelWriter(shape).Write(path);
  const auto model = Model::Open(path);
  std::filesystem::remove(path);
  return model.ok() ? "accepted" : model.error().message;
}

struct WrongKey {
  const char* key;
  uint32_t value;
  const char* expected;
};

void PrintTo(const WrongKey& test, std::ostream* out) { *out << test.key << test.value; }

class WrongExperts : public testing::TestWithParam<WrongKey> {};

INSTANTIATE_TEST_SUITE_P(
    Keys, WrongExperts,
    testing::Values(
        WrongKey{"expert_count", 4000000000u, "key llama.expert_count: expected 1 to 4096"},
        WrongKey{"expert_count", 0, "key llama.expert_count is missing"},
        WrongKey{"expert_count", 7, "ffn_gate_inp.weight: expected [64 x 7], found [64 x 6]"},
        WrongKey{"expert_used_count", 7, "key llama.expert_used_count: expected 1 to 6, found 7"},
        WrongKey{"expert_used_count", 0, "key llama.expert_used_count is missing"},
        WrongKey{"expert_used_count", 1000, "llama.expert_used_count: expected 1 to 256"},
        WrongKey{"expert_gating_func", 5, "llama.expert_gating_func: expected 1 to 4, found 5"},
        WrongKey{"expert_group_count", 4, "expert_group_count: expected a divisor of 6 experts"},
        WrongKey{"expert_group_count", 3, "key llama.expert_group_used_count is missing"},
        WrongKey{"expert_feed_forward_length", 95,
                 "ffn_gate_exps.weight: expected [64 x 95 x 6], found [64 x 96 x 6]"}));

TEST_P(WrongExperts, AreRefusedByTheKey) {
  TinyShape shape;
  shape.experts = {.count = 6, .used = 2};
  ASSERT_EQ(MessageOf(shape), "accepted");
  shape.extra[GetParam().key] = GetParam().value;
  EXPECT_THAT(MessageOf(shape), testing::HasSubstr(GetParam().expected));
}

TEST(Experts, GroupsMustHoldAsManyExpertsAsATokenUses) {
  TinyShape shape;
  shape.experts = {.count = 6, .used = 3};
  shape.extra = {{"expert_group_count", 3}, {"expert_group_used_count", 1}};
  EXPECT_THAT(MessageOf(shape), testing::HasSubstr("groups with at least 3 experts together"));
  shape.extra["expert_group_used_count"] = 4;
  EXPECT_THAT(MessageOf(shape), testing::HasSubstr("expert_group_used_count: expected 1 to 3"));
}

TEST(Experts, AFamilyWithoutExpertsRefusesThem) {
  TinyShape shape;
  shape.arch = "phi3";
  shape.extra["expert_count"] = 6;
  EXPECT_THAT(MessageOf(shape), testing::HasSubstr("mixture of experts (6 experts)"));
}

}  // namespace
}  // namespace kvant::test
