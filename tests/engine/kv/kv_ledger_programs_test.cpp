// Random programs of operations on the accounting of a cache with several policies at once, without
// any kernel: blocks are short lists of numbers, sequences are plain copied lists, and after every
// operation each sequence must find exactly its own rows, its source's rows and its own state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "tests/engine/kv/block_lists.h"

namespace kvant::kv {
namespace {

constexpr int64_t kLedgerContext = 900;
constexpr int64_t kLedgerChunk = 70;
constexpr int kLedgerSequences = 5;
constexpr int kSources = 3;

// The state after a row, which depends on all rows so far and on their order.
int64_t After(int64_t state, int64_t row) {
  const auto mixed = static_cast<uint64_t>(state) * 1000003 + static_cast<uint64_t>(row);
  return static_cast<int64_t>(mixed & 0xffffffffffff);
}

// The first position that the next query sees.
int64_t Oldest(const GroupKind& kind, int64_t length) {
  if (kind.policy == "full") return 0;
  if (kind.policy == "sections") return length / kind.window * kind.window;
  return std::max<int64_t>(0, length - kind.window + 1);
}

// A sequence as the naive model knows it.
struct NaiveRows {
  std::vector<int64_t> rows;    // by position
  std::vector<bool> pruned;     // by position
  std::vector<int64_t> source;  // rows of its source; empty: none
  std::set<int64_t> checkpoints;
  int64_t longest = 0;  // since it was empty or replayed: what windows dropped follows from it

  int64_t length() const { return static_cast<int64_t>(rows.size()); }
  int64_t StateAt(int64_t length) const {
    int64_t state = 0;
    for (int64_t p = 0; p < length; ++p) state = After(state, rows[static_cast<size_t>(p)]);
    return state;
  }
  void Cut(int64_t length) {
    rows.resize(static_cast<size_t>(length));
    pruned.resize(static_cast<size_t>(length));
    checkpoints.erase(checkpoints.upper_bound(length), checkpoints.end());
    checkpoints.erase(0);
    if (length == 0) longest = 0;
  }
};

class LedgerProgram {
 public:
  // The pools hold the blocks that the policies say kLedgerSequences sequences need, and those of
  // checkpoints and sources. A tight program has less.
  LedgerProgram(std::vector<GroupKind> kinds, bool tight, uint32_t seed)
      : kinds_(std::move(kinds)), tight_(tight), random_(seed), ledger_(MakeLedger()) {
    for (int s = 0; s < kLedgerSequences; ++s) real_.push_back(ledger_.NewSequence());
    naive_.resize(kLedgerSequences);
    for (const GroupKind& kind : kinds_) {
      has_state_ |= kind.policy == "state";
      has_fixed_ |= kind.policy == "fixed";
    }
  }

  void Run(int64_t operations) {
    for (int64_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      const size_t s = Any(kLedgerSequences);
      switch (Any(14)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4: Step(); break;
        case 5: Fork(s, Any(kLedgerSequences)); break;
        case 6: Reorder(); break;
        case 7:
        case 8: Rewind(s, RewindTarget(s)); break;
        case 9: RewindToCheckpoint(s); break;
        case 10: Checkpoint(s); break;
        case 11: Prune(s); break;
        case 12: Sources(s); break;
        default:
          if (Any(3) == 0) Reset(s);
          break;
      }
      Check();
    }
    for (Sequence& sequence : real_) ledger_.Free(sequence);
    for (auto& [source, rows] : sources_) ledger_.FreeSource(source);
    EXPECT_EQ(ledger_.bytes_used(), 0u);
  }

  int64_t refused() const { return refused_; }
  int64_t replays() const { return replays_; }

 private:
  Ledger MakeLedger() {
    std::vector<AccountedGroup> groups;
    for (const GroupKind& kind : kinds_) {
      auto policy = MakePolicy(kind.policy, kind.window);
      const bool fixed = kind.policy == "fixed";
      const int64_t sequences = fixed ? kSources : kLedgerSequences;
      int64_t blocks = policy->Needed(kLedgerContext, kLedgerChunk) * sequences;
      if (kind.policy == "state") blocks += 4 * kLedgerSequences;  // checkpoints
      if (tight_) blocks = std::max<int64_t>(3, blocks / 6);
      blocks += policy->NeededForReplay(kLedgerContext);
      lists_.Add(blocks);
      const auto bytes = static_cast<uint64_t>(kBlockTokens * (1 + std::ssize(groups)));
      groups.push_back({std::move(policy), bytes, blocks, 2});
    }
    return Ledger(std::move(groups), {kLedgerContext, kLedgerSequences, 0}, lists_);
  }

