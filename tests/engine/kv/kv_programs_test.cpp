// Random programs of operations on the block cache, against sequences that are plain copied lists:
// after every operation each sequence must see exactly its own rows, at the right positions, in
// every layer group.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/pass_view.h"
#include "tests/engine/kv/make_cache.h"

namespace kvant::kv {
namespace {

constexpr int64_t kProgramContext = 700;
constexpr int64_t kChunk = 80;
constexpr int kCacheSequences = 7;
constexpr int kDim = 8;

// A row as the naive model knows it: a number that its key and value encode in every layer.
using RowNumber = uint32_t;

struct NaiveSequence {
  std::vector<RowNumber> rows;  // by position
  std::vector<bool> pruned;
};

// Digits that every type stores exactly; the first keeps the scale of q8 at one.
std::vector<float> KeyOf(RowNumber number, int layer) {
  std::vector<float> digits(kDim, 0.0f);
  digits[0] = 127.0f;
  for (size_t i = 1; i <= 5; ++i, number /= 100) digits[i] = static_cast<float>(number % 100);
  digits[6] = static_cast<float>(layer);
  return digits;
}
std::vector<float> ValueOf(RowNumber number, int layer) {
  std::vector<float> digits = KeyOf(number, layer);
  digits[7] = 55.0f;
  return digits;
}

CacheOptions Options(KvType type, std::vector<int64_t> windows, bool poison,
                     std::string_view policy = {}) {
  CacheOptions options;
  int layer = 0;
  for (const int64_t window : windows) {
    GroupShape& group = options.groups.emplace_back();
    group = {window, 1, kDim, kDim, type, type, {layer, layer + 1}};
    if (window > 0) group.policy = policy;
    layer += 2;
  }
  options.context = kProgramContext;
  options.chunk = kChunk;
  options.sequences = kCacheSequences;
  options.poison = poison;
  return options;
}

// The first position that a query sees.
int64_t Oldest(const GroupShape& shape, int64_t position) {
  if (shape.window == 0) return 0;
  if (shape.policy == "sections") return position / shape.window * shape.window;
  return std::max<int64_t>(0, position - shape.window + 1);
}

class Program {
 public:
  Program(const CacheOptions& options, uint32_t seed)
      : options_(options),
        cache_(MakeCache(options)),
        view_(cache_, kCacheSequences, kChunk),
        random_(seed) {
    for (int i = 0; i < kCacheSequences; ++i) real_.push_back(cache_.NewSequence());
    naive_.resize(kCacheSequences);
  }

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      switch (Below(10)) {
        case 0:
        case 1:
        case 2:
        case 3: Step(); break;
        case 4: Fork(); break;
        case 5: Reorder(); break;
        case 6: Rewind(); break;
        case 7: Prune(); break;
        case 8: Snapshot(); break;
        default:
          if (Below(4) == 0) Reset(Below(kCacheSequences));
          break;
      }
      Check();
    }
  }

 private:
  int Below(int64_t bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }

  int64_t Length(int sequence) const { return real_[static_cast<size_t>(sequence)].length; }

  // New rows for some sequences at once; now and then the step is given up.
  void Step() {
    std::vector<PartRows> parts;
    std::vector<int> members;
    int64_t rows = 0;
    for (int s = 0; s < kCacheSequences; ++s) {
      if (Below(2) == 0) continue;
      const int64_t count = 1 + (Below(4) == 0 ? Below(kChunk / 2) : Below(3));
      if (rows + count > kChunk) break;
      Sequence& sequence = real_[static_cast<size_t>(s)];
      if (sequence.length + count > kProgramContext) {
        ASSERT_EQ(cache_.Reserve(sequence, count).error().code, ErrorCode::kContextFull);
        Reset(s);
        continue;
      }
      ASSERT_TRUE(cache_.Reserve(sequence, count).ok());
      parts.push_back({&sequence, rows, count});
      members.push_back(s);
      rows += count;
    }
    cache_.RunCopies(0, 2);
    cache_.RunCopies(1, 2);
    cache_.FinishCopies();
    if (parts.empty()) return;
    view_.Set(parts);
    std::vector<RowNumber> numbers;
    for (int64_t i = 0; i < rows; ++i) numbers.push_back(next_row_++);
    Store(parts, numbers);
    CheckView(parts, members, numbers);
    for (size_t i = 0; i < parts.size(); ++i) {
      Sequence& sequence = real_[static_cast<size_t>(members[i])];
      if (Below(8) == 0) {
        cache_.Rollback(sequence);
        continue;
      }
      NaiveSequence& naive = naive_[static_cast<size_t>(members[i])];
      for (int64_t row = 0; row < parts[i].rows; ++row) {
        naive.rows.push_back(numbers[static_cast<size_t>(parts[i].first_row + row)]);
        naive.pruned.push_back(false);
      }
      cache_.Commit(sequence);
    }
  }

