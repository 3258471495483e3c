// Many requests at once: whoever else is served, however prompts are cut and wherever memory ends,
// each gets what it would get alone.
#include "kvant/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "engine/run/logit_rows.h"
#include "kvant/batch_generator.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using Prompts = std::vector<std::vector<TokenId>>;
using Texts = std::map<std::pair<size_t, int32_t>, BatchText>;

// ---- Cuts ---------------------------------------------------------------------------------------

// The size of the chunk that holds token number `at` when the prompt is alone, and where it ends.
struct Chunk {
  int64_t begin;
  int64_t end;
};
Chunk ChunkAlone(int64_t total, int64_t chunk, int64_t at) {
  int64_t begin = 0;
  while (begin + chunk <= at) begin += chunk;
  return {begin, std::min(begin + chunk, total)};
}

TEST(PromptCuts, PiecesOfLongChunksAreLongAndPiecesOfShortOnesShort) {
  for (const int64_t chunk : {1, 7, 63, 64, 65, 100, 127, 128, 129, 512}) {
    const PromptCut cut = {.chunk = chunk, .few_rows = std::min<int64_t>(chunk, 63)};
    for (const int64_t limit : {1, 5, 63, 64, 100, 512, 5000}) {
      for (int64_t total = 1; total < 1100; total += total < 150 ? 1 : 23) {
        for (int64_t done = 0; done < total;) {
          const int64_t piece = cut.Next(total, done, limit);
          const Chunk alone = ChunkAlone(total, chunk, done);
          ASSERT_GE(piece, 1);
          ASSERT_LE(done + piece, alone.end);
          ASSERT_EQ(piece > 63, alone.end - alone.begin > 63) << total << " " << done;
          // The piece is as little longer than asked for as can be: a long piece, and a rest that
          // is too short to be one.
          if (alone.end - alone.begin > 63) {
            ASSERT_LE(piece, std::max<int64_t>(limit, 64) + 63);
          } else {
            ASSERT_LE(piece, limit);
          }
          done += piece;
        }
      }
    }
  }
}

// Pieces have the bits of the whole prompt, whatever the weights, while others go on.
TEST(PromptCuts, NeverChangeABit) {
  for (const char* type : {"F32", "Q8_0"}) {
    for (const int64_t window : {0, 33}) {
      TinyShape shape;
      shape.type = type;
      shape.ffn = 128;
      shape.window = window;
      shape.context = 900;
      const auto model = OpenTiny(shape, OwnGemm());
      for (const int64_t length : {40, 63, 64, 130, 512, 540, 700}) {
        const std::vector<TokenId> prompt = RandomTokens(static_cast<size_t>(length), 4);
        const std::vector<float> alone = LogitsAlone(model, KvType::kF16, prompt);
        for (const int64_t slice : {64, 100, 512}) {
          auto runner = OpenRunner(model, Options(KvType::kF16, 2));
          const SequenceId other = NewSequence(*runner);
          const SequenceId id = NewSequence(*runner);
          ExpectOk(runner->Append(other, RandomTokens(20, 1)));
          for (int64_t done = 0; done < length;) {
            const int64_t piece = runner->prompt_cut().Next(length, done, slice);
            const TokenId token = 7;
            const bool last = done + piece == length;
            const std::vector<StepInput> inputs = {
                {other, {&token, 1}},
                {id,
                 std::span(prompt).subspan(static_cast<size_t>(done), static_cast<size_t>(piece)),
                 last ? Logits::kLast : Logits::kNone}};
            ExpectOk(runner->Step(inputs));
            done += piece;
            EXPECT_EQ(runner->logits(id).empty(), !last);
          }
          EXPECT_EQ(MaxDifference(runner->logits(id), alone), 0.0)
              << type << " window " << window << " length " << length << " slice " << slice;
        }
      }
    }
  }
}

// ---- Batches ------------------------------------------------------------------------------------

SessionOptions OneThread(KvType type, int64_t sequences) {
  SessionOptions options = Options(type, sequences);
  options.threads = 1;
  return options;
}

BatchOptions Sampled(int64_t max_tokens) {
  BatchOptions options;
  options.sampling.temperature = 1.2f;
  options.sampling.seed = 40;
  options.max_tokens = max_tokens;
  options.ignore_eos = true;
  return options;
}