  size_t Any(int64_t bound) { return random_() % static_cast<uint64_t>(bound); }
  const BlockTable& Table(const Sequence& sequence, GroupId group) const {
    return sequence.tables[group];
  }
  int64_t& Row(const BlockTable& table, GroupId group, int64_t position) {
    for (const TableEntry& entry : table.entries) {
      if (entry.number == position / kBlockTokens) {
        return lists_.At(group, entry.id, position % kBlockTokens);
      }
    }
    ADD_FAILURE() << "group " << IndexOf(group) << " lacks position " << position;
    return nowhere_;
  }

  void MakeCopies() {
    for (const BlockCopy& copy : ledger_.copies()) lists_.Copy(copy);
    ledger_.ClearCopies();
  }

  // Stands in for a model that computes the new positions of a step.
  void Compute(const Sequence& sequence, std::span<const int64_t> rows) {
    const int64_t begin = sequence.length;
    for (const GroupId group : ledger_.group_ids()) {
      const BlockTable& table = Table(sequence, group);
      const Holds holds = ledger_.policy(group).holds();
      if (holds == Holds::kSource || table.length != begin) continue;  // has these positions
      if (holds == Holds::kState) {
        const BlockId read = State::ReadBlock(table, begin);
        int64_t state = read == kNoBlock ? 0 : lists_.At(group, read, 0);
        for (const int64_t row : rows) state = After(state, row);
        ASSERT_NE(State::WriteBlock(table), read);
        lists_.At(group, State::WriteBlock(table), 0) = state;
        continue;
      }
      for (size_t i = 0; i < rows.size(); ++i) {
        Row(table, group, begin + static_cast<int64_t>(i)) = rows[i];
      }
    }
  }

  // New rows for some sequences at once; now and then the step is given up. A step that CheckRoom
  // grants finds its room; one that it refuses is left alone.
  void Step() {
    std::vector<Growth> growths;
    std::vector<size_t> members;
    for (size_t s = 0; s < kLedgerSequences; ++s) {
      if (Any(2) == 0) continue;
      const int64_t count = 1 + static_cast<int64_t>(Any(4) == 0 ? Any(kLedgerChunk) : Any(3));
      if (real_[s].length + count > kLedgerContext) {
        ASSERT_EQ(ledger_.Reserve(real_[s], count).error().code, ErrorCode::kContextFull);
        Reset(s);
        continue;
      }
      growths.push_back({&real_[s], count});
      members.push_back(s);
    }
    // In passes of `piece` tokens of each; one pass in most programs' steps.
    const int64_t piece =
        Any(3) == 0 ? 1 + static_cast<int64_t>(Any(kLedgerChunk / 2)) : kLedgerChunk;
    if (!ledger_.CheckRoom(growths, piece).ok()) {
      ++refused_;
      Reset(Any(kLedgerSequences));
      return;
    }
    for (bool more = true; more;) {
      more = false;
      for (size_t i = 0; i < members.size(); ++i) {
        const int64_t tokens = std::min(growths[i].tokens, piece);
        if (tokens == 0) continue;
        const Status status = ledger_.Reserve(real_[members[i]], tokens);
        ASSERT_TRUE(status.ok()) << status.error().message;
      }
      MakeCopies();
      for (size_t i = 0; i < members.size(); ++i) {
        const int64_t tokens = std::min(growths[i].tokens, piece);
        growths[i].tokens -= tokens;
        if (tokens > 0 && !FinishPass(members[i], tokens)) growths[i].tokens = 0;
        more |= growths[i].tokens > 0;
      }
    }
  }

