// Session files that an enemy wrote: every number changed to hostile values, tables and ranges that
// no cache ever had, and the hashes of the sections made right again. Such a file is refused
// without a trace, or what it gives is a sane sequence, with which everything can be done.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "kvant/runner.h"
#include "tests/engine/kv/sealed_sections.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

// A sequence's section, as engine/kv/session_file.h describes it.
struct SavedTable {
  int64_t first_position = 0;
  std::vector<std::pair<int64_t, uint32_t>> entries;  // number, index
};

struct SavedSequence {
  int64_t length = 0;
  uint8_t flags = 0;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::vector<int32_t> tokens;
  SectionBytes logits;
  std::vector<SavedTable> tables;

  SavedSequence(const SectionBytes& bytes, int groups) {
    size_t at = 0;
    const auto get = [&]<class T>(T& value) {
      value = Get<T>(bytes, at);
      at += sizeof(T);
    };
    uint32_t count = 0;
    get(length);
    get(flags);
    get(count);
    ranges.resize(count);
    for (auto& [begin, end] : ranges) get(begin), get(end);
    tokens.resize(static_cast<size_t>(length));
    for (int32_t& token : tokens) get(token);
    const size_t size = (flags & 1) != 0 ? kTinyVocab * sizeof(float) : 0;
    logits.assign(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
    tables.resize(static_cast<size_t>(groups));
    for (SavedTable& table : tables) {
      get(table.first_position);
      get(count);
      table.entries.resize(count);
      for (auto& [number, index] : table.entries) get(number), get(index);
    }
    EXPECT_EQ(at, bytes.size());
  }

  SectionBytes Write() const {
    SectionBytes out;
    Put(out, length);
    Put(out, flags);
    Put(out, static_cast<uint32_t>(ranges.size()));
    for (const auto& [begin, end] : ranges) Put(out, begin), Put(out, end);
    for (const int32_t token : tokens) Put(out, token);
    out.insert(out.end(), logits.begin(), logits.end());
    for (const SavedTable& table : tables) {
      Put(out, table.first_position);
      Put(out, static_cast<uint32_t>(table.entries.size()));
      for (const auto& [number, index] : table.entries) Put(out, number), Put(out, index);
    }
    return out;
  }
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

struct HostileKind {
  const char* name;
  KvType type;
  TinyShape shape;
};

void PrintTo(const HostileKind& kind, std::ostream* out) { *out << kind.name; }

std::vector<HostileKind> HostileKinds() {
  TinyShape window;
  window.window = 7;
  std::vector<HostileKind> kinds = {{"full_f32", KvType::kF32, {}},
                                    {"window_q8", KvType::kQ8, window},
                                    {"mixed_f16", KvType::kF16, MixedShape(7)}};
  for (HostileKind& kind : kinds) {
    TinyShape& shape = kind.shape;
    shape.dim = shape.ffn = 32;
    shape.heads = 2, shape.kv_heads = 1, shape.head_dim = 4;
    shape.layers = shape.pattern == 0 ? 1 : 2;
  }
  return kinds;
}

class HostileSessionFile : public testing::TestWithParam<HostileKind> {
 protected:
  // Three sequences: one beyond a window, a fork of it with a hole, and a short one.
  void SetUp() override {
    model_ = OpenTiny(GetParam().shape, OwnGemm());
    SessionOptions options = Options(GetParam().type, 6);
    options.threads = 1;
    options.context = kContext;
    auto saver = OpenRunner(model_, options);
    std::vector<SequenceId> ids = {NewSequence(*saver)};
    ExpectOk(saver->Append(ids[0], RandomTokens(340, 1)));
    ids.push_back(*saver->Fork(ids[0]));
    ExpectOk(saver->Append(ids[1], RandomTokens(9, 2)));
    ExpectOk(saver->Prune(ids[1], 50, 120, PrunePositions::kKept));
    ids.push_back(NewSequence(*saver));
    ExpectOk(saver->Append(ids[2], RandomTokens(40, 3)));
    ExpectOk(saver->Save(folder_ / "session", ids));
    groups_ = static_cast<int>(saver->stats().groups.size());
    file_ = ReadFile(folder_ / "session");
    sections_ = Sections(file_);
    ASSERT_EQ(Join(sections_), file_);
    runner_ = OpenRunner(model_, options);
  }

  // Loads the file and, if it is accepted, does everything with what it gave.
  void Try(const SectionBytes& file, const std::string& what) {
    SCOPED_TRACE(what);
    const std::string path = folder_ / "hostile";
    WriteFile(path, file);
    const auto ids = runner_->Load(path);
    ++(ids.ok() ? accepted_ : refused_);
    if (ids.ok()) {
      for (const SequenceId id : *ids) {
        ExpectOk(runner_->Check());
        Use(id);
      }
      for (const SequenceId id : *ids) ExpectOk(runner_->FreeSequence(id));
    }
    ExpectOk(runner_->Check());
    ASSERT_EQ(runner_->stats().sequences, 0);
    ASSERT_EQ(runner_->stats().kv_bytes_used, 0u);
  }

  void Try(size_t section, const SectionBytes& content, const std::string& what) {
    std::vector<SectionBytes> sections = sections_;
    sections[section] = content;
    Try(Join(sections), "section " + std::to_string(section) + ": " + what);
  }

  // Any of this may be refused; none may crash or leave the cache in disorder.
  void Use(SequenceId id) {
    const int64_t length = runner_->length(id);
    ASSERT_GE(length, 0);
    ASSERT_LE(length, kContext);
    ASSERT_EQ(std::ssize(runner_->tokens(id)), length);
    static_cast<void>(runner_->Export({&id, 1}, KvLayout::kBhsd));
    const std::vector<TokenId> more = RandomTokens(40, 5);
    const auto fork = runner_->Fork(id);
    ASSERT_TRUE(fork.ok());
    for (const SequenceId each : {id, *fork}) {
      static_cast<void>(runner_->Append(each, std::span(more).first(1)));
      static_cast<void>(runner_->Rewind(each, length / 2));
      static_cast<void>(runner_->ComputeLogits(each));
      static_cast<void>(runner_->Append(each, more));
      static_cast<void>(runner_->Prune(each, length / 4, 5, PrunePositions::kMoved));
      static_cast<void>(runner_->Append(each, std::span(more).first(1)));
      ExpectOk(runner_->Check());
    }
    if (accepted_ % 64 == 1) {  // a save waits for the disk
      ExpectOk(runner_->Save(folder_ / "again", std::vector<SequenceId>{id, *fork}));
    }
    ExpectOk(runner_->FreeSequence(*fork));
  }

  static constexpr int64_t kContext = 400;
  TemporaryFolder folder_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Runner> runner_;
  SectionBytes file_;
  std::vector<SectionBytes> sections_;  // the header, three sequences, blocks
  int groups_ = 0;
  int accepted_ = 0;
  int refused_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Kinds, HostileSessionFile, testing::ValuesIn(HostileKinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

constexpr std::pair<size_t, int64_t> kHostile[] = {
    {1, 0},  {1, 3},   {1, -1},    {4, 0},     {4, 33}, {4, -1}, {4, int64_t{1} << 31},
    {8, -1}, {8, 340}, {8, kMost}, {8, kLeast}};

// Every place of the header and the sequences, as a number of one, four and eight bytes; of long
// lists of tokens and logits, and of the rows of blocks, some places.
TEST_P(HostileSessionFile, AnyNumberMayBeAnything) {
  Try(file_, "as it was");
  ASSERT_EQ(accepted_, 1);
  for (size_t s = 0; s < sections_.size(); ++s) {
    const SectionBytes& section = sections_[s];
    const bool rows = s > 3;
    for (size_t at = 0; at < section.size(); ++at) {
      const bool list = s > 0 && !rows && at > 60 && at + 160 < section.size();
      if ((list && at % 127 != 0) || (rows && (at > 4 || s % 5 != 0))) continue;
      for (const auto& [width, value] : kHostile) {
        if (at + width > section.size()) continue;
        SectionBytes changed = section;
        std::memcpy(changed.data() + at, &value, width);
        if (changed == section) continue;
        Try(s, changed, fmt::format("{} bytes at {} are {}", width, at, value));
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(refused_, 1000);
}

// Tables of any beginning with all, some or none of their blocks; pruned ranges in any order.
TEST_P(HostileSessionFile, TablesAndRangesMayBeAnything) {
  const auto try_with = [&](size_t s, const char* what,
                            const std::function<void(SavedSequence&)>& change) {
    SavedSequence sequence(sections_[s], groups_);
    change(sequence);
    Try(s, sequence.Write(), what);
  };
  for (size_t s = 1; s <= 3; ++s) {
    try_with(s, "unchanged", [](SavedSequence&) {});
    const int64_t length = SavedSequence(sections_[s], groups_).length;
    const std::vector<int64_t> hostile = {kLeast,
                                          -33,
                                          -32,
                                          -1,
                                          0,
                                          1,
                                          31,
                                          32,
                                          64,
                                          length - 32,
                                          length,
                                          length - 1,
                                          length + 1,
                                          length + 32,
                                          399,
                                          400,
                                          kContext * 2,
                                          int64_t{1} << 40,
                                          kMost - 31,
                                          kMost};
    for (size_t g = 0; g < static_cast<size_t>(groups_); ++g) {
      for (const int64_t first : hostile) {
        for (size_t kept = 0; kept < 4 && !HasFatalFailure(); ++kept) {
          try_with(s, "another first position", [&](SavedSequence& sequence) {
            SavedTable& table = sequence.tables[g];
            table.first_position = first;
            if (kept == 1) table.entries.clear();
            if (kept == 2) table.entries.resize(std::min<size_t>(table.entries.size(), 1));
            if (kept == 3) table.entries.erase(table.entries.begin(), table.entries.end() - 1);
          });
          try_with(s, "nothing but a first position", [&](SavedSequence& sequence) {
            if (kept == 0) sequence.length = 0;
            if (kept == 1) sequence.length = 1;
            if (kept >= 2) sequence.length = kContext;
            sequence.tokens.resize(static_cast<size_t>(sequence.length), 5);
            sequence.ranges.clear();
            if (kept == 3) sequence.ranges = {{0, kContext}};
            for (SavedTable& table : sequence.tables) table.entries.clear();
            sequence.tables[g].first_position = first;
          });
        }
      }
    }
    for (const int64_t begin : hostile) {
      for (const int64_t end : hostile) {
        if (HasFatalFailure()) return;
        try_with(s, "another range", [&](SavedSequence& sequence) {
          sequence.ranges = {{begin, end}};
        });
        try_with(s, "two ranges", [&](SavedSequence& sequence) {
          sequence.ranges = {{1, 3}, {begin, end}};
          sequence.flags ^= 2;
        });
      }
    }
  }
  EXPECT_GT(accepted_, 3);
  EXPECT_GT(refused_, 300);
}

// Several numbers of tables at once.
TEST_P(HostileSessionFile, ManyNumbersMayBeAnything) {
  std::mt19937 random(3);
  const auto below = [&](size_t bound) { return random() % static_cast<uint32_t>(bound); };
  for (int round = 0; round < 600 && !HasFatalFailure(); ++round) {
    const size_t s = 1 + below(3);
    SavedSequence sequence(sections_[s], groups_);
    for (uint32_t change = 0; change < 1 + below(4); ++change) {
      SavedTable& table = sequence.tables[below(sequence.tables.size())];
      const int64_t value = static_cast<int64_t>(below(450)) - 20;
      switch (below(7)) {
        case 0: table.first_position = value; break;
        case 1: table.first_position = value / 32 * 32; break;
        case 2:
          if (!table.entries.empty()) table.entries[below(table.entries.size())].first = value / 32;
          break;
        case 3:
          if (!table.entries.empty()) table.entries[below(table.entries.size())].second = below(20);
          break;
        case 4:
          if (!table.entries.empty()) {
            table.entries.erase(table.entries.begin() + below(table.entries.size()));
          }
          break;
        case 5:
          sequence.ranges.push_back({value, value + below(100)});
          if (below(3) > 0) sequence.flags &= 1;  // not what its tokens alone give
          break;
        default:
          sequence.length = std::max<int64_t>(0, value);
          sequence.tokens.resize(static_cast<size_t>(sequence.length), 5);
          break;
      }
    }
    Try(s, sequence.Write(), "round " + std::to_string(round));
  }
  EXPECT_GT(accepted_, 3);  // tables of full groups allow little
  EXPECT_GT(refused_, 100);
}

}  // namespace
}  // namespace kvant::test
