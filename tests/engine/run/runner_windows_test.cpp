// The borders of sliding windows, to the position: how far a rewind goes without computing anything
// again, how many blocks a sequence holds at most, and whether exactly so much memory is enough.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/kv/kv_cache.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

std::vector<Kind> KindsWithWindows() {
  std::vector<Kind> kinds = Kinds();
  std::erase_if(kinds, [](const Kind& kind) { return kind.window == 0; });
  return kinds;
}

class RunnerWindows : public RunnerKinds {
 protected:
  // The shortest length to which a copy of the sequence goes back without a replay.
  static int64_t RewindLimit(Runner& runner, SequenceId id) {
    int64_t limit = runner.length(id);
    for (bool can = true; can && limit > 1;) {
      const SequenceId copy = *runner.Fork(id);
      can = runner.Rewind(copy, limit - 1, Replay::kForbidden).ok();
      limit -= can ? 1 : 0;
      ExpectOk(runner.FreeSequence(copy));
    }
    return limit;
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, RunnerWindows, testing::ValuesIn(KindsWithWindows()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Positions behind a window are dropped by whole blocks. So a rewind of kRewindSlack tokens needs
// no replay, and one of a block more always does. At one length in 32 a rewind of kRewindSlack
// tokens is the longest without a replay.
TEST_P(RunnerWindows, RewindsReachBackOverTheSlackAndLessThanABlockMore) {
  SessionOptions options = Options(GetParam().type, 2);
  options.threads = 1;
  const auto runner = OpenRunner(OpenModel(), options);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(500, 1)));
  std::set<int64_t> reach;
  for (int64_t length = 501; length <= 500 + kv::kBlockTokens; ++length) {
    const TokenId token = 5;
    ExpectOk(runner->Append(id, {&token, 1}));
    reach.insert(length - RewindLimit(*runner, id));
  }
  if (GetParam().has_sections()) {
    EXPECT_GE(*reach.begin(), kv::kRewindSlack);
    EXPECT_LT(*reach.rbegin(), GetParam().RewindMost());
    return;
  }
  EXPECT_EQ(*reach.begin(), kv::kRewindSlack);
  EXPECT_EQ(*reach.rbegin(), GetParam().RewindMost() - 1);
  EXPECT_EQ(std::ssize(reach), kv::kBlockTokens);
  EXPECT_EQ(runner->stats().replays, 0u);
}

// A rewind to the limit gives the bits of a sequence that was never longer; memory that was given
// up is poisoned.
TEST_P(RunnerWindows, ARewindToTheLimitIsExactAndOneFurtherIsReplayed) {
  const auto model = OpenModel();
  const auto runner = OpenRunner(model, Options(GetParam().type, 2));
  const SequenceId id = NewSequence(*runner);
  const std::vector<TokenId> more = RandomTokens(40, 8);
  for (const int64_t length : {501, 512, 513, 544, 560, 576, 577, 600}) {
    const std::vector<TokenId> tokens = RandomTokens(static_cast<size_t>(length), 7);
    for (const int64_t below : {0, 1}) {
      ExpectOk(runner->Reset(id));
      ExpectOk(runner->Append(id, tokens));
      const int64_t target = RewindLimit(*runner, id) - below;
      const uint64_t replays = runner->stats().replays;
      ExpectOk(runner->Rewind(id, target));
      EXPECT_EQ(runner->stats().replays - replays, static_cast<uint64_t>(below)) << length;
      std::vector<TokenId> straight(tokens.begin(), tokens.begin() + target);
      for (const TokenId token : more) {
        straight.push_back(token);
        ExpectOk(runner->Append(id, {&token, 1}));
      }
      ASSERT_EQ(MaxDifference(runner->logits(id), LogitsAlone(model, GetParam().type, straight)),
                0.0)
          << "from " << length << " to " << target;
    }
  }
}

// A long sequence takes the planned memory to the byte at its peak, in every group. With so much as
// its budget it grows to the end; with one byte less it is refused somewhere, unchanged.
TEST_P(RunnerWindows, ThePlannedMemoryIsEnoughAndOneByteLessIsNot) {
  const auto model = OpenModel();
  for (const int64_t chunk : {1, 17}) {  // so that passes begin at every place in a block
    SessionOptions options = Options(GetParam().type, 1);
    options.kv_check = options.kv_poison = false;
    options.threads = 1;
    options.chunk = chunk;
    const auto plan = PlanMemory(*model, options);
    ASSERT_TRUE(plan.ok());
    const std::vector<TokenId> tokens = RandomTokens(900, 3);
    for (const uint64_t budget : {uint64_t{0}, plan->kv, plan->kv - 1}) {
      options.kv_bytes_max = budget;
      const auto runner = OpenRunner(model, options);
      const SequenceId id = NewSequence(*runner);
      Status status;
      int64_t length = 0;
      for (; length < 900 && status.ok(); length = runner->length(id)) {
        const int64_t count = std::min(chunk, 900 - length);
        status = runner->Append(
            id, std::span(tokens).subspan(static_cast<size_t>(length), static_cast<size_t>(count)));
        EXPECT_TRUE(status.ok() || runner->length(id) == length);
      }
      if (GetParam().has_sections()) {
        // A section need not need most at the end, where other groups do.
        EXPECT_LE(runner->stats().kv_bytes_peak, plan->kv) << "chunk " << chunk;
        if (budget != plan->kv - 1) ExpectOk(status);
      } else if (budget == plan->kv - 1) {
        ASSERT_FALSE(status.ok()) << "chunk " << chunk;
        EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
      } else {
        ExpectOk(status);
        EXPECT_EQ(runner->stats().kv_bytes_peak, plan->kv) << "chunk " << chunk;
      }
    }
  }
}

}  // namespace
}  // namespace kvant::test