  // False where the pass is given up.
  bool FinishPass(size_t s, int64_t tokens) {
    Sequence& sequence = real_[s];
    NaiveRows& naive = naive_[s];
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < tokens; ++row) rows.push_back(next_row_++);
    Compute(sequence, rows);
    if (Any(6) == 0) {
      ledger_.Rollback(sequence);
      return false;
    }
    ledger_.Commit(sequence);
    naive.rows.insert(naive.rows.end(), rows.begin(), rows.end());
    naive.pruned.resize(naive.rows.size(), false);
    naive.longest = std::max(naive.longest, naive.length());
    return true;
  }

  void Fork(size_t from, size_t to) {
    if (from == to) return;
    Reset(to);
    ledger_.Fork(real_[from], real_[to]);
    naive_[to] = naive_[from];
  }

  // Beams: all sequences become copies of some of them.
  void Reorder() {
    std::vector<Sequence> next;
    std::vector<NaiveRows> next_naive;
    for (size_t s = 0; s < kLedgerSequences; ++s) {
      const size_t parent = Any(2) == 0 ? s : Any(kLedgerSequences);
      next.push_back(ledger_.NewSequence());
      ledger_.Fork(real_[parent], next.back());
      next_naive.push_back(naive_[parent]);
    }
    for (Sequence& sequence : real_) ledger_.Free(sequence);
    real_ = std::move(next);
    naive_ = std::move(next_naive);
  }

  void Rewind(size_t s, int64_t length) {
    NaiveRows& naive = naive_[s];
    const bool state_can = !has_state_ || length == 0 || length == naive.length() ||
                           naive.checkpoints.contains(length);
    const bool windows_must = length == 0 || length >= naive.longest - kRewindSlack;
    const uint64_t used = ledger_.bytes_used();
    const Status status = ledger_.Rewind(real_[s], length);
    if (status.ok()) {
      ASSERT_TRUE(state_can) << length;
      naive.Cut(length);
      return;
    }
    ASSERT_FALSE(state_can && windows_must) << status.error().message;
    ASSERT_EQ(status.error().code, ErrorCode::kNotSupported);
    ASSERT_EQ(ledger_.bytes_used(), used);
    const bool has_pruned = std::ranges::find(naive.pruned, true) != naive.pruned.end();
    if (Any(2) == 0 && !has_pruned) Replay(s, length);
  }

  // Any length, and those at which it is decided whether a window can go back.
  int64_t RewindTarget(size_t s) {
    const int64_t length = real_[s].length;
    const int64_t any = static_cast<int64_t>(Any(length + 1));
    const int64_t targets[] = {any, ledger_.RewindLimit(real_[s]),
                               ledger_.RewindLimit(real_[s]) - 1, naive_[s].longest - kRewindSlack};
    return std::clamp<int64_t>(targets[Any(4)], 0, length);
  }

  void RewindToCheckpoint(size_t s) {
    const std::set<int64_t>& checkpoints = naive_[s].checkpoints;
    if (checkpoints.empty()) return;
    Rewind(s, *std::next(checkpoints.begin(), static_cast<int>(Any(std::ssize(checkpoints)))));
  }

  // Computes again what is gone, on a copy.
  void Replay(size_t s, int64_t length) {
    ++replays_;
    NaiveRows& naive = naive_[s];
    Sequence copy = ledger_.NewSequence();
    const int64_t begin = ledger_.ReplayBegin(real_[s], length);
    ASSERT_LE(begin, length);
    ledger_.Fork(real_[s], copy);
    ledger_.BeginReplay(copy, begin);
    ASSERT_TRUE(copy.replaying());
    Status status;
    while (copy.length < length) {
      const int64_t count = ReplayPiece(copy.length, length);
      status = ledger_.Reserve(copy, count);
      if (!status.ok()) break;
      MakeCopies();
      Compute(copy, std::span(naive.rows)
                        .subspan(static_cast<size_t>(copy.length), static_cast<size_t>(count)));
      ledger_.Commit(copy);
    }
    ASSERT_TRUE(status.ok() || tight_) << status.error().message;
    if (status.ok()) {
      ledger_.EndReplay(copy);
      std::swap(copy, real_[s]);
      naive.Cut(length);
      naive.checkpoints.erase(naive.checkpoints.upper_bound(begin), naive.checkpoints.end());
      naive.longest = length;
    }
    ledger_.Free(copy);
  }

