// Tests where a beam search ends and what it reports then: rules that only few texts meet.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/generate/beam_requests.h"

namespace kvant::test {
namespace {

// One step of a search whose beams all have this row of logits, or rows of their own.
void Feed(BeamSearch& search, const std::vector<std::vector<float>>& rows) {
  ExpectOk(search.Step(std::vector<std::span<const float>>(rows.begin(), rows.end())));
}

// Logits whose softmax has these probabilities.
std::vector<float> LogRow(std::vector<float> probabilities) {
  for (float& p : probabilities) p = std::log(p);
  return probabilities;
}

// CTranslate2 without a length penalty: a better text may come as long as the best beam goes on.
TEST(BeamEdges, WithoutAPenaltyCt2WaitsForTheBestBeam) {
  BeamOptions options;
  options.scoring = BeamScoring::kCt2;
  options.beams = 2;
  options.length_penalty = 0.0f;
  options.end_tokens = {0};
  options.max_new_tokens = 8;
  auto search = BeamSearch::Create(options, 5);
  ASSERT_TRUE(search.ok());
  ExpectOk(search->Start(std::vector<TokenId>{1}));
  Feed(*search, {LogRow({0.3f, 0.5f, 0.1f, 0.06f, 0.04f})});  // the second best ends
  ASSERT_FALSE(search->done());
  ASSERT_EQ(search->rows(), 2);
  Feed(*search, {LogRow({0.9f, 0.04f, 0.03f, 0.02f, 0.01f}),  // now the best one does
                 LogRow({0.2f, 0.2f, 0.2f, 0.2f, 0.2f})});
  EXPECT_TRUE(search->done());
  const auto found = search->Results();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ids, (std::vector<TokenId>{1, 0}));
  EXPECT_NEAR(found[0].score, std::log(0.5 * 0.9), 1e-5);
}

// Drawn beams go on in the order of their sums, whichever was drawn first.
TEST(BeamEdges, DrawnBeamsAreInTheOrderOfTheirSums) {
  bool drawn_otherwise = false;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    BeamOptions options;
    options.beams = 4;
    options.sample = true;
    options.seed = seed;
    auto search = BeamSearch::Create(options, 30);
    ASSERT_TRUE(search.ok());
    ExpectOk(search->Start(std::vector<TokenId>{1}));
    std::vector<float> row(30);
    for (size_t i = 0; i < row.size(); ++i) row[i] = 0.1f * static_cast<float>(i);
    for (int step = 0; step < 3; ++step) {
      Feed(*search, std::vector(static_cast<size_t>(search->rows()), row));
      for (int64_t i = 1; i < search->rows(); ++i) {
        const auto rank = static_cast<size_t>(i);
        ASSERT_GE(search->Live(rank - 1).sum, search->Live(rank).sum) << seed << " " << step;
      }
    }
    drawn_otherwise = drawn_otherwise || search->tokens()[0] != 29;
  }
  EXPECT_TRUE(drawn_otherwise);  // they were drawn, not the best
}

// The least length is no longer than the room that a prompt leaves in the context.
TEST(BeamEdges, TheLeastLengthEndsWhereTheContextDoes) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = OneThread(KvType::kF16, 2);
  session.context = 50;
  const auto runner = OpenRunner(model, session);
  BeamOptions options = Beams(2, 1000);
  options.min_new_tokens = 10;
  const auto found = Generate(*runner, {RandomTokens(45, 1)}, {.search = options});
  ASSERT_FALSE(found[0].hypotheses.empty());
  EXPECT_EQ(found[0].hypotheses[0].ids.size(), 6u);
}

// A request that has come to its end is whole, whether it alone or all requests are ended in that
// moment.
TEST(BeamEdges, AFinishedRequestIsNotCancelled) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenRunner(model, OneThread(KvType::kF16, 6));
  BeamGenerateOptions options{.search = Beams(2, 5)};
  options.search.end_tokens.clear();
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(9, 1), RandomTokens(9, 2)};
  const auto whole = Generate(*runner, prompts, options);
  for (const BeamStep end : {BeamStep::kEndRequest, BeamStep::kEndAll}) {
    options.on_step = [end](size_t request, const BeamSearch& search) {
      const bool last = request == 0 && search.generated() == 5;
      return last ? end : BeamStep::kGoOn;
    };
    const auto found = Generate(*runner, prompts, options);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_FALSE(found[0].cancelled);
    ExpectSameBits(found[0].hypotheses, whole[0].hypotheses, "finished");
    EXPECT_EQ(found[1].cancelled, end == BeamStep::kEndAll);
    EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  }
}

}  // namespace
}  // namespace kvant::test
