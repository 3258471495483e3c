// Combines what other engines refuse or get wrong together: beams, batches, windows, int8,
// prefixes, rewinds and samples at the same time, compared with each of them alone. The
// combinations with sessions on disk are in session_file_test.cpp, rewinds beyond windows in
// runner_test.cpp, two sessions on one model in session_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>

#include "kvant/batch_generator.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/generate/beam_requests.h"

namespace kvant::test {
namespace {

using Prompts = std::vector<std::vector<TokenId>>;

Prompts RaggedPrompts() {
  Prompts prompts;
  for (const int64_t length : {1, 17, 64, 33, 200, 5, 96}) {
    prompts.push_back(RandomTokens(length, static_cast<uint32_t>(length)));
  }
  return prompts;
}

// With these end tokens some searches end after a few steps and others never.
BeamOptions ManyEnds(int32_t beams, int64_t max_new_tokens) {
  BeamOptions options = Beams(beams, max_new_tokens);
  for (TokenId token = 100; token < 120; ++token) options.end_tokens.push_back(token);
  options.early_stopping = EarlyStopping::kTrue;
  return options;
}

class Combinations : public RunnerKinds {};

INSTANTIATE_TEST_SUITE_P(Kinds, Combinations, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(Combinations, BeamsAndRaggedBatch) {  // beams + batch ragged
  const auto model = OpenModel();
  const Prompts prompts = RaggedPrompts();
  auto runner = OpenRunner(model, OneThread(GetParam().type, 4 * std::ssize(prompts)));
  const BeamGenerateOptions options{.search = ManyEnds(4, 20)};
  const auto together = Generate(*runner, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = Generate(*runner, {prompts[i]}, options);
    ExpectSameBits(together[i].hypotheses, alone[0].hypotheses, std::to_string(i));
    EXPECT_EQ(together[i].steps, alone[0].steps);
  }
}

TEST_P(Combinations, ContinuousBatchingAndBeams) {  // continuous batching + beams
  const auto model = OpenModel();
  const Prompts prompts = RaggedPrompts();
  BeamGenerateOptions options{.search = ManyEnds(3, 25), .parallel = 2};
  auto runner = OpenRunner(model, OneThread(GetParam().type, 3 * 2));
  size_t joined_beside_others = 0;
  std::map<size_t, bool> under_way;
  options.on_step = [&](size_t request, const BeamSearch& search) {
    if (search.generated() == 1) joined_beside_others += under_way.empty() ? 0 : 1;
    under_way[request] = true;
    EXPECT_LE(under_way.size(), 2u);
    if (search.done()) under_way.erase(request);
    return BeamStep::kGoOn;
  };
  const auto found = Generate(*runner, prompts, options);
  EXPECT_TRUE(under_way.empty());
  EXPECT_GT(joined_beside_others, 2u);
  options.on_step = nullptr;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = Generate(*runner, {prompts[i]}, options);
    ExpectSameBits(found[i].hypotheses, alone[0].hypotheses, std::to_string(i));
  }
}

// The bits are equal whatever else is on or off. One run has: windows, the type of the cache,
// beams, several prompts, known prefixes, poison, checks, committed memory.
TEST_P(Combinations, EverythingAtOnceChangesNothing) {
  const auto model = OpenModel();
  Prompts prompts = {RandomTokens(150, 1), RandomTokens(40, 2)};
  prompts.push_back(prompts[0]);  // its blocks are known when it joins
  prompts.push_back(prompts[0]);
  std::copy_n(prompts[1].begin(), 20, prompts[3].end() - 20);
  BeamGenerateOptions generate{.search = ManyEnds(4, 30), .parallel = 2};
  SessionOptions all = OneThread(GetParam().type, 8);
  all.prefix_cache = all.kv_commit = true;
  auto runner = OpenRunner(model, all);
  const auto expected = Generate(*runner, prompts, generate);
  EXPECT_GT(runner->stats().tokens_reused, 0u);
  const auto without = [&](const char* feature, const std::function<void(SessionOptions&)>& off,
                           size_t parallel = 2) {
    SessionOptions options = all;
    off(options);
    generate.parallel = parallel;
    auto other = OpenRunner(model, options);
    const auto found = Generate(*other, prompts, generate);
    for (size_t i = 0; i < prompts.size(); ++i) {
      ExpectSameBits(found[i].hypotheses, expected[i].hypotheses,
                     std::string(feature) + " " + std::to_string(i));
    }
    EXPECT_EQ(other->stats().tokens_reused > 0, options.prefix_cache);
  };
  without("prefix cache", [](SessionOptions& o) { o.prefix_cache = false; });
  without("poison", [](SessionOptions& o) { o.kv_poison = false; });
  without("checks", [](SessionOptions& o) { o.kv_check = false; });
  without("committed memory", [](SessionOptions& o) { o.kv_commit = false; });
  without("a single thread", [](SessionOptions& o) { o.threads = 2; });
  without(
      "a batch", [](SessionOptions&) {}, 1);
  without("large chunks", [](SessionOptions& o) { o.chunk = 40; });
}

TEST_P(Combinations, RewindInBatchesToDifferentLengths) {  // rewind + batch
  const auto model = OpenModel();
  auto runner = OpenRunner(model, OneThread(GetParam().type, 8));
  Prompts texts;
  std::vector<SequenceId> ids;
  std::vector<StepInput> inputs;
  for (uint32_t i = 0; i < 8; ++i) {
    texts.push_back(RandomTokens(20 + 23 * static_cast<int64_t>(i), i));
    ids.push_back(NewSequence(*runner));
  }
  for (size_t i = 0; i < 8; ++i) inputs.push_back({ids[i], texts[i]});
  ExpectOk(runner->Step(inputs));
  for (const size_t back : {size_t{1}, size_t{13}}) {
    inputs.clear();
    for (size_t i = 0; i < 8; ++i) {
      texts[i].resize(texts[i].size() - std::min(texts[i].size(), back * i));
      ExpectOk(runner->Rewind(ids[i], std::ssize(texts[i])));
      const std::vector<TokenId> more = RandomTokens(3, 100 + static_cast<uint32_t>(i));
      texts[i].insert(texts[i].end(), more.begin(), more.end());
    }
    for (size_t i = 0; i < 8; ++i) inputs.push_back({ids[i], std::span(texts[i]).last(3)});
    ExpectOk(runner->Step(inputs));
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(
          MaxDifference(runner->logits(ids[i]), LogitsAlone(model, GetParam().type, texts[i])), 0.0)
          << i << " back " << back * i;
    }
  }
}

// fork/parallel samples sharing prompt, continuous batching: texts of a batch are those of single
// runs with their seeds, whatever else runs, and a prompt is processed once for all its samples.
TEST_P(Combinations, SamplesInBatchesAreThoseOfSingleRuns) {
  const auto model = OpenModel();
  const Prompts prompts = {RandomTokens(70, 1), RandomTokens(1, 2), RandomTokens(33, 3),
                           RandomTokens(10, 4)};
  BatchOptions options;
  options.sampling.temperature = 1.2f;
  options.sampling.repeat_penalty = 1.1f;
  options.sampling.seed = 40;
  options.max_tokens = 30;
  std::vector<BatchRequest> requests;
  for (const std::vector<TokenId>& prompt : prompts) {
    requests.push_back({prompt, requests.size() == 1 ? 1 : 3});
  }
  for (const int64_t sequences : {3, 4, 16}) {
    auto runner = OpenRunner(model, OneThread(GetParam().type, sequences));
    std::map<std::pair<size_t, int32_t>, BatchText> texts;
    ExpectOk(
        GenerateBatch(*runner, model->tokenizer(), requests, options, [&](const BatchText& text) {
          texts[{text.request, text.sample}] = text;
          return true;
        }));
    ASSERT_EQ(texts.size(), 10u);
    uint64_t rows = 70 + 1 + 33 + 10;
    for (const auto& [key, text] : texts) {
      auto session = OpenSession(model, OneThread(GetParam().type, 1));
      SamplingOptions sampling = options.sampling;
      sampling.seed = 40 + static_cast<uint64_t>(key.second);
      auto sampler = *Sampler::Create(sampling, model->vocab_size());
      GenerateOptions single;
      single.max_tokens = options.max_tokens;
      const auto expected =
          Generate(*session, model->tokenizer(), sampler, prompts[key.first], single, {});
      ASSERT_TRUE(expected.ok());
      EXPECT_EQ(text.ids, expected->ids) << key.first << " " << key.second;
      EXPECT_EQ(text.text, expected->text);
      EXPECT_EQ(text.finish_reason, expected->finish_reason);
      EXPECT_EQ(text.seed, 40u + static_cast<uint64_t>(key.second));
      rows += static_cast<uint64_t>(expected->decode_tokens);
    }
    EXPECT_EQ(runner->stats().tokens_processed, rows);
    EXPECT_EQ(runner->stats().sequences, 0);
  }
}

// Where the memory of the cache ends, requests wait and begin anew; texts do not change, each comes
// once, and a text that is alone ends there.
TEST_P(Combinations, BatchesInLittleMemoryGiveTheSameTexts) {
  const auto model = OpenModel();
  BatchOptions options;
  options.sampling.temperature = 1.2f;
  options.sampling.seed = 40;
  options.max_tokens = 90;
  options.ignore_eos = true;
  std::vector<BatchRequest> requests;
  for (uint32_t i = 0; i < 5; ++i) requests.push_back({RandomTokens(5 + 9 * i, i), i == 2 ? 3 : 1});
  const auto run = [&](uint64_t bytes, std::map<std::pair<size_t, int32_t>, BatchText>& texts) {
    SessionOptions session = OneThread(GetParam().type, 6);
    session.kv_bytes_max = bytes;
    auto runner = OpenRunner(model, session);
    ExpectOk(
        GenerateBatch(*runner, model->tokenizer(), requests, options, [&](const BatchText& text) {
          EXPECT_TRUE(texts.try_emplace({text.request, text.sample}, text).second);
          return true;
        }));
    EXPECT_EQ(runner->stats().sequences, 0);
    return runner->stats();
  };
  std::map<std::pair<size_t, int32_t>, BatchText> whole;
  const RunnerStats plenty = run(0, whole);
  ASSERT_EQ(whole.size(), 7u);
  std::map<std::pair<size_t, int32_t>, BatchText> tight;
  const RunnerStats half = run(plenty.kv_bytes_peak / 2, tight);
  EXPECT_GT(half.tokens_processed, plenty.tokens_processed);  // some began anew
  EXPECT_LE(half.kv_bytes_peak, plenty.kv_bytes_peak / 2);
  ASSERT_EQ(tight.size(), 7u);
  for (const auto& [key, text] : whole) EXPECT_EQ(tight[key].ids, text.ids) << key.first;
  std::map<std::pair<size_t, int32_t>, BatchText> tiny;
  run(plenty.kv_bytes_peak / 6, tiny);
  ASSERT_EQ(tiny.size(), 7u);
  int cut = 0;
  for (const auto& [key, text] : tiny) {
    const std::vector<TokenId>& ids = whole[key].ids;
    EXPECT_TRUE(std::equal(text.ids.begin(), text.ids.end(), ids.begin())) << key.first;
    cut += text.finish_reason == FinishReason::kMemory ? 1 : 0;
    EXPECT_EQ(text.finish_reason == FinishReason::kLength, text.ids.size() == ids.size());
  }
  EXPECT_GT(cut, 0);
}

// Without a cache every step computes the whole text: other sums, the same texts.
TEST(Combination, BeamsWithoutACache) {
  TinyShape shape;
  shape.window = 33;
  const auto model = OpenTiny(shape, OwnGemm());
  SessionOptions uncached = OneThread(KvType::kF32, 8);
  uncached.kv_cache = false;
  auto oracle = OpenRunner(model, uncached);
  auto runner = OpenRunner(model, OneThread(KvType::kF32, 8));
  const Prompts prompts = {RandomTokens(150, 1), RandomTokens(40, 2)};
  const BeamGenerateOptions options{.search = ManyEnds(4, 15)};
  const auto expected = Generate(*oracle, prompts, options);
  const auto found = Generate(*runner, prompts, options);
  EXPECT_EQ(oracle->stats().kv_bytes_used, 0u);
  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_EQ(found[i].hypotheses.size(), expected[i].hypotheses.size());
    for (size_t rank = 0; rank < found[i].hypotheses.size(); ++rank) {
      EXPECT_EQ(found[i].hypotheses[rank].ids, expected[i].hypotheses[rank].ids);
      EXPECT_NEAR(found[i].hypotheses[rank].score, expected[i].hypotheses[rank].score, 1e-4);
    }
  }
}

