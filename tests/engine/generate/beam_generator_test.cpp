// Beam search through a runner's caches: against greedy text, against a search that gives every
// beam a session of its own, and what it costs.
#include "kvant/beam_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/kv/kv_cache.h"
#include "kvant/generator.h"
#include "tests/engine/generate/beam_requests.h"

namespace kvant::test {
namespace {

// log_softmax in double precision.
std::vector<double> LogSoftmax(std::span<const float> logits) {
  const double largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  std::vector<double> out;
  for (const float logit : logits) {
    out.push_back(static_cast<double>(logit) - largest - std::log(sum));
  }
  return out;
}

struct ByteCounts {
  uint64_t token = 0;  // of one position in all layers
  uint64_t block = 0;
};

ByteCounts CacheBytes(const Model& model, const SessionOptions& options) {
  ByteCounts bytes;
  const auto plan = PlanMemory(model, options);
  EXPECT_TRUE(plan.ok());
  for (const MemoryPlan::Group& group : plan->groups) bytes.token += group.bytes_per_token;
  bytes.block = bytes.token * kv::kBlockTokens;
  return bytes;
}

class BeamGenerators : public RunnerKinds {};

INSTANTIATE_TEST_SUITE_P(Kinds, BeamGenerators, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(BeamGenerators, OneBeamIsGreedyAndItsLogProbsAreThoseOfTheLogits) {
  const auto model = OpenModel();
  const std::vector<TokenId> prompt = RandomTokens(45, 3);
  auto runner = OpenRunner(model, OneThread(GetParam().type, 1));
  const auto found = Generate(*runner, {prompt}, {.search = Beams(1, 80)});
  ASSERT_EQ(found[0].hypotheses.size(), 1u);
  const BeamHypothesis& best = found[0].hypotheses[0];

  auto session = OpenSession(model, OneThread(GetParam().type, 1));
  SamplingOptions greedy;
  greedy.temperature = 0;
  auto sampler = *Sampler::Create(greedy, model->vocab_size());
  GenerateOptions options;
  options.max_tokens = 80;
  const auto text = kvant::Generate(*session, model->tokenizer(), sampler, prompt, options, {});
  ASSERT_TRUE(text.ok());
  std::vector<TokenId> ids = text->ids;
  if (text->finish_reason == FinishReason::kStop) ids.push_back(2);
  EXPECT_EQ(best.ids, ids);
  EXPECT_EQ(best.ended, text->finish_reason == FinishReason::kStop);

  ExpectOk(session->Rewind(0));
  ExpectOk(session->Append(prompt));
  ASSERT_EQ(best.log_probs.size(), best.ids.size());
  for (size_t i = 0; i < best.ids.size(); ++i) {
    const std::vector<double> expected = LogSoftmax(session->logits());
    EXPECT_NEAR(static_cast<double>(best.log_probs[i]), expected[static_cast<size_t>(best.ids[i])],
                1e-5)
        << i;
    ExpectOk(session->Append({&best.ids[i], 1}));
  }
}

// A search behind a sequence finds what it finds alone, and leaves the sequence as it was.
TEST_P(BeamGenerators, BeginBehindASequence) {
  const auto model = OpenModel();
  const std::vector<TokenId> prompt = RandomTokens(45, 3);
  const auto first = std::span(prompt).first(40);
  auto alone = OpenRunner(model, Options(GetParam().type, 4));
  auto runner = OpenRunner(model, Options(GetParam().type, 5));
  const auto sequence = runner->NewSequence();
  ASSERT_TRUE(sequence.ok());
  ExpectOk(runner->Append(*sequence, first));
  const auto expected = Generate(*alone, {prompt}, {.search = Beams(4, 14)});
  const auto found = Generate(*runner, {prompt}, {.search = Beams(4, 14), .beginning = *sequence});
  ASSERT_EQ(found[0].hypotheses.size(), expected[0].hypotheses.size());
  for (size_t i = 0; i < found[0].hypotheses.size(); ++i) {
    EXPECT_EQ(found[0].hypotheses[i].ids, expected[0].hypotheses[i].ids);
  }
  EXPECT_EQ(runner->length(*sequence), 40);
  EXPECT_EQ(runner->stats().sequences, 1);

  const std::vector<std::vector<TokenId>> other = {RandomTokens(45, 4)};
  const std::vector<std::vector<TokenId>> two = {prompt, prompt};
  const std::vector<std::vector<TokenId>> held = {{first.begin(), first.end()}};
  const BeamGenerateOptions options = {.search = Beams(4, 14), .beginning = *sequence};
  for (const auto& prompts : {other, two, held}) {
    const auto refused = GenerateBeams(*runner, prompts, options);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
  EXPECT_EQ(runner->stats().sequences, 1);
}

// beams + window-sized cache, beams + int8, log-probabilities with beams: with forks, reorders and
// shared blocks every beam has the bits of a session that knows nothing of the others.
TEST_P(BeamGenerators, FindWhatSessionsOfTheirOwnFind) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, Options(GetParam().type, 4));
  const std::vector<TokenId> prompt = RandomTokens(61, 8);
  BeamOptions options = Beams(4, 14);
  const auto found = Generate(*runner, {prompt}, {.search = options});
  const auto expected = SearchAlone(model, GetParam().type, prompt, options);
  ExpectSameBits(found[0].hypotheses, expected, "4 beams");
  options.groups = 2;
  options.diversity_penalty = 0.7f;
  const auto diverse = Generate(*runner, {prompt}, {.search = options});
  ExpectSameBits(diverse[0].hypotheses, SearchAlone(model, GetParam().type, prompt, options),
                 "2 groups");
}

TEST_P(BeamGenerators, ScoresAreThoseOfTheLogProbsOfTheModel) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, OneThread(GetParam().type, 5));
  const std::vector<TokenId> prompt = RandomTokens(33, 4);
  for (const float penalty : {-1.0f, 0.0f, 0.6f, 2.0f}) {
    BeamOptions options = Beams(5, 20);
    options.length_penalty = penalty;
    options.end_tokens = {2, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69};  // so that some do end
    const auto found = Generate(*runner, {prompt}, {.search = options});
    for (const BeamHypothesis& hypothesis : found[0].hypotheses) {
      double sum = 0;
      for (const float log_prob : hypothesis.log_probs) sum += static_cast<double>(log_prob);
      const double length = static_cast<double>(hypothesis.ids.size());
      const double score = sum / std::pow(length, static_cast<double>(penalty));
      EXPECT_NEAR(static_cast<double>(hypothesis.score), score, 1e-4 * std::max(1.0, -score));
      const bool ends = std::count(options.end_tokens.begin(), options.end_tokens.end(),
                                   hypothesis.ids.back()) == 1;
      EXPECT_EQ(hypothesis.ended, ends);

      auto session = OpenSession(model, OneThread(GetParam().type, 1));
      ExpectOk(session->Append(prompt));
      for (size_t i = 0; i < hypothesis.ids.size(); ++i) {
        const std::vector<double> expected = LogSoftmax(session->logits());
        EXPECT_NEAR(static_cast<double>(hypothesis.log_probs[i]),
                    expected[static_cast<size_t>(hypothesis.ids[i])], 1e-5);
        ExpectOk(session->Append({&hypothesis.ids[i], 1}));
      }
    }
  }
}

