// The peak loops do the work they are said to do: every byte is read, every product accumulated.
#include <gtest/gtest.h>

#include <cstring>

#include "cpu/peaks.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu {
namespace {

TEST(Peaks, ReadsEveryWord) {
  alignas(64) uint64_t words[416];
  uint64_t expected = 0;  // 13 pieces: four streams of three and a rest
  for (size_t i = 0; i < 416; ++i) {
    words[i] = 0x9e3779b97f4a7c15u * (i + 1);
    expected ^= words[i];
  }
  for (const IsaReport& isa : ReportIsas()) {
    if (!isa.supported) continue;
    const PeakLoops& peaks = *(*ChooseKernels(isa.name))->peaks;
    const auto* bytes = reinterpret_cast<const std::byte*>(words);
    EXPECT_EQ(peaks.read(bytes, sizeof(words)), expected) << isa.name;
    EXPECT_EQ(peaks.read(bytes, 0), 0u) << isa.name;
  }
}

TEST(Peaks, AccumulatesEveryProduct) {
  for (const IsaReport& isa : ReportIsas()) {
    if (!isa.supported) continue;
    const PeakLoops& peaks = *(*ChooseKernels(isa.name))->peaks;
    for (const PeakLoop* loop : {&peaks.int8, &peaks.int16, &peaks.float32}) {
      for (const int64_t rounds : {int64_t{0}, int64_t{1}, int64_t{1000}, kPeakRoundsMax}) {
        EXPECT_EQ(loop->run(rounds), rounds * loop->macs) << isa.name << " " << loop->instruction;
      }
    }
  }
}

TEST(Peaks, ClockCountsItsOperations) {
  EXPECT_EQ(RunClock(0), 0);
  EXPECT_EQ(RunClock(3), 3 * RunClock(1));
  EXPECT_GT(RunClock(1), 0);
}

}  // namespace
}  // namespace kvant::cpu