  void Store(const std::vector<PartRows>& parts, const std::vector<RowNumber>& numbers) {
    static const cpu::KernelTable& kernels = *cpu::ChooseKernels("scalar").value();
    for (const RowTile& tile : view_.tiles()) {
      const PartRows& part = parts[static_cast<size_t>(tile.part)];
      for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
        const int64_t position = part.sequence->length + row - part.first_row;
        for (const GroupShape& shape : options_.groups) {
          for (const int layer : shape.layers) {
            const BlockTable& table = part.sequence->tables[cache_.group_of_layer(layer)];
            const Row place{{layer, 0}, *EntryAt(table, position), position};
            const RowNumber number = numbers[static_cast<size_t>(row)];
            StoreKey(cache_, kernels, place, KeyOf(number, layer).data());
            StoreValue(cache_, kernels, place, ValueOf(number, layer).data());
          }
        }
      }
    }
  }

  // Every row of the step must see, in the runs and hidden positions of its piece of work, exactly
  // the positions it should, each once, with the naive model's rows in them. Attention itself does
  // the reading: a query of zeros weighs all visible rows alike, so that sums of digits show.
  void CheckView(const std::vector<PartRows>& parts, const std::vector<int>& members,
                 const std::vector<RowNumber>& numbers) {
    for (const GroupShape& shape : options_.groups) {
      const int layer = shape.layers[static_cast<size_t>(Below(2))];
      int64_t covered = 0;
      for (const PassView::Work& work : view_.work(layer)) {
        ASSERT_EQ(work.first_row, covered);
        covered += work.rows;
        CheckWork(shape, layer, work, parts, members, numbers);
      }
      ASSERT_EQ(covered, static_cast<int64_t>(numbers.size()));
    }
  }

  void CheckWork(const GroupShape& shape, int layer, const PassView::Work& work,
                 const std::vector<PartRows>& parts, const std::vector<int>& members,
                 const std::vector<RowNumber>& numbers) {
    static const cpu::KernelTable& kernels = *cpu::ChooseKernels("").value();
    std::vector<cpu::KvRun> storage(
        static_cast<size_t>(PassView::RunsMax(kProgramContext, kCacheSequences)));
    std::vector<int64_t> positions;
    std::vector<double> expected;
    for (int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
      size_t i = 0;
      while (row >= parts[i].first_row + parts[i].rows) ++i;
      const NaiveSequence& naive = naive_[static_cast<size_t>(members[i])];
      const int64_t position = parts[i].sequence->length + row - parts[i].first_row;
      const int64_t oldest = Oldest(shape, position);
      std::vector<double> sums(kDim, 0.0);
      double count = 0;
      for (int64_t p = oldest; p <= position; ++p) {
        const size_t at = static_cast<size_t>(p);
        if (at < naive.rows.size() && naive.pruned[at]) continue;
        const RowNumber number =
            at < naive.rows.size()
                ? naive.rows[at]
                : numbers[static_cast<size_t>(parts[i].first_row) + at - naive.rows.size()];
        const std::vector<float> value = ValueOf(number, layer);
        for (size_t d = 0; d < kDim; ++d) sums[d] += static_cast<double>(value[d]);
        ++count;
      }
      for (double& sum : sums) expected.push_back(sum / count);
      positions.push_back(position);
    }
    const std::vector<float> queries(positions.size() * kDim, 0.0f);
    std::vector<float> out(positions.size() * kDim);
    const AlignedBuffer scratch =
        AlignedBuffer::Allocate(
            kernels.attention_scratch_bytes(work.rows, 1, kDim, kDim, cpu::KeyForm::kStored),
            "test")
            .value();
    cpu::AttentionTask task{.queries = queries.data(),
                            .query_row_stride = kDim,
                            .out = out.data(),
                            .out_row_stride = kDim,
                            .rows = work.rows,
                            .positions = positions.data(),
                            .heads_per_kv = 1,
                            .k_dim = kDim,
                            .v_dim = kDim,
                            .k_type = shape.k_type,
                            .v_type = shape.v_type,
                            .scale = 1.0f,
                            .window = shape.window,
                            .runs = view_.Runs(layer, 0, work, storage),
                            .hidden = view_.Hidden(layer, work),
                            .window_kind = shape.policy == "sections" ? cpu::WindowKind::kSections
                                                                      : cpu::WindowKind::kSliding,
                            .scratch = scratch.bytes()};
    kernels.attention(task);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-3) << i;
  }

  void Fork() {
    const int from = Below(kCacheSequences);
    const int to = Below(kCacheSequences);
    if (from == to) return;
    Reset(to);
    cache_.Fork(real_[static_cast<size_t>(from)], real_[static_cast<size_t>(to)]);
    naive_[static_cast<size_t>(to)] = naive_[static_cast<size_t>(from)];
  }

  // Beams: all sequences become copies of some of them.
  void Reorder() {
    std::vector<Sequence> next;
    std::vector<NaiveSequence> next_naive;
    for (int i = 0; i < kCacheSequences; ++i) {
      const size_t parent = static_cast<size_t>(Below(2) == 0 ? i : Below(kCacheSequences));
      next.push_back(cache_.NewSequence());
      cache_.Fork(real_[parent], next.back());
      next_naive.push_back(naive_[parent]);
    }
    for (Sequence& sequence : real_) cache_.Free(sequence);
    real_ = std::move(next);
    naive_ = std::move(next_naive);
  }

  void Rewind() {
    const size_t s = static_cast<size_t>(Below(kCacheSequences));
    const int64_t length = Below(Length(static_cast<int>(s)) + 1);
    const int64_t limit = cache_.RewindLimit(real_[s]);
    const Status status = cache_.Rewind(real_[s], length);
    if (length > 0 && length < limit) {
      ASSERT_EQ(status.error().code, ErrorCode::kNotSupported);
      return;
    }
    ASSERT_TRUE(status.ok());
    naive_[s].rows.resize(static_cast<size_t>(length));
    naive_[s].pruned.resize(static_cast<size_t>(length));
  }

  void Prune() {
    if (Below(3) != 0) return;
    const size_t s = static_cast<size_t>(Below(kCacheSequences));
    const int64_t length = real_[s].length;
    int64_t begin = Below(length + 1);
    int64_t end = Below(length + 1);
    if (begin > end) std::swap(begin, end);
    ASSERT_TRUE(cache_.Prune(real_[s], begin, end).ok());
    for (int64_t p = begin; p < end; ++p) naive_[s].pruned[static_cast<size_t>(p)] = true;
    ASSERT_EQ(cache_.Prune(real_[s], 0, length + 1).error().code, ErrorCode::kInvalid);
  }

  // One snapshot at a time: taken, then restored somewhere, perhaps twice, and dropped.
  void Snapshot() {
    if (!snapshot_.has_value()) {
      const size_t s = static_cast<size_t>(Below(kCacheSequences));
      snapshot_ = cache_.NewSequence();
      cache_.Fork(real_[s], *snapshot_);
      naive_snapshot_ = naive_[s];
      return;
    }
    const int s = Below(kCacheSequences);
    Reset(s);
    cache_.Fork(*snapshot_, real_[static_cast<size_t>(s)]);
    naive_[static_cast<size_t>(s)] = naive_snapshot_;
    if (Below(2) == 0) return;
    cache_.Free(*snapshot_);
    snapshot_.reset();
  }

  void Reset(int s) {
    cache_.Free(real_[static_cast<size_t>(s)]);
    naive_[static_cast<size_t>(s)] = {};
  }

  void Check() {
    std::vector<const Sequence*> all;
    for (const Sequence& sequence : real_) all.push_back(&sequence);
    if (snapshot_.has_value()) all.push_back(&*snapshot_);
    const Status status = cache_.Check(all, [](GroupId, BlockId) { return 0; });
    ASSERT_TRUE(status.ok()) << status.error().message;
    const size_t s = static_cast<size_t>(Below(kCacheSequences));
    ASSERT_EQ(real_[s].length, static_cast<int64_t>(naive_[s].rows.size()));
    for (const GroupShape& shape : options_.groups) CheckRows(shape, real_[s], naive_[s]);
  }

  // The rows that a next token would see, read one by one.
  void CheckRows(const GroupShape& shape, const Sequence& sequence, const NaiveSequence& naive) {
    const int layer = shape.layers[1];
    const BlockTable& table = sequence.tables[cache_.group_of_layer(layer)];
    const int64_t oldest = Oldest(shape, sequence.length);
    std::vector<std::byte> elements(kDim * sizeof(float));
    std::vector<float> values(kDim);
    float scale = 0.0f;
    for (int64_t p = oldest; p < sequence.length; ++p) {
      if (naive.pruned[static_cast<size_t>(p)]) continue;
      const TableEntry* entry = EntryAt(table, p);
      ASSERT_NE(entry, nullptr) << p;
      const RowNumber number = naive.rows[static_cast<size_t>(p)];
      ReadKeyRow(cache_, {layer, 0}, *entry, p, elements.data(), &scale);
      DecodeRow(shape.k_type, elements.data(), &scale, kDim, values.data());
      ASSERT_EQ(values, KeyOf(number, layer)) << p;
      ReadValueRow(cache_, {layer, 0}, *entry, p, elements.data(), &scale);
      DecodeRow(shape.v_type, elements.data(), &scale, kDim, values.data());
      ASSERT_EQ(values, ValueOf(number, layer)) << p;
    }
  }

  CacheOptions options_;
  Cache cache_;
  PassView view_;
  std::mt19937 random_;
  std::vector<Sequence> real_;
  std::vector<NaiveSequence> naive_;
  std::optional<Sequence> snapshot_;
  NaiveSequence naive_snapshot_;
  RowNumber next_row_ = 1;
};