// Steps a search with sequences that are forked and freed by hand, from a sequence that ends with
// the prompt; that sequence becomes the first live beam of the end.
std::vector<BeamHypothesis> SearchFrom(Runner& runner, SequenceId& sequence,
                                       const std::vector<TokenId>& prompt,
                                       const BeamOptions& options) {
  auto search = BeamSearch::Create(options, runner.model().vocab_size());
  EXPECT_TRUE(search.ok() && search->Start(prompt).ok());
  std::vector<SequenceId> beams = {sequence};
  while (true) {
    std::vector<std::span<const float>> rows;
    for (const SequenceId beam : beams) rows.push_back(runner.logits(beam));
    ExpectOk(search->Step(rows));
    if (search->done() || testing::Test::HasFailure()) break;
    std::vector<SequenceId> next;
    for (const int32_t parent : search->parents()) {
      next.push_back(*runner.Fork(beams[static_cast<size_t>(parent)]));
    }
    for (const SequenceId beam : beams) ExpectOk(runner.FreeSequence(beam));
    beams = next;
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < beams.size(); ++i) {
      inputs.push_back({beams[i], search->tokens().subspan(i, 1)});
    }
    ExpectOk(runner.Step(inputs));
  }
  sequence = beams.front();
  for (size_t i = 1; i < beams.size(); ++i) ExpectOk(runner.FreeSequence(beams[i]));
  return search->Results();
}

TEST_P(BeamGenerators, ABeamIsRewoundToThePromptAndSearchedAgain) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, OneThread(GetParam().type, 8));
  const std::vector<TokenId> prompt = RandomTokens(40, 6);
  const BeamOptions options = Beams(4, 30);
  const auto straight = Generate(*runner, {prompt}, {.search = options});
  SequenceId sequence = NewSequence(*runner);
  ExpectOk(runner->Append(sequence, prompt));
  for (int round = 0; round < 3; ++round) {
    const auto found = SearchFrom(*runner, sequence, prompt, options);
    ExpectSameBits(found, straight[0].hypotheses, "round " + std::to_string(round));
    EXPECT_GT(runner->length(sequence), std::ssize(prompt));
    ExpectOk(runner->Rewind(sequence, std::ssize(prompt) - 1));
    ExpectOk(runner->Append(sequence, std::span(prompt).last(1)));
  }
}

