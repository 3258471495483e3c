// Sequences that a runner takes over from another one: what follows has the bits that it has where
// they come from, blocks are shared as they were there, and a refusal leaves no trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "kvant/runner.h"
#include "tests/engine/run/recurrent_kinds.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/run/seeded_sources.h"

namespace kvant::test {
namespace {

std::vector<SequenceId> TakenOver(Runner& to, const Runner& from, std::span<const SequenceId> ids) {
  const auto taken = to.Adopt(from, ids);
  EXPECT_TRUE(taken.ok()) << taken.error().message;
  ExpectOk(to.Check());
  return taken.ok() ? *taken : std::vector<SequenceId>(ids.size(), -1);
}

void ExpectEqual(const Runner& a, std::span<const SequenceId> of_a, const Runner& b,
                 std::span<const SequenceId> of_b) {
  for (size_t i = 0; i < of_a.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(a.tokens(of_a[i]), b.tokens(of_b[i]))) << i;
    EXPECT_TRUE(std::ranges::equal(a.logits(of_a[i]), b.logits(of_b[i]))) << i;
  }
}

void ExpectSameSteps(Runner& a, std::span<const SequenceId> of_a, Runner& b,
                     std::span<const SequenceId> of_b, int steps, int vocab) {
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < of_a.size(); ++i) {
      const auto token = static_cast<TokenId>((5 + step * 13 + static_cast<int>(i)) % vocab);
      ExpectOk(a.Append(of_a[i], {&token, 1}));
      ExpectOk(b.Append(of_b[i], {&token, 1}));
      ASSERT_FALSE(a.logits(of_a[i]).empty());
      ASSERT_TRUE(std::ranges::equal(a.logits(of_a[i]), b.logits(of_b[i]))) << step << " " << i;
    }
  }
}

void ExpectEmptyAfter(Runner& runner, std::span<const SequenceId> ids) {
  for (const SequenceId id : ids) ExpectOk(runner.FreeSequence(id));
  EXPECT_EQ(runner.stats().kv_bytes_used, 0u);
  ExpectOk(runner.Check());
}

// ---- Kinds of caches ----------------------------------------------------------------------------