Texts RunBatch(Runner& runner, const std::vector<BatchRequest>& requests,
               const BatchOptions& options) {
  Texts texts;
  ExpectOk(GenerateBatch(runner, runner.model().tokenizer(), requests, options,
                         [&](const BatchText& text) {
                           EXPECT_TRUE(texts.try_emplace({text.request, text.sample}, text).second);
                           return true;
                         }));
  EXPECT_EQ(runner.stats().sequences, 0);
  return texts;
}

std::vector<BatchRequest> Requests(const std::vector<int32_t>& samples) {
  std::vector<BatchRequest> requests;
  for (const int32_t count : samples) {
    const size_t i = requests.size();
    requests.push_back({RandomTokens(5 + 97 * i, static_cast<uint32_t>(i)), count});
  }
  return requests;
}

void ExpectSameTexts(const Texts& found, const Texts& expected, const std::string& where) {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (const auto& [key, text] : expected) {
    ASSERT_TRUE(found.contains(key)) << where;
    EXPECT_EQ(found.at(key).ids, text.ids) << where << " " << key.first << " " << key.second;
    EXPECT_EQ(found.at(key).text, text.text) << where;
    EXPECT_EQ(found.at(key).seed, text.seed) << where;
    EXPECT_EQ(found.at(key).finish_reason, text.finish_reason) << where;
  }
}

TEST_P(RunnerKinds, SlicedPromptsGiveTheTextsOfWholeOnes) {
  const auto model = OpenModel();
  const std::vector<BatchRequest> requests = Requests({1, 3, 2, 1, 1, 2});
  BatchOptions options = Sampled(30);
  const Texts whole =
      RunBatch(*OpenRunner(model, OneThread(GetParam().type, 4)), requests, options);
  ASSERT_EQ(whole.size(), 10u);
  for (const int64_t slice : {1, 64, 300}) {
    options.prompt_slice = slice;
    auto runner = OpenRunner(model, OneThread(GetParam().type, 4));
    ExpectSameTexts(RunBatch(*runner, requests, options), whole, std::to_string(slice));
  }
}

// Texts that waited for memory go on where they were: nothing is shown twice.
TEST_P(RunnerKinds, PiecesMakeTheTextWhereverMemoryEnds) {
  const auto model = OpenModel();
  const std::vector<BatchRequest> requests = Requests({1, 2, 3, 1});
  BatchOptions options = Sampled(90);
  auto plenty = OpenRunner(model, OneThread(GetParam().type, 7));
  const Texts whole = RunBatch(*plenty, requests, options);
  for (const int64_t slice : {0, 64}) {
    for (const bool prefixes : {false, true}) {
      SessionOptions session = OneThread(GetParam().type, 7);
      session.kv_bytes_max = plenty->stats().kv_bytes_peak / 2;
      session.prefix_cache = prefixes;
      auto runner = OpenRunner(model, session);
      std::map<std::pair<size_t, int32_t>, std::string> pieces;
      options.prompt_slice = slice;
      options.on_piece = [&](size_t request, int32_t sample, std::string_view piece) {
        EXPECT_FALSE(piece.empty());
        pieces[{request, sample}] += piece;
        return true;
      };
      const Texts tight = RunBatch(*runner, requests, options);
      ExpectSameTexts(tight, whole, std::to_string(slice));
      EXPECT_LE(runner->stats().kv_bytes_peak, session.kv_bytes_max);
      if (!prefixes) {
        EXPECT_GT(runner->stats().tokens_processed, plenty->stats().tokens_processed);
      }
      for (const auto& [key, text] : tight) EXPECT_EQ(pieces[key], text.text);
    }
  }
}