  void Checkpoint(size_t s) {
    if (naive_[s].checkpoints.size() >= 3) return;
    ledger_.Checkpoint(real_[s]);
    if (has_state_ && naive_[s].length() > 0) naive_[s].checkpoints.insert(naive_[s].length());
  }

  void Prune(size_t s) {
    const int64_t length = real_[s].length;
    int64_t begin = static_cast<int64_t>(Any(length + 1));
    int64_t end = static_cast<int64_t>(Any(length + 1));
    if (begin > end) std::swap(begin, end);
    const Status status = ledger_.Prune(real_[s], begin, end);
    if (has_state_) {
      ASSERT_TRUE(begin == end || status.error().code == ErrorCode::kNotSupported);
      return;
    }
    ASSERT_TRUE(status.ok());
    for (int64_t p = begin; p < end; ++p) naive_[s].pruned[static_cast<size_t>(p)] = true;
  }

  // Makes a source, gives one up, or sets one for an empty sequence.
  void Sources(size_t s) {
    if (!has_fixed_) return;
    if (sources_.size() < kSources && Any(2) == 0) {
      auto source = ledger_.NewSource(1 + static_cast<int64_t>(Any(kLedgerContext / 2)));
      if (!source.ok()) return;
      std::vector<int64_t> rows;
      for (const GroupId group : ledger_.group_ids()) {
        const BlockTable& table = source->tables[group];
        if (ledger_.policy(group).holds() != Holds::kSource) continue;
        rows.resize(static_cast<size_t>(table.length));
        for (int64_t p = 0; p < table.length; ++p) {
          Row(table, group, p) = rows[static_cast<size_t>(p)] = next_row_++;
        }
      }
      sources_.emplace_back(std::move(*source), std::move(rows));
      return;
    }
    if (sources_.empty()) return;
    const size_t chosen = Any(std::ssize(sources_));
    if (Any(3) == 0) {
      ledger_.FreeSource(sources_[chosen].first);
      sources_.erase(sources_.begin() + static_cast<std::ptrdiff_t>(chosen));
      return;
    }
    if (real_[s].length > 0) {
      ASSERT_EQ(ledger_.SetSource(real_[s], sources_[chosen].first).error().code,
                ErrorCode::kInvalid);
      if (Any(2) == 0) return;
      Rewind(s, 0);  // keeps the old source
      if (real_[s].length > 0) return;
    }
    ASSERT_TRUE(ledger_.SetSource(real_[s], sources_[chosen].first).ok());
    naive_[s].source = sources_[chosen].second;
  }

  void Reset(size_t s) {
    ledger_.Free(real_[s]);
    naive_[s] = {};
  }

  // ---- What must hold ----

  void Check() {
    std::vector<const Sequence*> all;
    for (const Sequence& sequence : real_) all.push_back(&sequence);
    std::map<std::pair<GroupId, BlockId>, int> held;
    for (const auto& [source, rows] : sources_) {
      for (const GroupId group : ledger_.group_ids()) {
        for (const TableEntry& entry : source.tables[group].entries) {
          ++held[{group, entry.id}];
        }
      }
    }
    const Status status = ledger_.Check(all, [&](GroupId group, BlockId block) {
      const auto found = held.find({group, block});
      return found == held.end() ? 0 : found->second;
    });
    ASSERT_TRUE(status.ok()) << status.error().message;
    const size_t s = Any(kLedgerSequences);
    ASSERT_EQ(real_[s].length, naive_[s].length());
    for (const GroupId group : ledger_.group_ids()) CheckGroup(group, real_[s], naive_[s]);
  }

