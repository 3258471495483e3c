// The thread pool: every member runs every body once, barriers order what is before and after them,
// and ranges of work cover everything exactly once. Meant to be run under the thread sanitizer too.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace kvant {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

// 17 and 64 are more than most test machines have cores.
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 4, 8, 17, 64));

TEST_P(ThreadPoolTest, EveryMemberRunsOnce) {
  const int threads = GetParam();
  ThreadPool pool(threads);
  ASSERT_EQ(pool.size(), threads);
  std::vector<int> runs(static_cast<size_t>(threads));  // no atomics: each member has its own
  const std::thread::id caller = std::this_thread::get_id();
  for (int run = 1; run <= 200; ++run) {
    pool.Run([&](const ThreadPool::Member& member) {
      ASSERT_EQ(member.count, threads);
      ASSERT_EQ(std::this_thread::get_id() == caller, member.index == 0);
      ++runs[static_cast<size_t>(member.index)];
    });
    // All have finished when Run returns.
    for (const int count : runs) ASSERT_EQ(count, run);
  }
}

TEST_P(ThreadPoolTest, BarriersOrderPhases) {
  const int threads = GetParam();
  ThreadPool pool(threads);
  std::vector<int64_t> values(static_cast<size_t>(threads), 1);
  std::vector<int64_t> sums(static_cast<size_t>(threads));
  constexpr int kPhases = 50;
  pool.Run([&](const ThreadPool::Member& member) {
    const size_t index = static_cast<size_t>(member.index);
    for (int phase = 0; phase < kPhases; ++phase) {
      // Everybody reads all values, then everybody changes its own.
      sums[index] = std::accumulate(values.begin(), values.end(), int64_t{0});
      member.Barrier();
      values[index] = sums[index] % 1000003;
      member.Barrier();
    }
  });
  int64_t expected = 1;
  for (int phase = 0; phase < kPhases; ++phase) expected = expected * threads % 1000003;
  for (const int64_t value : values) EXPECT_EQ(value, expected);
}

TEST_P(ThreadPoolTest, ManyShortRuns) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> total{0};
  constexpr int kRuns = 3000;
  for (int run = 0; run < kRuns; ++run) {
    pool.Run([&](const ThreadPool::Member& member) {
      total.fetch_add(member.index + 1, std::memory_order_relaxed);
    });
  }
  EXPECT_EQ(total, int64_t{kRuns} * GetParam() * (GetParam() + 1) / 2);
}

// Members that have gone to sleep wake up.
TEST_P(ThreadPoolTest, RunsAfterAPause) {
  ThreadPool pool(GetParam());
  for (int run = 0; run < 3; ++run) {
    std::atomic<int> members{0};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.Run([&](const ThreadPool::Member&) { ++members; });
    EXPECT_EQ(members, GetParam());
  }
}

// One member sleeps while the others wait for it at a barrier.
TEST_P(ThreadPoolTest, WaitsForASlowMember) {
  ThreadPool pool(GetParam());
  const int slow = GetParam() - 1;
  bool done = false;
  pool.Run([&](const ThreadPool::Member& member) {
    if (member.index == slow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      done = true;
    }
    member.Barrier();
    ASSERT_TRUE(done);
  });
}

// Every share of every phase once, and what one phase wrote is there in the next. Runs between
// phases change nothing.
TEST_P(ThreadPoolTest, PhasesRunInOrderAndSharesOnce) {
  ThreadPool pool(GetParam());
  for (int job = 0; job < 50; ++job) {
    constexpr int64_t kPhases = 20;
    std::vector<int64_t> values(64, 1);  // by share; no atomics: each share writes its own
    std::vector<int64_t> sums(64);
    std::vector<int> runs(64 * kPhases);
    int shares = 0;
    pool.RunPhases(kPhases, [&](int64_t phase, const ThreadPool::Member& member) {
      ASSERT_LT(member.thread, GetParam());
      const size_t share = static_cast<size_t>(member.index);
      if (share >= 64) return;
      ++runs[static_cast<size_t>(phase) * 64 + share];
      if (share == 0) shares = member.count;
      if (phase % 2 == 0) {
        sums[share] = std::accumulate(values.begin(), values.end(), int64_t{0});
      } else {
        values[share] = sums[share] % 1000003;
      }
    });
    const int64_t taking = std::min(shares, 64);
    std::vector<int64_t> expected(64, 1);
    for (int64_t phase = 0; phase < kPhases; phase += 2) {
      const int64_t sum = std::accumulate(expected.begin(), expected.end(), int64_t{0});
      std::fill_n(expected.begin(), taking, sum % 1000003);
    }
    ASSERT_EQ(values, expected);
    for (int64_t phase = 0; phase < kPhases; ++phase) {
      for (int64_t share = 0; share < taking; ++share) {
        ASSERT_EQ(runs[static_cast<size_t>(phase * 64 + share)], 1);
      }
    }
    std::atomic<int> members{0};
    if (job % 7 == 0) {
      pool.Run([&](const ThreadPool::Member&) { ++members; });
      ASSERT_EQ(members, GetParam());
    }
  }
}

