// Random programs of every operation of Runner. A sequence has a list of the operations it went
// through; its logits are compared, bit for bit, with those of a session that goes through the list
// alone. A program that fails prints itself in the language of `kvant seq`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <utility>

#include "engine/kv/kv_cache.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

constexpr size_t kProgramSequences = 4;
constexpr size_t kContext = 900;

// One operation on a sequence since it was empty.
struct Event {
  std::vector<TokenId> tokens;  // appended; or, if there are none, a prune
  int64_t keep_first = 0;
  int64_t keep_last = 0;
  PrunePositions positions = PrunePositions::kKept;
};

struct History {
  std::vector<Event> events;
  int64_t length = 0;
  int64_t floor = 0;  // after the last prune; no rewind goes below it, but to 0

  void Append(std::vector<TokenId> tokens) {
    length += std::ssize(tokens);
    events.push_back({std::move(tokens)});
  }
  void Prune(int64_t first, int64_t last, PrunePositions positions) {
    events.push_back({{}, first, last, positions});
    if (positions == PrunePositions::kMoved) length = first + last;
    floor = length;
  }
  void Rewind(int64_t to) {
    if (to == 0) *this = {};
    while (length > to) {
      std::vector<TokenId>& tokens = events.back().tokens;
      const int64_t cut = std::min(length - to, std::ssize(tokens));
      tokens.resize(tokens.size() - static_cast<size_t>(cut));
      length -= cut;
      if (tokens.empty()) events.pop_back();
    }
  }
};

class RunnerProgram {
 public:
  RunnerProgram(std::shared_ptr<const Model> model, KvType type, uint32_t seed)
      : model_(std::move(model)), type_(type), random_(seed), histories_(kProgramSequences) {
    SessionOptions options = Options(type, kProgramSequences);
    options.chunk = 48;
    options.threads = 1;
    runner_ = OpenRunner(model_, options);
    for (size_t s = 0; s < kProgramSequences; ++s) {
      ids_.push_back(NewSequence(*runner_));
      Say("new {}", Name(s));
    }
  }
  ~RunnerProgram() {
    if (testing::Test::HasFailure()) {
      std::cerr << "as a program of kvant seq, with --chunk 48 --kv-check --kv-poison:\n" << text_;
    }
  }
  RunnerProgram(const RunnerProgram&) = delete;
  RunnerProgram& operator=(const RunnerProgram&) = delete;

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      const size_t s = Below(kProgramSequences);
      switch (Below(9)) {
        case 0:
        case 1:
        case 2: Step(s); break;
        case 3: Reorder(); break;
        case 4: Rewind(s); break;
        case 5: Snapshot(s); break;
        case 6: Prune(s); break;
        case 7: SaveAndLoad(s); break;
        default: Replace(s, Below(kProgramSequences)); break;
      }
      Compare(s);
    }
  }

  // Frees all that there is; nothing may be left.
  void End() {
    for (const SequenceId id : ids_) ExpectOk(runner_->FreeSequence(id));
    if (snapshot_ >= 0) ExpectOk(runner_->DropSnapshot(snapshot_));
    EXPECT_EQ(runner_->stats().kv_bytes_used, 0u);
    EXPECT_GT(compared_, 20);
  }

  // The program so far, and what it printed of each line that has logits.
  const std::string& text() const { return text_; }
  std::vector<float> LastLogits(size_t s) const {
    return {runner_->logits(ids_[s]).begin(), runner_->logits(ids_[s]).end()};
  }
  static std::string Name(size_t s) { return std::string(1, static_cast<char>('A' + s)); }

 private:
  size_t Below(size_t bound) {
    return static_cast<size_t>(random_() % static_cast<uint32_t>(bound));
  }

  template <typename... Args>
  void Say(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  // New tokens for this sequence and some others at once.
  void Step(size_t s) {
    std::vector<std::vector<TokenId>> tokens(kProgramSequences);
    std::vector<StepInput> inputs;
    std::string said = "step";
    for (size_t i = 0; i < kProgramSequences; ++i) {
      if (i != s && Below(2) == 0) continue;
      const size_t count = Below(4) == 0 ? 1 + Below(90) : 1 + Below(3);
      if (static_cast<size_t>(histories_[i].length) + count > kContext) continue;
      tokens[i] = RandomTokens(count, static_cast<uint32_t>(random_()));
      said += fmt::format(" {} {}", Name(i), fmt::join(tokens[i], " "));
      histories_[i].Append(tokens[i]);
      inputs.push_back({ids_[i], tokens[i]});
    }
    if (inputs.empty()) return;
    Say("{}", said);
    ExpectOk(runner_->Step(inputs));
  }

  void Reorder() {
    std::vector<int> parents;
    std::vector<History> next;
    for (size_t i = 0; i < kProgramSequences; ++i) {
      parents.push_back(static_cast<int>(Below(2) == 0 ? i : Below(kProgramSequences)));
      next.push_back(histories_[static_cast<size_t>(parents.back())]);
    }
    Say("reorder A B C D : {}", fmt::join(parents, " "));
    ExpectOk(runner_->Reorder(ids_, parents));
    histories_ = std::move(next);
  }

  // A window may have dropped what a pruned sequence cannot compute again.
  void Rewind(size_t s) {
    History& history = histories_[s];
    const int64_t span = history.length - history.floor;
    const int64_t to =
        Below(8) == 0 ? 0
                      : history.floor + static_cast<int64_t>(Below(static_cast<size_t>(span) + 1));
    const bool far = history.floor > 0 && to > 0 && history.length - to > kv::kRewindSlack;
    if (far) return;
    Say("rewind {} {}", Name(s), to);
    ExpectOk(runner_->Rewind(ids_[s], to));
    history.Rewind(to);
  }

  void Snapshot(size_t s) {
    if (snapshot_ < 0) {
      Say("snapshot {} S", Name(s));
      snapshot_ = *runner_->TakeSnapshot(ids_[s]);
      snapshot_history_ = histories_[s];
      return;
    }
    Say("restore {} S", Name(s));
    ExpectOk(runner_->Restore(ids_[s], snapshot_));
    histories_[s] = snapshot_history_;
    if (Below(2) != 0) return;
    Say("drop S");
    ExpectOk(runner_->DropSnapshot(std::exchange(snapshot_, -1)));
  }

  void Prune(size_t s) {
    History& history = histories_[s];
    if (history.length < 8) return;
    const auto positions = Below(2) == 0 ? PrunePositions::kKept : PrunePositions::kMoved;
    const bool kept = std::ranges::any_of(history.events, [](const Event& event) {
      return event.tokens.empty() && event.positions == PrunePositions::kKept;
    });
    const bool moved = positions == PrunePositions::kMoved;
    if (moved && kept) return;  // refused
    const auto length = static_cast<size_t>(history.length);
    const auto first = static_cast<int64_t>(Below(length / 2));
    const auto last = static_cast<int64_t>(1 + Below(length / 2 - 1));
    Say("prune {} {} {}{}", Name(s), first, last, moved ? " moved" : "");
    ExpectOk(runner_->Prune(ids_[s], first, last, positions));
    history.Prune(first, last, positions);
  }

  void SaveAndLoad(size_t s) {
    const std::string path = folder_ / "saved.kvs";
    Say("save saved.kvs {}", Name(s));
    ExpectOk(runner_->Save(path, {&ids_[s], 1}));
    Say("free {}\nload saved.kvs {}", Name(s), Name(s));
    ExpectOk(runner_->FreeSequence(ids_[s]));
    const auto loaded = runner_->Load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ids_[s] = loaded->front();
  }

  // A fork of another sequence, or an empty one.
  void Replace(size_t s, size_t other) {
    Say("free {}", Name(s));
    ExpectOk(runner_->FreeSequence(ids_[s]));
    if (s == other) {
      Say("new {}", Name(s));
      ids_[s] = NewSequence(*runner_);
      histories_[s] = {};
      return;
    }
    Say("fork {} {}", Name(other), Name(s));
    ids_[s] = *runner_->Fork(ids_[other]);
    histories_[s] = histories_[other];
  }

  void Compare(size_t s) {
    const History& history = histories_[s];
    ASSERT_EQ(runner_->length(ids_[s]), history.length);
    if (runner_->logits(ids_[s]).empty() || Below(3) != 0) return;
    ++compared_;
    SessionOptions options = Options(type_, 1);
    options.kv_check = options.kv_poison = false;
    options.threads = 1;
    const auto fresh = OpenSession(model_, options);
    for (const Event& event : history.events) {
      ExpectOk(event.tokens.empty()
                   ? fresh->Prune(event.keep_first, event.keep_last, event.positions)
                   : fresh->Append(event.tokens));
    }
    ASSERT_TRUE(std::ranges::equal(runner_->tokens(ids_[s]), fresh->tokens()));
    ASSERT_EQ(MaxDifference(runner_->logits(ids_[s]), fresh->logits()), 0.0);
  }

  std::shared_ptr<const Model> model_;
  KvType type_;
  std::unique_ptr<Runner> runner_;
  std::mt19937 random_;
  std::vector<SequenceId> ids_;
  std::vector<History> histories_;
  SnapshotId snapshot_ = -1;
  History snapshot_history_;
  TemporaryFolder folder_;
  std::string text_;
  int compared_ = 0;
};

