// The peak loops do the work they are said to do: every byte is read, every product accumulated.
#include <gtest/gtest.h>

#include <cstring>

#include "cpu/kernels/table.h"
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
  for (const std::string& isa : test::UsableIsas()) {
    const PeakLoops& peaks = *test::KernelsNamed(isa).peaks;
    const auto* bytes = reinterpret_cast<const std::byte*>(words);
    EXPECT_EQ(peaks.read(bytes, sizeof(words)), expected) << isa;
    EXPECT_EQ(peaks.read(bytes, 0), 0u) << isa;
  }
}

TEST(Peaks, AccumulatesEveryProduct) {
  for (const std::string& isa : test::UsableIsas()) {
    const PeakLoops& peaks = *test::KernelsNamed(isa).peaks;
    for (const PeakLoop* loop : {&peaks.int8, &peaks.int16, &peaks.float32}) {
      for (const int64_t rounds : {int64_t{0}, int64_t{1}, int64_t{1000}, kPeakRoundsMax}) {
        if (isa == "amx_model" && rounds > 1000) continue;  // takes minutes
        EXPECT_EQ(loop->run(rounds), rounds * loop->macs) << isa << " " << loop->instruction;
      }
    }
  }
}

TEST(Peaks, TilesAreMeasuredInTiles) {
  for (const std::string& isa : test::UsableIsas()) {
    const char* instruction = test::KernelsNamed(isa).peaks->int8.instruction;
    EXPECT_EQ(std::string(instruction) == "tdpbf16ps", isa.starts_with("amx")) << isa;
  }
}

TEST(Peaks, ClockCountsItsOperations) {
  EXPECT_EQ(RunClock(0), 0);
  EXPECT_EQ(RunClock(3), 3 * RunClock(1));
  EXPECT_GT(RunClock(1), 0);
}

}  // namespace
}  // namespace kvant::cpu
