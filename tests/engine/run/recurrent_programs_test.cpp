// Random programs on models with recurrent layers, against the list of each sequence's tokens,
// which is a deep copy of all that its state may depend on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <utility>

#include "tests/engine/run/recurrent_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

constexpr size_t kRecurrentSequences = 4;
constexpr size_t kLengthMax = 400;

class RecurrentPrograms : public RecurrentModel {
 protected:
  // So many operations, with checks of the bits every now and then; nothing is left in the end.
  void RunProgram(uint32_t seed, int operations) {
    random_.seed(seed);
    SessionOptions options = Strict(kRecurrentSequences);
    options.prefix_cache = true;
    options.state_checkpoints = 3;
    options.state_log = 40;
    options.threads = 1;
    runner_ = Open(options);
    tokens_.assign(kRecurrentSequences, {});
    for (size_t i = 0; i < kRecurrentSequences; ++i) ids_.push_back(NewSequence(*runner_));
    for (int operation = 0; operation < operations && !HasFailure(); ++operation) {
      const size_t s = Below(kRecurrentSequences);
      switch (Below(9)) {
        case 0: Reorder(); break;
        case 1: Rewind(s); break;
        case 2: Fork(s); break;
        case 3: Snapshot(s); break;
        case 4: Below(8) == 0 ? SaveAndLoad(s) : Rewind(s); break;
        default: Append(s); break;
      }
      if (operation % 8 != 0 || runner_->logits(ids_[s]).empty()) continue;
      ASSERT_EQ(LogitsOf(*runner_, ids_[s]), Alone(tokens_[s]))
          << "seed " << seed << ", operation " << operation;
    }
    ExpectOk(runner_->Check());
    for (const SequenceId id : std::exchange(ids_, {})) ExpectOk(runner_->FreeSequence(id));
    if (snapshot_ >= 0) ExpectOk(runner_->DropSnapshot(std::exchange(snapshot_, -1)));
    ExpectOk(runner_->Check());
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  void Reorder() {
    std::vector<int> parents;
    std::vector<std::vector<TokenId>> next;
    for (size_t i = 0; i < kRecurrentSequences; ++i) {
      parents.push_back(static_cast<int>(Below(2) == 0 ? i : Below(kRecurrentSequences)));
      next.push_back(tokens_[static_cast<size_t>(parents.back())]);
    }
    ExpectOk(runner_->Reorder(ids_, parents));
    tokens_ = std::move(next);
  }

  void Rewind(size_t s) {
    const size_t to = Below(8) == 0 ? 0 : Below(tokens_[s].size() + 1);
    ExpectOk(runner_->Rewind(ids_[s], static_cast<int64_t>(to)));
    tokens_[s].resize(to);
  }

  void Fork(size_t s) {
    ExpectOk(runner_->FreeSequence(ids_[s]));
    const size_t from = (s + 1) % kRecurrentSequences;
    ids_[s] = runner_->Fork(ids_[from]).value();
    tokens_[s] = tokens_[from];
  }

  void Snapshot(size_t s) {
    if (snapshot_ < 0) {
      snapshot_ = runner_->TakeSnapshot(ids_[s]).value();
      snapshot_tokens_ = tokens_[s];
      return;
    }
    ExpectOk(runner_->Restore(ids_[s], snapshot_));
    tokens_[s] = snapshot_tokens_;
    if (Below(2) == 0) ExpectOk(runner_->DropSnapshot(std::exchange(snapshot_, -1)));
  }

  void SaveAndLoad(size_t s) {
    const std::string path = folder_ / "saved.kvs";
    ExpectOk(runner_->Save(path, {&ids_[s], 1}));
    ExpectOk(runner_->FreeSequence(ids_[s]));
    const auto loaded = runner_->Load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ids_[s] = loaded->front();
  }

  void Append(size_t s) {
    if (tokens_[s].size() > kLengthMax) {
      ExpectOk(runner_->Reset(ids_[s]));
      tokens_[s].clear();
    }
    const auto added =
        Text(Below(3) == 0 ? 1 + Below(90) : 1 + Below(3), static_cast<uint32_t>(Below(50)));
    ExpectOk(runner_->Append(ids_[s], added));
    tokens_[s].insert(tokens_[s].end(), added.begin(), added.end());
  }

  std::mt19937 random_;
  std::unique_ptr<Runner> runner_;
  std::vector<SequenceId> ids_;
  std::vector<std::vector<TokenId>> tokens_;
  SnapshotId snapshot_ = -1;
  std::vector<TokenId> snapshot_tokens_;
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Seeded, RecurrentPrograms, testing::ValuesIn(RecurrentKinds()),
                         RecurrentKindName);

TEST_P(RecurrentPrograms, GiveTheBitsOfEachSequenceAlone) {
  const char* factor = std::getenv("KVANT_TEST_FACTOR");
  const uint32_t programs = factor == nullptr ? 1 : static_cast<uint32_t>(std::atoi(factor));
  for (uint32_t seed = 0; seed < programs && !HasFailure(); ++seed) RunProgram(21 + seed, 600);
}

}  // namespace
}  // namespace kvant::test