TEST(Scheduler, ARequestMayHaveSamplingOfItsOwn) {
  const auto model = OpenTiny({}, OwnGemm());
  const BatchOptions options = Sampled(25);
  std::vector<BatchRequest> requests = Requests({2, 2});
  requests[1].sampling = options.sampling;
  requests[1].sampling->temperature = 0.5f;
  requests[1].sampling->seed = 7;
  const Texts together =
      RunBatch(*OpenRunner(model, OneThread(KvType::kF16, 4)), requests, options);
  BatchOptions alone = options;
  alone.sampling = *requests[1].sampling;
  const Texts second =
      RunBatch(*OpenRunner(model, OneThread(KvType::kF16, 4)), {{requests[1].prompt, 2}}, alone);
  for (const int32_t sample : {0, 1}) {
    EXPECT_EQ(together.at({1, sample}).ids, second.at({0, sample}).ids);
    EXPECT_EQ(together.at({1, sample}).seed, 7u + static_cast<uint64_t>(sample));
    EXPECT_EQ(together.at({0, sample}).seed, 40u + static_cast<uint64_t>(sample));
  }
}

TEST(Scheduler, APieceThatIsRefusedEndsItsTextAlone) {
  const auto model = OpenTiny({}, OwnGemm());
  const std::vector<BatchRequest> requests = Requests({1, 1, 1});
  BatchOptions options = Sampled(20);
  const Texts whole = RunBatch(*OpenRunner(model, OneThread(KvType::kF16, 3)), requests, options);
  size_t shown = 0;
  options.on_piece = [&](size_t request, int32_t, std::string_view) {
    return request != 1 || ++shown < 4;
  };
  const Texts found = RunBatch(*OpenRunner(model, OneThread(KvType::kF16, 3)), requests, options);
  EXPECT_EQ(found.at({1, 0}).finish_reason, FinishReason::kCancelled);
  EXPECT_LT(found.at({1, 0}).ids.size(), 20u);
  for (const size_t request : {0, 2}) {
    EXPECT_EQ(found.at({request, 0}).ids, whole.at({request, 0}).ids);
  }
}

// A prompt that comes in slices is looked up as a whole: all blocks but that of the last token.
TEST(Scheduler, PrefixesAreLookedUpForTheWholePrompt) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions session = OneThread(KvType::kF16, 2);
  session.prefix_cache = true;
  auto runner = OpenRunner(model, session);
  BatchOptions options = Sampled(3);
  options.prompt_slice = 64;
  const std::vector<BatchRequest> requests = {{RandomTokens(300, 1), 1}};
  const Texts first = RunBatch(*runner, requests, options);
  EXPECT_EQ(runner->stats().tokens_reused, 0u);
  const Texts second = RunBatch(*runner, requests, options);
  EXPECT_EQ(runner->stats().tokens_reused, 288u);
  ExpectSameTexts(second, first, "reused");
}

// ---- Requests -----------------------------------------------------------------------------------

// Texts on a scheduler, by number.
class TextService {
 public:
  explicit TextService(const std::shared_ptr<const Model>& model, int64_t sequences = 3)
      : model_(model), runner_(OpenRunner(model, OneThread(KvType::kF16, sequences))) {
    generate_.max_tokens = 20;
    generate_.ignore_eos = true;
    scheduler.emplace(*runner_, SchedulerOptions{.prompt_slice = 64});
  }

  TextRequest& Submit(const std::vector<TokenId>& prompt, int priority = 0) {
    SamplingOptions sampling;
    sampling.seed = 5;
    const size_t number = texts_.size();
    texts_.emplace_back(TextRequest::Setup{.tokenizer = SharedTokenizer(model_),
                                           .input = std::make_shared<TextInput>(TextInput{prompt}),
                                           .options = generate_,
                                           .sampling = sampling,
                                           .vocab_size = model_->vocab_size(),
                                           .on_end = [this, number](TextRequest&) {
                                             ended.push_back(number);
                                             return true;
                                           }});
    scheduler->Submit(texts_.back(), {.priority = priority});
    return texts_.back();
  }

  void RunToTheEnd() {
    for (int rounds = 0; !scheduler->idle(); ++rounds) {
      ASSERT_LT(rounds, 1000);
      ExpectOk(scheduler->Poll());
    }
    EXPECT_EQ(runner_->stats().sequences, 0);
    EXPECT_EQ(runner_->stats().kv_bytes_used, 0u);
  }

  std::vector<size_t> ended;

 private:
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Runner> runner_;
  GenerateOptions generate_;
  std::deque<TextRequest> texts_;

