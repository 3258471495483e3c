// Random programs of every operation of Runner. What a sequence should hold is a list of tokens;
// its logits are compared, bit for bit, with a session that is given these.
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "tests/engine/runner_kinds.h"

namespace kvant::test {
namespace {

constexpr size_t kSequences = 4;
constexpr size_t kContext = 900;

class RunnerProgram {
 public:
  RunnerProgram(std::shared_ptr<const Model> model, KvElement type)
      : model_(std::move(model)), type_(type), texts_(kSequences) {
    SessionOptions options = Options(type, kSequences);
    options.chunk = 48;
    runner_ = OpenRunner(model_, options);
    for (size_t i = 0; i < kSequences; ++i) ids_.push_back(NewSequence(*runner_));
  }

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      const size_t s = Below(kSequences);
      switch (Below(7)) {
        case 0:
        case 1:
        case 2: Step(s); break;
        case 3: Reorder(); break;
        case 4: Rewind(s); break;
        case 5: Snapshot(s); break;
        default:
          if (Below(3) == 0) Replace(s);
          break;
      }
      Compare(s, i);
    }
  }

  // Frees all that there is; nothing may be left.
  void End() {
    for (const SequenceId id : ids_) ExpectOk(runner_->FreeSequence(id));
    if (snapshot_ >= 0) ExpectOk(runner_->DropSnapshot(snapshot_));
    EXPECT_EQ(runner_->stats().kv_bytes_used, 0u);
    EXPECT_GT(compared_, 20);
  }

 private:
  size_t Below(size_t bound) {
    return static_cast<size_t>(random_() % static_cast<uint32_t>(bound));
  }

  // New tokens for this sequence and some others at once.
  void Step(size_t s) {
    std::vector<size_t> members;
    for (size_t i = 0; i < kSequences; ++i) {
      if (i != s && Below(2) == 0) continue;
      const size_t count = Below(4) == 0 ? 1 + Below(90) : 1 + Below(3);
      if (texts_[i].size() + count > kContext) continue;
      const std::vector<TokenId> more =
          RandomTokens(static_cast<int64_t>(count), static_cast<uint32_t>(random_()));
      texts_[i].insert(texts_[i].end(), more.begin(), more.end());
      members.push_back(i);
    }
    std::vector<StepInput> inputs;
    for (const size_t i : members) {
      const size_t done = static_cast<size_t>(runner_->length(ids_[i]));
      inputs.push_back({ids_[i], std::span(texts_[i]).subspan(done)});
    }
    if (!inputs.empty()) ExpectOk(runner_->Step(inputs));
  }

  void Reorder() {
    std::vector<int> parents;
    std::vector<std::vector<TokenId>> next;
    for (size_t i = 0; i < kSequences; ++i) {
      parents.push_back(static_cast<int>(Below(2) == 0 ? i : Below(kSequences)));
      next.push_back(texts_[static_cast<size_t>(parents.back())]);
    }
    ExpectOk(runner_->Reorder(ids_, parents));
    texts_ = std::move(next);
  }

  void Rewind(size_t s) {
    const size_t length = Below(texts_[s].size() + 1);
    ExpectOk(runner_->Rewind(ids_[s], static_cast<int64_t>(length)));
    texts_[s].resize(length);
  }

  void Snapshot(size_t s) {
    if (snapshot_ < 0) {
      snapshot_ = *runner_->TakeSnapshot(ids_[s]);
      snapshot_text_ = texts_[s];
      return;
    }
    ExpectOk(runner_->Restore(ids_[s], snapshot_));
    texts_[s] = snapshot_text_;
    if (Below(2) == 0) ExpectOk(runner_->DropSnapshot(std::exchange(snapshot_, -1)));
  }

  void Replace(size_t s) {
    ExpectOk(runner_->FreeSequence(ids_[s]));
    texts_[s].clear();
    ids_[s] = NewSequence(*runner_);
  }

  void Compare(size_t s, int operation) {
    ASSERT_TRUE(std::ranges::equal(runner_->tokens(ids_[s]), texts_[s]));
    if (runner_->logits(ids_[s]).empty() || Below(3) != 0) return;
    ++compared_;
    ASSERT_EQ(MaxDifference(runner_->logits(ids_[s]), LogitsAlone(model_, type_, texts_[s])), 0.0)
        << "operation " << operation;
  }

  std::shared_ptr<const Model> model_;
  KvElement type_;
  std::unique_ptr<Runner> runner_;
  std::mt19937 random_{17};
  std::vector<SequenceId> ids_;
  std::vector<std::vector<TokenId>> texts_;
  SnapshotId snapshot_ = -1;
  std::vector<TokenId> snapshot_text_;
  int compared_ = 0;
};

class RunnerPrograms : public RunnerKinds {};

TEST_P(RunnerPrograms, HaveTheBitsOfFreshSessions) {  // KV-41b, KV-43b to f, KV-53
  RunnerProgram program(OpenModel(), GetParam().type);
  program.Run(160);
  program.End();
}

INSTANTIATE_TEST_SUITE_P(Kinds, RunnerPrograms, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace kvant::test