class RunnerPrograms : public RunnerKinds {};

TEST_P(RunnerPrograms, HaveTheBitsOfFreshSessions) {
  const char* factor = std::getenv("KVANT_TEST_FACTOR");
  const uint32_t programs = factor == nullptr ? 1 : static_cast<uint32_t>(std::atoi(factor));
  for (uint32_t seed = 0; seed < programs && !HasFailure(); ++seed) {
    RunnerProgram program(OpenModel(), GetParam().type, 17 + seed);
    program.Run(160);
    program.End();
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RunnerPrograms, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// The text that a failing program prints runs in kvant seq with the same effect.
TEST(RunnerProgramText, RunsInTheTerminal) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  TinyShape shape;
  shape.window = 33;
  shape.context = kContext;
  const TemporaryFolder folder;
  const std::string path = folder / "tiny.gguf";
  TinyModelWriter(shape).Write(path);
  const auto model = Model::Open(path, OwnGemm());
  ASSERT_TRUE(model.ok());
  RunnerProgram program(*model, KvType::kQ8, 5);
  program.Run(60);
  std::string text = program.text();
  std::vector<std::string> expected;
  for (size_t s = 0; s < kProgramSequences; ++s) {
    const std::vector<float> logits = program.LastLogits(s);
    if (logits.empty()) continue;
    text += fmt::format("logits {} 0\n", RunnerProgram::Name(s));
    expected.push_back(
        fmt::format("{:016x}", XXH64(logits.data(), logits.size() * sizeof(float), 0)));
  }
  ASSERT_FALSE(expected.empty());
  const ProgramRun run = RunShell(fmt::format(
      "cd '{}' && KVANT_FLOAT_GEMM=own $KVANT seq tiny.gguf - --kv-type q8 --chunk 48 -t 2 "
      "--kv-check --kv-poison <<'END' | tail -n {}\n{}END",
      folder.path().string(), expected.size(), text));
  ASSERT_EQ(run.code, 0) << run.error << text;
  for (const std::string& hash : expected) {
    EXPECT_NE(run.out.find(hash), std::string::npos) << run.out;
  }
}

}  // namespace
}  // namespace kvant::test