 public:
  std::optional<Scheduler> scheduler;
};

TEST(Scheduler, EachRequestHasAStatusOfItsOwn) {
  const auto model = OpenTiny({}, OwnGemm());
  TextService alone(model);
  const TextRequest& expected = alone.Submit(RandomTokens(30, 1));
  alone.RunToTheEnd();
  ASSERT_EQ(expected.generation().ids.size(), 20u);

  TextService service(model);
  const TextRequest& good = service.Submit(RandomTokens(30, 1));
  const TextRequest& bad = service.Submit({5, 6, static_cast<TokenId>(kTinyVocab)});
  const TextRequest& too_long = service.Submit(RandomTokens(600, 2));
  service.RunToTheEnd();
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(good.generation().ids, expected.generation().ids);
  EXPECT_EQ(bad.status().error().code, ErrorCode::kInvalid);
  EXPECT_EQ(too_long.status().error().code, ErrorCode::kContextFull);
  EXPECT_EQ(service.ended, std::vector<size_t>{0});
  EXPECT_FALSE(service.scheduler->first_failure().ok());
}

TEST(Scheduler, ACancelledRequestLeavesTheOthersAlone) {
  const auto model = OpenTiny({}, OwnGemm());
  TextService alone(model);
  const TextRequest& expected = alone.Submit(RandomTokens(30, 1));
  alone.RunToTheEnd();
  // In the queue, in the prompt and in the text.
  for (const int rounds : {0, 2, 8}) {
    TextService service(model, 2);
    const TextRequest& good = service.Submit(RandomTokens(30, 1));
    TextRequest& bad = service.Submit(RandomTokens(300, 2));
    const TextRequest& later = service.Submit(RandomTokens(30, 1));
    for (int i = 0; i < rounds; ++i) ExpectOk(service.scheduler->Poll());
    EXPECT_EQ(bad.state(), rounds == 0   ? Request::State::kWaiting
                           : rounds == 2 ? Request::State::kPrompt
                                         : Request::State::kRunning);
    ExpectOk(service.scheduler->Cancel(bad));
    EXPECT_EQ(bad.status().error().code, ErrorCode::kCancelled);
    EXPECT_EQ(bad.generation().finish_reason, FinishReason::kCancelled);
    ExpectOk(service.scheduler->Cancel(bad));  // once is enough
    service.RunToTheEnd();
    EXPECT_EQ(service.ended, (std::vector<size_t>{1, 0, 2}));
    EXPECT_EQ(good.generation().ids, expected.generation().ids);
    EXPECT_EQ(later.generation().ids, expected.generation().ids);
    EXPECT_TRUE(service.scheduler->first_failure().ok());
  }
}

TEST(Scheduler, HigherPrioritiesBeginFirst) {
  TextService service(OpenTiny({}, OwnGemm()), 1);
  service.Submit(RandomTokens(10, 1), 0);
  service.Submit(RandomTokens(10, 2), 1);
  service.Submit(RandomTokens(10, 3), 0);
  service.Submit(RandomTokens(10, 4), 1);
  service.RunToTheEnd();
  EXPECT_EQ(service.ended, (std::vector<size_t>{1, 3, 0, 2}));
}

TEST(Scheduler, WhatHasNotEndedIsFreedWithIt) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, OneThread(KvType::kF16, 2));
  GenerateOptions generate;
  std::deque<TextRequest> texts;
  {
    Scheduler scheduler(*runner, {.prompt_slice = 64});
    for (int i = 0; i < 3; ++i) {
      const std::vector<TokenId> prompt = RandomTokens(i == 0 ? 20 : 200, 1);
      texts.emplace_back(TextRequest::Setup{.tokenizer = SharedTokenizer(model),
                                            .input = std::make_shared<TextInput>(TextInput{prompt}),
                                            .options = generate,
                                            .vocab_size = model->vocab_size()});
      scheduler.Submit(texts.back());
    }
    ExpectOk(scheduler.Poll());
    ExpectOk(scheduler.Poll());
    EXPECT_EQ(runner->stats().sequences, 2);
  }
  EXPECT_EQ(runner->stats().sequences, 0);
  EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
}