  void CheckGroup(GroupId group, const Sequence& sequence, const NaiveRows& naive) {
    const GroupKind& kind = kinds_[IndexOf(group)];
    const BlockTable& table = Table(sequence, group);
    if (kind.policy == "state") {
      ASSERT_EQ(table.length, naive.length());
      const BlockId block = State::ReadBlock(table, table.length);
      ASSERT_EQ(block == kNoBlock ? 0 : lists_.At(group, block, 0), naive.StateAt(naive.length()));
      return;
    }
    if (kind.policy == "fixed") {
      ASSERT_EQ(table.length, std::ssize(naive.source));
      for (int64_t p = 0; p < table.length; ++p) {
        ASSERT_EQ(Row(table, group, p), naive.source[static_cast<size_t>(p)]) << p;
      }
      return;
    }
    ASSERT_EQ(table.length, naive.length());
    const int64_t oldest = Oldest(kind, naive.length());
    for (const TableEntry& entry : table.entries) {
      // Rows that nobody sees are multiplied by a weight of zero: something was put there.
      const int64_t end = std::min((entry.number + 1) * kBlockTokens, naive.length());
      for (int64_t p = entry.number * kBlockTokens; p < end; ++p) {
        ASSERT_NE(lists_.At(group, entry.id, p % kBlockTokens), kPoison)
            << IndexOf(group) << " " << p;
      }
    }
    for (int64_t p = oldest; p < naive.length(); ++p) {
      if (naive.pruned[static_cast<size_t>(p)]) continue;
      ASSERT_EQ(Row(table, group, p), naive.rows[static_cast<size_t>(p)])
          << IndexOf(group) << " " << p;
    }
  }

  std::vector<GroupKind> kinds_;
  bool tight_;
  std::mt19937_64 random_;
  Lists lists_;
  Ledger ledger_;
  std::vector<Sequence> real_;
  std::vector<NaiveRows> naive_;
  std::vector<std::pair<Source, std::vector<int64_t>>> sources_;
  bool has_state_ = false;
  bool has_fixed_ = false;
  int64_t next_row_ = 1;
  int64_t nowhere_ = 0;
  int64_t refused_ = 0;
  int64_t replays_ = 0;
};

// `./dev test --programs` multiplies the operations.
int64_t LedgerOperations(int64_t usual) {
  const char* factor = std::getenv("KVANT_TEST_FACTOR");
  return usual * (factor == nullptr ? 1 : std::atoll(factor));
}

TEST(KvLedgerPrograms, FourPoliciesAtOnceKeepEverySequenceItsOwn) {
  int64_t replays = 0;
  for (const int64_t window : {1, 33, 100}) {
    SCOPED_TRACE(window);
    LedgerProgram program({{"full"}, {"window", window}, {"fixed"}, {"state"}}, false,
                          static_cast<uint32_t>(window));
    program.Run(LedgerOperations(1500));
    EXPECT_EQ(program.refused(), 0);  // what the policies plan for is enough
    replays += program.replays();
  }
  EXPECT_GT(replays, 10);
}

TEST(KvLedgerPrograms, ThreePoliciesThatCanPruneDoSo) {
  LedgerProgram program({{"window", 7}, {"fixed"}, {"full"}, {"window", 64}}, false, 4);
  program.Run(LedgerOperations(1500));
  EXPECT_EQ(program.refused(), 0);
}

TEST(KvLedgerPrograms, SectionsAlone) {
  int64_t replays = 0;
  for (const int64_t window : {1, 13, 32, 48, 100, 300}) {
    SCOPED_TRACE(window);
    LedgerProgram program({{"full"}, {"sections", window}}, false, static_cast<uint32_t>(window));
    program.Run(LedgerOperations(20000));
    EXPECT_EQ(program.refused(), 0);
    replays += program.replays();
  }
  EXPECT_GT(replays, 5);
}

TEST(KvLedgerPrograms, SectionsBesideOtherPolicies) {
  LedgerProgram program({{"sections", 40}, {"fixed"}, {"window", 33}, {"state"}, {"sections", 96}},
                        false, 6);
  program.Run(LedgerOperations(20000));
  EXPECT_EQ(program.refused(), 0);
  LedgerProgram tight({{"sections", 70}, {"full"}, {"window", 20}}, true, 7);
  tight.Run(LedgerOperations(20000));
  EXPECT_GT(tight.refused(), 2);
}

TEST(KvLedgerPrograms, PoolsThatAreTooSmallRefuseAndHold) {
  LedgerProgram program({{"state"}, {"full"}, {"fixed"}, {"window", 20}}, true, 5);
  program.Run(LedgerOperations(1500));
  EXPECT_GT(program.refused(), 10);
}

}  // namespace
}  // namespace kvant::kv