class TransferKinds : public RunnerKinds {
 protected:
  // Two forks past a window, one of them with a hole, a short sequence and an empty one.
  static std::vector<SequenceId> Write(Runner& runner) {
    const SequenceId first = NewSequence(runner);
    ExpectOk(runner.Append(first, RandomTokens(330, 1)));
    const SequenceId second = *runner.Fork(first);
    ExpectOk(runner.Append(second, RandomTokens(30, 2)));
    if (GetParam().window == 0) {
      ExpectOk(runner.Prune(second, 10, 50, PrunePositions::kKept));
    }
    const SequenceId third = NewSequence(runner);
    ExpectOk(runner.Append(third, RandomTokens(5, 3)));
    return {first, second, third, NewSequence(runner)};
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, TransferKinds, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(TransferKinds, GoesOnWithTheSameBits) {
  const auto model = OpenModel();
  const auto from = OpenRunner(model, Options(GetParam().type, 4));
  const std::vector<SequenceId> ids = Write(*from);
  const auto to = OpenRunner(model, Options(GetParam().type, 6));
  ExpectOk(to->Append(NewSequence(*to), RandomTokens(40, 9)));  // so that block numbers differ
  const uint64_t before = to->stats().kv_bytes_used;
  const std::vector<SequenceId> taken = TakenOver(*to, *from, ids);
  EXPECT_EQ(to->stats().kv_bytes_used - before, from->stats().kv_bytes_used);
  ExpectEqual(*from, ids, *to, taken);
  ExpectSameSteps(*from, ids, *to, taken, 20, 250);
  // Back as far as no replay is needed, before the point of the fork with a replay, and on.
  for (const int64_t length : {300, 100}) {
    ExpectOk(from->Rewind(ids[0], length));
    ExpectOk(to->Rewind(taken[0], length));
    ExpectSameSteps(*from, std::span(ids).first(1), *to, std::span(taken).first(1), 5, 250);
  }
  // The first runner may go.
  ExpectOk(from->Check());
}

TEST_P(TransferKinds, EndsWithoutATrace) {
  const auto model = OpenModel();
  const auto to = OpenRunner(model, Options(GetParam().type, 4));
  std::vector<SequenceId> taken;
  {
    const auto from = OpenRunner(model, Options(GetParam().type, 4));
    const std::vector<SequenceId> ids = Write(*from);
    taken = TakenOver(*to, *from, ids);
    ExpectEmptyAfter(*from, ids);
  }
  const TokenId token = 7;
  for (const SequenceId id : taken) ExpectOk(to->Append(id, {&token, 1}));
  ExpectEmptyAfter(*to, taken);
}

// ---- States -------------------------------------------------------------------------------------

class RecurrentTransfer : public RecurrentModel {};

INSTANTIATE_TEST_SUITE_P(Seeded, RecurrentTransfer, testing::ValuesIn(RecurrentKinds()),
                         RecurrentKindName);

TEST_P(RecurrentTransfer, GoesOnWithTheSameBits) {
  const auto from = Open(Strict(3));
  const SequenceId first = NewSequence(*from);
  for (const TokenId token : Text(70, 1)) ExpectOk(from->Append(first, {&token, 1}));
  const SequenceId second = *from->Fork(first);
  ExpectOk(from->Append(second, Text(40, 2)));
  const std::vector<SequenceId> ids = {first, second};
  const auto to = Open(Strict(3));
  const std::vector<SequenceId> taken = TakenOver(*to, *from, ids);
  EXPECT_EQ(to->stats().kv_bytes_used, from->stats().kv_bytes_used);
  ExpectEqual(*from, ids, *to, taken);
  ExpectSameSteps(*from, ids, *to, taken, 5, 50);
  // To a checkpoint and on by a replay from there.
  const uint64_t replayed = from->stats().tokens_replayed;
  for (size_t i = 0; i < ids.size(); ++i) {
    ExpectOk(from->Rewind(ids[i], 67));
    ExpectOk(to->Rewind(taken[i], 67));
  }
  EXPECT_EQ(to->stats().tokens_replayed, from->stats().tokens_replayed - replayed);
  ExpectSameSteps(*from, ids, *to, taken, 5, 50);
  ExpectEmptyAfter(*to, taken);
}

// ---- Sources ------------------------------------------------------------------------------------

class SourceTransfer : public testing::TestWithParam<std::tuple<const char*, KvType>> {};

INSTANTIATE_TEST_SUITE_P(Seeded, SourceTransfer,
                         testing::Combine(testing::Values("t5", "bart"),
                                          testing::Values(KvType::kF32, KvType::kQ8)));

TEST_P(SourceTransfer, TakesSourcesAlong) {
  SeededModel seeded(std::string(kSeededPairs) + std::get<0>(GetParam()));
  const auto model = seeded.Open(OwnGemm());
  ASSERT_NE(model, nullptr);
  SessionOptions options = Options(std::get<KvType>(GetParam()), 4);
  options.context = 96;
  const auto from = OpenRunner(model, options);
  const auto first = from->NewSequenceOf(Source(70, 3));
  const auto other = from->NewSequenceOf(Source(33, 4));
  ASSERT_TRUE(first.ok() && other.ok());
  ExpectOk(from->Append(*first, RandomTokens(43, 13, kSourceVocab)));
  ExpectOk(from->Append(*other, RandomTokens(4, 14, kSourceVocab)));
  const std::vector<SequenceId> ids = {*first, *from->Fork(*first), *other};
  const auto to = OpenRunner(model, options);
  const std::vector<SequenceId> taken = TakenOver(*to, *from, ids);
  EXPECT_EQ(to->stats().encoder_passes, 0u);
  EXPECT_EQ(to->stats().kv_bytes_used, from->stats().kv_bytes_used);
  ExpectEqual(*from, ids, *to, taken);
  ExpectSameSteps(*from, ids, *to, taken, 10, kSourceVocab);
  // The source is known to the runner from then on.
  ASSERT_TRUE(to->NewSequenceOf(Source(70, 3)).ok());
  EXPECT_EQ(to->stats().encoder_passes, 0u);
}

// ---- Refusals -----------------------------------------------------------------------------------

class RefusedTransfer : public testing::Test {
 protected:
  void SetUp() override {
    from_ = OpenRunner(model_, Options(KvType::kF16, 2));
    id_ = NewSequence(*from_);
    ExpectOk(from_->Append(id_, RandomTokens(100, 1)));
  }

  void ExpectRefused(Runner& to, std::span<const SequenceId> ids, ErrorCode code,
                     const char* message) const {
    const auto refused = to.Adopt(*from_, ids);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, code);
    EXPECT_THAT(refused.error().message, testing::HasSubstr(message));
    EXPECT_EQ(to.stats().sequences, 0);
    EXPECT_EQ(to.stats().kv_bytes_used, 0u);
    ExpectOk(to.Check());
  }
  void ExpectRefused(const SessionOptions& options, ErrorCode code, const char* message) const {
    ExpectRefused(*OpenRunner(model_, options), {&id_, 1}, code, message);
  }

  std::shared_ptr<const Model> model_ = OpenTiny(TinyShape(), OwnGemm());
  std::unique_ptr<Runner> from_;
  SequenceId id_ = -1;
};

TEST_F(RefusedTransfer, NamesWhatDiffers) {
  ExpectRefused(Options(KvType::kQ8, 1), ErrorCode::kNotSupported, "adopt: the KV caches have");
  SessionOptions options = Options(KvType::kF16, 1);
  options.kv_cache = false;
  ExpectRefused(options, ErrorCode::kNotSupported, "adopt: there is no KV cache");
  options = Options(KvType::kF16, 1);
  options.context = 99;
  ExpectRefused(options, ErrorCode::kContextFull, "100 tokens do not fit the context of 99");
  TinyShape shape;
  shape.seed = 2;
  const auto other = OpenTiny(shape, OwnGemm());
  ExpectRefused(*OpenRunner(other, Options(KvType::kF16, 1)), {&id_, 1}, ErrorCode::kNotSupported,
                "adopt: the other runner has another model");
  const SequenceId unknown = 7;
  ExpectRefused(*OpenRunner(model_, Options(KvType::kF16, 1)), {&unknown, 1}, ErrorCode::kInvalid,
                "sequence 7 does not exist");
  const auto itself = from_->Adopt(*from_, {&id_, 1});
  ASSERT_FALSE(itself.ok());
  EXPECT_EQ(itself.error().code, ErrorCode::kInvalid);
}

TEST_F(RefusedTransfer, NeedsRoom) {
  const SequenceId copy = *from_->Fork(id_);
  const std::vector<SequenceId> both = {id_, copy};
  ExpectRefused(*OpenRunner(model_, Options(KvType::kF16, 1)), both, ErrorCode::kOutOfMemory,
                "adopt: 2 sequences, but there is room for 1");
  SessionOptions options = Options(KvType::kF16, 1);
  options.kv_bytes_max = from_->stats().kv_bytes_used - 1;
  ExpectRefused(options, ErrorCode::kOutOfMemory, "adopt: KV cache: ");
}

// A model that was opened twice is one model; the runner shares the tokens, all but the last one,
// with the sequence that it has taken over.
TEST_F(RefusedTransfer, IsNoneForAModelThatWasOpenedTwice) {
  SessionOptions options = Options(KvType::kF16, 2);
  options.prefix_cache = true;
  const auto to = OpenRunner(OpenTiny(TinyShape(), OwnGemm()), options);
  const std::vector<SequenceId> taken = TakenOver(*to, *from_, {&id_, 1});
  ExpectEqual(*from_, {&id_, 1}, *to, taken);
  const auto reused = to->ReusePrefix(NewSequence(*to), from_->tokens(id_));
  ASSERT_TRUE(reused.ok());
  EXPECT_EQ(*reused, 99);
}

}  // namespace
}  // namespace kvant::test