TEST(Combination, TextsThatEndTogetherComeInOrder) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, OneThread(KvType::kF16, 6));
  BatchOptions options;
  options.sampling.seed = 1;
  options.ignore_eos = true;
  for (const int64_t tokens : {0, 1, 5}) {
    options.max_tokens = tokens;
    const std::vector<BatchRequest> requests = {{{1, 70}, 2}, {{1, 71}, 3}, {{1, 72}, 1}};
    std::vector<std::pair<size_t, int32_t>> order;
    ExpectOk(
        GenerateBatch(*runner, model->tokenizer(), requests, options, [&](const BatchText& text) {
          order.emplace_back(text.request, text.sample);
          return true;
        }));
    EXPECT_THAT(
        order, testing::ElementsAre(testing::Pair(0, 0), testing::Pair(0, 1), testing::Pair(1, 0),
                                    testing::Pair(1, 1), testing::Pair(1, 2), testing::Pair(2, 0)));
  }
}

TEST(Combination, ABatchInterruptedInAStepHandsOverWhatThereIs) {
  const auto model = OpenTiny({}, OwnGemm());
  std::atomic<bool> cancel{false};
  SessionOptions session = OneThread(KvType::kF16, 4);
  session.cancel = &cancel;
  BatchOptions options;
  options.sampling.seed = 1;
  options.ignore_eos = true;
  options.cancel = &cancel;
  const std::vector<BatchRequest> requests = {{RandomTokens(20, 1), 3}, {RandomTokens(20, 2), 3}};
  std::map<int32_t, BatchText> whole;
  auto runner = OpenRunner(model, session);
  const auto run = [&](auto on_text) {
    return GenerateBatch(*runner, model->tokenizer(), requests, options, on_text);
  };
  options.max_tokens = 40;
  ExpectOk(run([&](const BatchText& text) {
    if (text.request == 0) whole[text.sample] = text;
    return true;
  }));
  // Position 32 takes a block, in the middle of a step.
  runner->SetKvLog([&](std::string_view line) {
    if (line.starts_with("KV event: block_alloc") && runner->length(0) == 32) cancel = true;
  });
  std::vector<BatchText> texts;
  const Status status = run([&](const BatchText& text) {
    texts.push_back(text);
    return true;
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  ASSERT_EQ(texts.size(), 3u);
  for (const BatchText& text : texts) {
    EXPECT_EQ(text.finish_reason, FinishReason::kCancelled);
    ASSERT_EQ(text.ids.size(), 13u);  // of positions 20 to 32
    EXPECT_TRUE(std::equal(text.ids.begin(), text.ids.end(), whole[text.sample].ids.begin()));
  }
  EXPECT_EQ(runner->stats().sequences, 0);
  // A function that refuses a text gets no other.
  cancel = false;
  runner->SetKvLog({});
  int calls = 0;
  EXPECT_EQ(run([&](const BatchText&) { return ++calls < 2; }).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(calls, 2);
}

// Along the texts that a search on int8 with a window finds, the distributions are
// those of a cache in f32.
TEST(Combination, Int8BeamsAreCloseToF32) {
  for (const int64_t window : {0, 33}) {
    TinyShape shape;
    shape.window = window;
    const auto model = OpenTiny(shape, OwnGemm());
    const std::vector<TokenId> prompt = RandomTokens(100, 5);
    auto runner = OpenRunner(model, OneThread(KvType::kQ8, 4));
    BeamOptions options = Beams(4, 100);
    options.end_tokens.clear();
    const auto found = Generate(*runner, {prompt}, {.search = options});
    for (const BeamHypothesis& hypothesis : found[0].hypotheses) {
      auto exact = OpenSession(model, OneThread(KvType::kF32, 1));
      auto int8 = OpenSession(model, OneThread(KvType::kQ8, 1));
      ExpectOk(exact->Append(prompt));
      ExpectOk(int8->Append(prompt));
      const std::vector<float> expected = AllLogits(*exact, hypothesis.ids, 1);
      const std::vector<float> close = AllLogits(*int8, hypothesis.ids, 1);
      EXPECT_LT(MeanDivergence(expected, close, hypothesis.ids.size()), 5e-3);
      EXPECT_GT(MaxDifference(expected, close), 0.0);
    }
  }
}

}  // namespace
}  // namespace kvant::test