TEST_P(BeamGenerators, OneRequestMayBeCancelledAndTheOthersGoOn) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, OneThread(GetParam().type, 12));
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(20, 1), RandomTokens(50, 2),
                                                     RandomTokens(7, 3)};
  BeamGenerateOptions options{.search = Beams(4, 25)};
  options.search.end_tokens.clear();
  const auto whole = Generate(*runner, prompts, options);
  for (size_t cancelled = 0; cancelled < prompts.size(); ++cancelled) {
    int64_t rows_after = 0;
    options.on_step = [&](size_t request, const BeamSearch& search) {
      if (request != cancelled) return BeamStep::kGoOn;
      if (search.generated() == 9) return BeamStep::kEndRequest;
      rows_after += search.generated() > 9 ? 1 : 0;
      return BeamStep::kGoOn;
    };
    const uint64_t before = runner->stats().tokens_processed;
    const auto found = Generate(*runner, prompts, options);
    EXPECT_EQ(rows_after, 0);
    uint64_t expected_rows = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(found[i].cancelled, i == cancelled);
      expected_rows += prompts[i].size() + 4 * (i == cancelled ? 8 : 24);
      if (i != cancelled) ExpectSameBits(found[i].hypotheses, whole[i].hypotheses, "others");
    }
    EXPECT_EQ(found[cancelled].steps, 9);
    ASSERT_FALSE(found[cancelled].hypotheses.empty());
    EXPECT_EQ(found[cancelled].hypotheses[0].ids.size(), 9u);
    EXPECT_EQ(runner->stats().tokens_processed - before, expected_rows);
    EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  }
}

TEST_P(BeamGenerators, ARequestThatEndsEarlyLeavesTheOthersAsTheyAre) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, OneThread(GetParam().type, 9));
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(30, 11), RandomTokens(31, 12),
                                                     RandomTokens(90, 13)};
  BeamGenerateOptions options{.search = Beams(3, 30)};
  for (TokenId token = 100; token < 140; ++token) options.search.end_tokens.push_back(token);
  options.search.early_stopping = EarlyStopping::kTrue;
  const auto found = Generate(*runner, prompts, options);
  std::set<int64_t> steps;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = Generate(*runner, {prompts[i]}, options);
    ExpectSameBits(found[i].hypotheses, alone[0].hypotheses, std::to_string(i));
    EXPECT_EQ(found[i].steps, alone[0].steps);
    steps.insert(found[i].steps);
  }
  EXPECT_GT(steps.size(), 1u);
}

TEST_P(BeamGenerators, EveryStepReportsTheBestSoFar) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, OneThread(GetParam().type, 8));
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(12, 21), RandomTokens(40, 22)};
  BeamGenerateOptions options{.search = Beams(4, 20)};
  std::vector<int64_t> steps(2);
  std::vector<std::vector<BeamHypothesis>> last(2);
  options.on_step = [&](size_t request, const BeamSearch& search) {
    EXPECT_EQ(search.generated(), ++steps[request]);
    last[request] = search.Results();
    EXPECT_TRUE(std::is_sorted(last[request].begin(), last[request].end(),
                               [](const auto& a, const auto& b) { return a.score > b.score; }));
    for (int64_t row = 0; row < search.rows(); ++row) {
      const BeamHypothesis live = search.Live(static_cast<size_t>(row));
      EXPECT_EQ(std::ssize(live.ids), steps[request]);
      EXPECT_EQ(live.ids.back(), search.tokens()[static_cast<size_t>(row)]);
      EXPECT_LE(live.sum, search.Live(0).sum);
    }
    return BeamStep::kGoOn;
  };
  const auto found = Generate(*runner, prompts, options);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].steps, steps[i]);
    ExpectSameBits(found[i].hypotheses, last[i], "the last report");
  }
}

