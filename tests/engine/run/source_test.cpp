// Sources of encoder-decoders in a runner: encoded once, shared by whatever reads them, and given
// back. Names begin with the number of the check.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kvant/beam_generator.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/seeded_sources.h"

namespace kvant::test {
namespace {

class Sources : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = seeded_.Open(OwnGemm());
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<Runner> Open(int64_t sequences, KvType type = KvType::kF32) const {
    SessionOptions options = Options(type, sequences);
    options.context = 96;
    return OpenRunner(model_, options);
  }

  static SourceId Encode(Runner& runner, std::span<const TokenId> tokens) {
    const auto source = runner.Encode(tokens);
    EXPECT_TRUE(source.ok()) << source.error().message;
    return source.ok() ? *source : -1;
  }

  static SequenceId NewOf(Runner& runner, SourceId source) {
    const auto sequence = runner.NewSequence(source);
    EXPECT_TRUE(sequence.ok()) << sequence.error().message;
    return sequence.ok() ? *sequence : -1;
  }

  static std::vector<float> LogitsOf(const Runner& runner, SequenceId sequence) {
    const auto logits = runner.logits(sequence);
    return {logits.begin(), logits.end()};
  }

  // The logits behind these tokens with that source, in a runner of their own; one token a step.
  std::vector<float> Alone(std::span<const TokenId> source, std::span<const TokenId> tokens,
                           KvType type = KvType::kF32) const {
    const auto runner = Open(1, type);
    const SequenceId sequence = NewOf(*runner, Encode(*runner, source));
    for (const TokenId& token : tokens) ExpectOk(runner->Append(sequence, {&token, 1}));
    return LogitsOf(*runner, sequence);
  }

  std::vector<float> EncodedRows(Runner& runner, std::span<const TokenId> tokens) const {
    std::vector<float> rows;
    const auto source = runner.Encode(tokens, {.rows = [&](std::span<const float> found) -> Status {
                                        rows.assign(found.begin(), found.end());
                                        return {};
                                      }});
    EXPECT_TRUE(source.ok()) << source.error().message;
    if (source.ok()) ExpectOk(runner.FreeSource(*source));
    return rows;
  }