// All threads but the caller are stuck in their first share until all other shares are done: they
// never would be if a thread waited for its own to be taken by their owner.
TEST_P(ThreadPoolTest, OthersTakeWhatADelayedThreadHasNotBegun) {
  ThreadPool pool(GetParam());
  for (int job = 0; job < 5; ++job) {
    std::atomic<int> finished{0};
    std::atomic<int> stuck{0};
    pool.RunPhases(1, [&](int64_t, const ThreadPool::Member& member) {
      if (member.thread != 0 && stuck.fetch_add(1) < GetParam() - 1) {
        while (finished < member.count - stuck) std::this_thread::yield();
        return;
      }
      ++finished;
    });
    EXPECT_GT(finished, 0);
  }
}

// A phase with all its shares done does not wait for threads that sleep.
TEST_P(ThreadPoolTest, ManyJobsOfShortPhases) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> shares{0};
  int64_t expected = 0;
  for (int job = 0; job < 2000; ++job) {
    int count = 0;
    pool.RunPhases(1 + job % 3, [&](int64_t phase, const ThreadPool::Member& member) {
      if (member.index == 0 && phase == 0) count = member.count;
      shares.fetch_add(1, std::memory_order_relaxed);
    });
    expected += int64_t{count} * (1 + job % 3);
    ASSERT_EQ(shares, expected);
  }
}

// Work between two phases runs once and alone, after all shares of the first phase and before any
// of the second. No atomics are used, so that the thread sanitizer sees work that is out of order.
TEST_P(ThreadPoolTest, WorkBetweenPhasesRunsAloneAndInOrder) {
  ThreadPool pool(GetParam());
  const size_t shares = static_cast<size_t>(ThreadPool::SharesOf(GetParam()));
  for (int64_t phases = 0; phases < 40; ++phases) {
    std::vector<int64_t> done(shares);  // by share
    int64_t opened = 0;
    int64_t seen = -1;  // by the shares of the phase, written between phases
    const auto next = [&](const ThreadPool::Member& member) {
      EXPECT_EQ(member.index, 0);
      EXPECT_EQ(member.count, 1);
      EXPECT_LT(member.thread, GetParam());
      for (const int64_t count : done) EXPECT_EQ(count, opened);
      seen = opened;
      return opened++ < phases;
    };
    pool.RunPhases(next, [&](const ThreadPool::Member& member) {
      EXPECT_EQ(member.count, static_cast<int>(shares));
      int64_t& count = done[static_cast<size_t>(member.index)];
      EXPECT_EQ(count, seen);
      ++count;
    });
    ASSERT_EQ(opened, phases + 1);
    for (const int64_t count : done) ASSERT_EQ(count, phases);
  }
}

// Memory may run out on any thread; it must not end the process.
TEST_P(ThreadPoolTest, WhatAnyMemberThrowsComesToTheCaller) {
  ThreadPool pool(GetParam());
  for (int thrower = 0; thrower < pool.size(); ++thrower) {
    std::atomic<int> done = 0;
    const auto body = [&](const ThreadPool::Member& member) {
      ++done;
      if (member.index == thrower) throw std::bad_alloc();
    };
    EXPECT_THROW(pool.Run(body), std::bad_alloc);
    EXPECT_EQ(done, pool.size());
  }
  int phases = 0;
  const auto next = [&](const ThreadPool::Member&) { return ++phases <= 3; };
  EXPECT_THROW(pool.RunPhases(next,
                              [](const ThreadPool::Member& member) {
                                if (member.index == member.count - 1) throw std::runtime_error("");
                              }),
               std::runtime_error);
  // The team works on.
  std::atomic<int> done = 0;
  pool.Run([&](const ThreadPool::Member&) { ++done; });
  EXPECT_EQ(done, pool.size());
}

TEST_P(ThreadPoolTest, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(GetParam());
}

TEST(ThreadPool, PoolsAreIndependent) {
  ThreadPool first(3);
  ThreadPool second(2);
  std::atomic<int> runs{0};
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) second.Run([&](const ThreadPool::Member&) { ++runs; });
  });
  for (int i = 0; i < 200; ++i) first.Run([&](const ThreadPool::Member&) { ++runs; });
  other.join();
  EXPECT_EQ(runs, 200 * 5);
}

TEST(OwnedRange, CoversEverythingOnceAtTileBorders) {
  for (const int64_t tile : {1, 2, 16, 64}) {
    for (const int members : {1, 2, 3, 7, 64}) {
      for (const int64_t count : {0, 1, 15, 16, 17, 63, 64, 65, 1000, 4096}) {
        int64_t next = 0;
        for (int index = 0; index < members; ++index) {
          const Range range = OwnedRange(count, tile, index, members);
          ASSERT_LE(range.begin, range.end);
          if (range.begin == range.end) continue;
          ASSERT_EQ(range.begin, next);
          ASSERT_EQ(range.begin % tile, 0);
          ASSERT_TRUE(range.end % tile == 0 || range.end == count);
          // Fair: nobody has more than a tile above the mean.
          ASSERT_LE(range.end - range.begin, (count / tile / members + 1) * tile);
          next = range.end;
        }
        ASSERT_EQ(next, count) << tile << " " << members << " " << count;
      }
    }
  }
}

TEST(DefaultThreadCount, IsWithinTheMachine) {
  std::string reason;
  const int threads = DefaultThreadCount(&reason);
  EXPECT_GE(threads, 1);
  EXPECT_LE(threads, static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  EXPECT_NE(reason.find("affinity mask"), std::string::npos);
  EXPECT_EQ(DefaultThreadCount(), threads);
}

}  // namespace
}  // namespace kvant