// Beams whose cache changes in place: a prompt is processed once, each step has a row for each live
// beam, reads the weights once and writes its own rows; copies are those of the beams that part;
// and at no moment is more in use than the prompt and each beam's own tokens.
TEST_P(BeamGenerators, CostThePromptOnceAndARowForEachBeam) {
  const auto model = OpenModel();
  for (const int32_t beams : {2, 4, 8}) {
    const SessionOptions session = OneThread(GetParam().type, beams);
    auto runner = OpenRunner(model, session);
    const ByteCounts bytes = CacheBytes(*model, session);
    const std::vector<TokenId> prompt = RandomTokens(45, 31);
    uint64_t peak = 0;
    runner->SetKvLog(
        [&](std::string_view) { peak = std::max(peak, runner->stats().kv_bytes_used); });
    BeamGenerateOptions options{.search = Beams(beams, 50)};
    options.search.end_tokens.clear();
    RunnerStats before;
    uint64_t rows = prompt.size();
    uint64_t copies_max = 0;
    options.on_step = [&](size_t, const BeamSearch& search) {
      const RunnerStats now = runner->stats();
      EXPECT_EQ(now.tokens_processed - before.tokens_processed, rows);
      EXPECT_EQ(now.kv_bytes_written - before.kv_bytes_written, rows * bytes.token);
      EXPECT_EQ(now.passes - before.passes, 1u);
      EXPECT_LE(now.kv_bytes_copied - before.kv_bytes_copied, copies_max * bytes.block);
      const double generated = static_cast<double>(search.generated());
      EXPECT_LE(static_cast<double>(peak),
                (static_cast<double>(prompt.size()) +
                 beams * (generated + 1.5 * static_cast<double>(kv::kBlockTokens))) *
                    static_cast<double>(bytes.token));
      const std::set<int32_t> parents(search.parents().begin(), search.parents().end());
      copies_max = search.parents().size() - parents.size();
      rows = static_cast<uint64_t>(search.rows());
      before = now;
      return BeamStep::kGoOn;
    };
    const auto found = Generate(*runner, {prompt}, options);
    EXPECT_EQ(found[0].steps, 50);
    EXPECT_GT(peak, 0u);
    EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  }
}

TEST(BeamGenerator, APermutationOfSequencesCopiesNothing) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, OneThread(KvType::kF16, 4));
  std::vector<SequenceId> ids = {NewSequence(*runner)};
  ExpectOk(runner->Append(ids[0], RandomTokens(40, 1)));
  while (ids.size() < 4) ids.push_back(*runner->Fork(ids[0]));
  const auto step = [&] {
    std::vector<TokenId> tokens = {5, 6, 7, 8};
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < 4; ++i) inputs.push_back({ids[i], std::span(tokens).subspan(i, 1)});
    ExpectOk(runner->Step(inputs));
  };
  step();  // now each has a last block of its own
  const uint64_t copied = runner->stats().kv_bytes_copied;
  EXPECT_GT(copied, 0u);
  std::vector<int> parents = {0, 1, 2, 3};
  do {
    ExpectOk(runner->Reorder(ids, parents));
    step();
  } while (std::next_permutation(parents.begin(), parents.end()));
  EXPECT_EQ(runner->stats().kv_bytes_copied, copied);
}

TEST(BeamGenerator, RefusesBeforeAnythingIsProcessed) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = OneThread(KvType::kF16, 4);
  session.context = 50;
  auto runner = OpenRunner(model, session);
  const auto code = [&](const std::vector<std::vector<TokenId>>& prompts,
                        const BeamOptions& beams) {
    const auto found = GenerateBeams(*runner, prompts, {.search = beams});
    EXPECT_EQ(runner->stats().tokens_processed, 0u);
    EXPECT_EQ(runner->stats().sequences, 0);
    return found.ok() ? ErrorCode::kCancelled : found.error().code;
  };
  const std::vector<TokenId> prompt = RandomTokens(10, 1);
  EXPECT_EQ(code({prompt, RandomTokens(51, 1)}, Beams(2, 5)), ErrorCode::kContextFull);
  EXPECT_EQ(code({{}}, Beams(2, 5)), ErrorCode::kInvalid);
  EXPECT_EQ(code({{kTinyVocab}}, Beams(2, 5)), ErrorCode::kInvalid);
  BeamOptions options = Beams(4, 5);
  options.num_return = 5;
  EXPECT_EQ(code({prompt}, options), ErrorCode::kInvalid);
  options = Beams(4, 5);
  options.groups = 3;
  EXPECT_EQ(code({prompt}, options), ErrorCode::kInvalid);
  options.groups = 2;
  EXPECT_EQ(code({prompt}, options), ErrorCode::kInvalid);  // without a penalty
}

// The last token of a text needs no position: as many are generated as by greedy.
TEST(BeamGenerator, EachPromptHasItsOwnRoomInTheContext) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = OneThread(KvType::kF16, 6);
  session.context = 50;
  auto runner = OpenRunner(model, session);
  BeamOptions options = Beams(2, 1000);
  options.end_tokens.clear();
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(10, 1), RandomTokens(50, 2),
                                                     RandomTokens(49, 3)};
  const auto found = Generate(*runner, prompts, {.search = options});
  EXPECT_EQ(found[0].hypotheses[0].ids.size(), 41u);
  EXPECT_EQ(found[1].hypotheses[0].ids.size(), 1u);
  EXPECT_EQ(found[2].hypotheses[0].ids.size(), 2u);
  for (size_t i = 0; i < 3; ++i) {
    const auto alone = Generate(*runner, {prompts[i]}, {.search = options});
    ExpectSameBits(found[i].hypotheses, alone[0].hypotheses, std::to_string(i));
  }
}

}  // namespace
}  // namespace kvant::test