// Requests that come, are cancelled and wait for memory at random, on caches of every kind: those
// that end well have the texts that they have alone.
TEST_P(RunnerKinds, RandomLoadNeverChangesAText) {
  const auto model = OpenModel();
  GenerateOptions generate;
  generate.max_tokens = 40;
  generate.ignore_eos = true;
  std::vector<std::vector<TokenId>> prompts;
  for (const int64_t length : {1, 20, 63, 64, 150, 200}) {
    prompts.push_back(RandomTokens(static_cast<size_t>(length), static_cast<uint32_t>(length)));
  }
  const auto setup = [&](size_t prompt) {
    SamplingOptions sampling;
    sampling.seed = prompt;
    return TextRequest::Setup{.tokenizer = SharedTokenizer(model),
                              .input = std::make_shared<TextInput>(TextInput{prompts[prompt]}),
                              .options = generate,
                              .sampling = sampling,
                              .vocab_size = model->vocab_size()};
  };
  std::vector<std::vector<TokenId>> alone;
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto runner = OpenRunner(model, OneThread(GetParam().type, 1));
    TextRequest text(setup(i));
    Scheduler scheduler(*runner, {});
    scheduler.Submit(text);
    while (!scheduler.idle()) ExpectOk(scheduler.Poll());
    alone.push_back(text.generation().ids);
    ASSERT_EQ(alone.back().size(), 40u);
  }
  std::mt19937 random(3);
  for (const int64_t slice : {0, 64}) {
    SessionOptions session = OneThread(GetParam().type, 4);
    session.kv_bytes_max = PlanMemory(*model, OneThread(GetParam().type, 1))->kv / 3;
    auto runner = OpenRunner(model, session);
    std::deque<std::pair<TextRequest, size_t>> texts;
    Scheduler scheduler(*runner, {.prompt_slice = slice});
    while (texts.size() < 30 || !scheduler.idle()) {
      if (texts.size() < 30 && random() % 4 == 0) {
        const size_t prompt = random() % prompts.size();
        texts.emplace_back(setup(prompt), prompt);
        scheduler.Submit(texts.back().first, {.priority = static_cast<int>(random() % 2)});
      }
      if (!texts.empty() && random() % 60 == 0) {
        ExpectOk(scheduler.Cancel(texts[random() % texts.size()].first));
      }
      ExpectOk(scheduler.Poll());
      ASSERT_FALSE(HasFailure());
    }
    int whole = 0;
    for (const auto& [text, prompt] : texts) {
      const std::vector<TokenId>& ids = text.generation().ids;
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), alone[prompt].begin()));
      EXPECT_EQ(ids.size() == 40, text.status().ok());
      whole += text.status().ok() ? 1 : 0;
    }
    EXPECT_GT(whole, 15);
    EXPECT_EQ(runner->stats().sequences, 0);
    EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  }
}

// ---- Rows of logits -----------------------------------------------------------------------------

TEST(LogitRows, AreSharedByReferenceAndUsedAgain) {
  run::LogitRows rows(3);
  EXPECT_TRUE(rows.values(run::LogitRows::kNone).empty());
  const auto a = rows.Take();
  rows.values(a)[2] = 7;
  rows.AddReference(a);
  rows.Release(a);
  const auto b = rows.Take();
  EXPECT_NE(a, b);
  EXPECT_EQ(rows.values(a)[2], 7);
  rows.Release(a);
  EXPECT_EQ(rows.Take(), a);
  EXPECT_EQ(rows.rows(), 2u);
  rows.Reserve(2);
  EXPECT_EQ(rows.rows(), 4u);
  rows.AddReference(run::LogitRows::kNone);
  rows.Release(run::LogitRows::kNone);
}

// There is memory for as many rows as have different logits, and for the step that replaces them.
TEST(LogitRows, ForksTakeNone) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, OneThread(KvType::kF16, 40));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(10, 1)));
  for (int i = 1; i < 40; ++i) {
    const auto fork = runner->Fork(id);
    ASSERT_TRUE(fork.ok());
    EXPECT_EQ(runner->logits(*fork).data(), runner->logits(id).data());
  }
}

}  // namespace
}  // namespace kvant::test