  SeededModel seeded_{std::string(kSeededPairs) + GetParam()};
  std::shared_ptr<const Model> model_;
};

INSTANTIATE_TEST_SUITE_P(Seeded, Sources, testing::Values("t5", "bart", "m2m100"));

// Steps write only what the decoder's own layers keep, however many sequences read the source.
TEST_P(Sources, AreEncodedOnceForAllBeams) {
  for (const int64_t beams : {1, 16}) {
    const auto runner = Open(beams);
    const SequenceId first = NewOf(*runner, Encode(*runner, Source(40)));
    std::vector<SequenceId> all = {first};
    while (std::ssize(all) < beams) {
      const auto fork = runner->Fork(first);
      ASSERT_TRUE(fork.ok());
      all.push_back(*fork);
    }
    const uint64_t encoded = runner->stats().kv_bytes_written;
    const TokenId token = 5;
    std::vector<StepInput> inputs;
    for (const SequenceId id : all) inputs.push_back({id, {&token, 1}});
    constexpr uint64_t kSteps = 20;
    for (uint64_t step = 0; step < kSteps; ++step) ExpectOk(runner->Step(inputs));
    const RunnerStats stats = runner->stats();
    EXPECT_EQ(stats.encoder_passes, 1u);
    const arch::Stack& decoder = model_->spec().stacks.front();
    const auto& attention = std::get<arch::Attention>(decoder.layers[0].sublayers[0].block);
    const auto numbers =
        static_cast<uint64_t>(attention.heads * (attention.k_dim + attention.v_dim));
    const uint64_t of_token = decoder.layers.size() * numbers * sizeof(float);
    EXPECT_EQ(stats.kv_bytes_written - encoded, kSteps * static_cast<uint64_t>(beams) * of_token);
  }
}

TEST_P(Sources, SurviveRandomForksAndReorders) {
  constexpr int kSequences = 8;
  const auto runner = Open(kSequences);
  const SourceId source = Encode(*runner, Source(50));
  std::vector<SequenceId> all;
  for (int i = 0; i < kSequences; ++i) all.push_back(NewOf(*runner, source));
  const uint64_t used = runner->stats().kv_bytes_used;
  std::mt19937 random(5);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  for (int round = 0; round < 10000; ++round) {
    if (below(4) == 0) {
      const size_t at = below(all.size());
      const SequenceId parent = all[(at + 1 + below(all.size() - 1)) % all.size()];
      ExpectOk(runner->FreeSequence(all[at]));
      const auto fork = runner->Fork(parent);
      ASSERT_TRUE(fork.ok()) << fork.error().message;
      all[at] = *fork;
    } else {
      std::vector<int> parents;
      for (size_t i = 0; i < all.size(); ++i)
        parents.push_back(static_cast<int>(below(all.size())));
      ExpectOk(runner->Reorder(all, parents));
    }
  }
  EXPECT_EQ(runner->stats().kv_blocks_copied, 0u);
  EXPECT_EQ(runner->stats().kv_bytes_used, used);
  EXPECT_EQ(runner->stats().encoder_passes, 1u);
  ExpectOk(runner->FreeSource(source));
  for (const SequenceId id : all) ExpectOk(runner->FreeSequence(id));
  ExpectOk(runner->Check());
}

TEST_P(Sources, RewindsKeepTheSource) {
  const std::vector<TokenId> source = Source(40);
  const std::vector<TokenId> tokens = RandomTokens(20, 9, kSourceVocab);
  const std::vector<float> expected = Alone(source, tokens);
  const auto runner = Open(1);
  const SequenceId sequence = NewOf(*runner, Encode(*runner, source));
  ExpectOk(runner->Append(sequence, RandomTokens(30, 8, kSourceVocab)));
  for (const size_t kept : {size_t{0}, size_t{7}}) {
    ExpectOk(runner->Rewind(sequence, static_cast<int64_t>(kept)));
    for (size_t i = kept; i < tokens.size(); ++i) {
      ExpectOk(runner->Append(sequence, std::span(tokens).subspan(i, 1)));
    }
    EXPECT_EQ(LogitsOf(*runner, sequence), expected) << kept;
  }
  EXPECT_EQ(runner->stats().encoder_passes, 1u);
}

TEST_P(Sources, AnEmptySequenceMayTakeAnotherSource) {
  const std::vector<TokenId> second = Source(25, 4);
  const std::vector<TokenId> tokens = RandomTokens(6, 9, kSourceVocab);
  const auto runner = Open(2);
  const SourceId first = Encode(*runner, Source(40));
  const SequenceId sequence = NewOf(*runner, first);
  ExpectOk(runner->Append(sequence, tokens));
  const SourceId other = Encode(*runner, second);
  const Status busy = runner->SetSource(sequence, other);
  ASSERT_FALSE(busy.ok());
  EXPECT_EQ(busy.error().code, ErrorCode::kInvalid);
  ExpectOk(runner->Reset(sequence));
  ExpectOk(runner->SetSource(sequence, other));
  for (const TokenId& token : tokens) ExpectOk(runner->Append(sequence, {&token, 1}));
  EXPECT_EQ(LogitsOf(*runner, sequence), Alone(second, tokens));
  ExpectOk(runner->Check());
}

TEST_P(Sources, GoInAnyOrder) {
  const std::vector<TokenId> token = {4};
  std::vector<int> order = {0, 1, 2, 3};
  do {
    const auto runner = Open(3);
    const SourceId source = Encode(*runner, Source(33));
    const SequenceId parent = NewOf(*runner, source);
    ExpectOk(runner->Append(parent, token));
    const auto child = runner->Fork(parent);
    ASSERT_TRUE(child.ok());
    ExpectOk(runner->Append(*child, token));
    const SequenceId other = NewOf(*runner, source);
    for (const int what : order) {
      ExpectOk(what == 0   ? runner->FreeSource(source)
               : what == 1 ? runner->FreeSequence(parent)
               : what == 2 ? runner->FreeSequence(*child)
                           : runner->FreeSequence(other));
      ExpectOk(runner->Check());
    }
    EXPECT_EQ(runner->stats().sequences, 0);
    EXPECT_FALSE(runner->FreeSource(source).ok());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(Sources, OfDifferentLengthsShareAStep) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const auto runner = Open(5, type);
    std::vector<std::vector<TokenId>> sources;
    std::vector<SequenceId> all;
    for (const int64_t length : {1, 31, 32, 33, 90}) {
      sources.push_back(Source(length, static_cast<unsigned>(length)));
      all.push_back(NewOf(*runner, Encode(*runner, sources.back())));
    }
    const std::vector<TokenId> tokens = RandomTokens(5, 9, kSourceVocab);
    for (const TokenId& token : tokens) {
      std::vector<StepInput> inputs;
      for (const SequenceId id : all) inputs.push_back({id, {&token, 1}});
      ExpectOk(runner->Step(inputs));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(LogitsOf(*runner, all[i]), Alone(sources[i], tokens, type)) << i;
    }
  }
}

TEST_P(Sources, EncoderComputesWhatTheReferenceComputes) {
  const auto path = seeded_.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto file = formats::GgufFile::Open(*path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto runner = Open(1);
  for (const int64_t length : {1, 2, 31, 32, 33, 90}) {
    std::vector<TokenId> tokens = Source(length);
    ReferenceForward reference(*file);
    const std::vector<Vector> expected = reference.Encode(tokens);
    const std::vector<float> rows = EncodedRows(*runner, tokens);
    const size_t dim = expected.front().size();
    ASSERT_EQ(rows.size(), expected.size() * dim);
    double worst = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      worst = std::max(worst, std::abs(double{rows[i]} - expected[i / dim][i % dim]));
    }
    EXPECT_LE(worst, 5e-5) << length;
    // The first position sees the last one.
    tokens.back() = tokens.back() == 7 ? 8 : 7;
    const std::vector<float> other = EncodedRows(*runner, tokens);
    EXPECT_FALSE(
        std::equal(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(dim), other.begin()))
        << length;
  }
}

TEST_P(Sources, ThreadsChangeNothingAndTooLongOnesAreRefused) {
  const std::vector<TokenId> tokens = Source(70);
  std::vector<float> expected;
  for (const int threads : {1, 2, 3, 5, 8}) {
    SessionOptions options = Options(KvType::kF32, 1);
    options.threads = threads;
    const auto runner = OpenRunner(model_, options);
    const std::vector<float> rows = EncodedRows(*runner, tokens);
    if (expected.empty()) expected = rows;
    EXPECT_EQ(rows, expected) << threads;
  }
  const auto runner = Open(1);
  const auto refused = runner->Encode(Source(model_->source_length() + 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kContextFull);
  EXPECT_NE(refused.error().message.find(std::to_string(model_->source_length())),
            std::string::npos);
  EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  EXPECT_EQ(runner->stats().encoder_passes, 0u);
}

TEST_P(Sources, HaveATypeOfTheirOwn) {
  const std::vector<TokenId> tokens = RandomTokens(20, 9, kSourceVocab);
  std::vector<std::vector<float>> found;
  for (const bool small : {false, true}) {
    SessionOptions options = Options(KvType::kF32, 1);
    if (small) options.source_k_type = options.source_v_type = KvType::kQ8;
    const auto runner = OpenRunner(model_, options);
    const SequenceId sequence = NewOf(*runner, Encode(*runner, Source(60)));
    for (const TokenId& token : tokens) ExpectOk(runner->Append(sequence, {&token, 1}));
    found.push_back(LogitsOf(*runner, sequence));
  }
  EXPECT_NE(found[0], found[1]);
  EXPECT_LT(MeanDivergence(found[0], found[1], 1), 0.01);
}

TEST_P(Sources, KnownBeginningsAreThoseOfTheSameSource) {
  SessionOptions options = Options(KvType::kF16, 3);
  options.prefix_cache = true;
  const auto runner = OpenRunner(model_, options);
  const std::vector<TokenId> tokens = RandomTokens(70, 9, kSourceVocab);
  const auto expect = [&](std::span<const TokenId> source, uint64_t reused, uint64_t passes) {
    const SourceId id = Encode(*runner, source);
    const SequenceId sequence = NewOf(*runner, id);
    const RunnerStats before = runner->stats();
    ExpectOk(runner->Append(sequence, tokens));
    const RunnerStats after = runner->stats();
    EXPECT_EQ(after.tokens_reused - before.tokens_reused, reused);
    EXPECT_EQ(after.encoder_passes, passes);
    const auto alone = OpenRunner(model_, Options(KvType::kF16, 1));
    const SequenceId own = NewOf(*alone, Encode(*alone, source));
    ExpectOk(alone->Append(own, std::span(tokens).first(64)));
    ExpectOk(alone->Append(own, std::span(tokens).subspan(64)));
    EXPECT_LE(MaxDifference(runner->logits(sequence), alone->logits(own)), 1e-4);
    ExpectOk(runner->FreeSequence(sequence));
    ExpectOk(runner->FreeSource(id));
    ExpectOk(runner->Check());
  };
  const std::vector<TokenId> first = Source(40, 3);
  const std::vector<TokenId> second = Source(40, 4);
  expect(first, 0, 1);
  expect(second, 0, 2);
  expect(first, 64, 2);
  expect(second, 64, 2);
  // Several more sources take the place of these; what was known of them must not be found.
  for (unsigned seed = 10; seed < 14; ++seed) expect(Source(40, seed), 0, 3 + seed - 10);
  expect(first, 0, 7);
}

TEST_P(Sources, AreThereWhereAModelReadsThemAndNowhereElse) {
  const auto runner = Open(1);
  const SequenceId sequence = NewSequence(*runner);
  const Status none = runner->Append(sequence, Source(2));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(runner->stats().passes, 0u);
  const auto decoder = SeededModel("gpt2").Open();
  const auto other = OpenRunner(decoder, Options(KvType::kF32, 1));
  const auto refused = other->Encode(Source(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
}

TEST_P(Sources, CancelledOnesLeaveNothing) {
  const auto runner = Open(1);
  const std::atomic<bool> cancel = true;
  const auto cancelled = runner->Encode(Source(40), {.cancel = &cancel});
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  ExpectOk(runner->Check());
  const std::vector<TokenId> tokens = {5, 6};
  const SequenceId sequence = NewOf(*runner, Encode(*runner, Source(40)));
  for (const TokenId& token : tokens) ExpectOk(runner->Append(sequence, {&token, 1}));
  EXPECT_EQ(LogitsOf(*runner, sequence), Alone(Source(40), tokens));
}

TEST_P(Sources, AThousandEncodesOfFourSourcesTakeNoMoreMemory) {
  const auto runner = Open(4);
  for (unsigned i = 0; i < 4; ++i) Encode(*runner, Source(40, i));
  const uint64_t used = runner->stats().kv_bytes_used;
  const uint64_t peak = runner->stats().kv_bytes_peak;  // while the encoder kept keys of its own
  for (unsigned i = 0; i < 1000; ++i) {
    ExpectOk(runner->FreeSource(Encode(*runner, Source(40, i % 4))));
  }
  EXPECT_EQ(runner->stats().kv_bytes_used, used);
  EXPECT_EQ(runner->stats().kv_bytes_peak, peak);
  EXPECT_EQ(runner->stats().encoder_passes, 4u);
}

// Sources of waiting requests come when these begin, and equal ones are encoded once.
TEST_P(Sources, SearchesReadThem) {
  const auto runner = Open(6);
  std::vector<std::vector<TokenId>> sources;
  for (const unsigned seed : {1u, 2u, 1u, 3u, 2u}) sources.push_back(Source(30 + seed, seed));
  const std::vector<std::vector<TokenId>> prompts(sources.size(), {3});
  BeamGenerateOptions options;
  options.search.beams = 3;
  options.search.max_new_tokens = 12;
  options.search.end_tokens = {2};
  options.parallel = 2;
  options.sources = sources;
  const auto together = GenerateBeams(*runner, prompts, options);
  ASSERT_TRUE(together.ok()) << together.error().message;
  ASSERT_EQ(together->size(), sources.size());
  EXPECT_EQ(runner->stats().sequences, 0);
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto own = Open(3);
    options.sources = std::span(sources).subspan(i, 1);
    const auto alone = GenerateBeams(*own, std::span(prompts).first(1), options);
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    const BeamHypothesis& expected = alone->front().hypotheses.front();
    const BeamHypothesis& found = (*together)[i].hypotheses.front();
    EXPECT_EQ(found.ids, expected.ids) << i;
    EXPECT_EQ(found.score, expected.score) << i;
  }
  options.sources = std::span(sources).first(2);
  const auto wrong = GenerateBeams(*runner, prompts, options);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace kvant::test