// `./dev test --programs` multiplies the operations.
int Operations(int usual) {
  const char* factor = std::getenv("KVANT_TEST_FACTOR");
  return usual * (factor == nullptr ? 1 : std::atoi(factor));
}

class KvPrograms : public testing::TestWithParam<KvType> {};

TEST_P(KvPrograms, EverySequenceSeesItsOwnRows) {
  for (const int64_t window : {1, 7, 32, 33, 100}) {
    SCOPED_TRACE(window);
    const bool poison = window % 2 == 1;
    Program(Options(GetParam(), {0, window}, poison), static_cast<uint32_t>(window))
        .Run(Operations(700));
  }
}

TEST_P(KvPrograms, SectionsEndWhereTheyEnd) {
  for (const int64_t window : {1, 11, 32, 48, 300}) {
    SCOPED_TRACE(window);
    Program(Options(GetParam(), {0, window}, window % 2 == 1, "sections"),
            static_cast<uint32_t>(window))
        .Run(Operations(500));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvPrograms,
                         testing::Values(KvType::kF32, KvType::kF16, KvType::kQ8),
                         [](const auto& type) {
                           return type.param == KvType::kF32   ? "f32"
                                  : type.param == KvType::kF16 ? "f16"
                                                               : "q8";
                         });

}  // namespace
}  // namespace kvant::kv
