// Pages and where they lie, on the machine at hand: mostly one with a single node.
#include "base/numa_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "base/aligned_buffer.h"
#include "base/cpu_topology.h"

namespace kvant {
namespace {

AlignedBuffer Pages(size_t count) {
  auto buffer = AlignedBuffer::Allocate(count * static_cast<size_t>(sysconf(_SC_PAGESIZE)), "test");
  EXPECT_TRUE(buffer.ok());
  return std::move(*buffer);
}

TEST(PagesBegunIn, PartsOfARangeHaveEachPageOnce) {
  const AlignedBuffer buffer = Pages(6);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t cut : {size_t{1}, page - 1, page, page + 1, 2 * page + 7, 5 * page}) {
    std::vector<int> times(6);
    for (size_t at = 0; at < buffer.size(); at += cut) {
      const auto part = PagesBegunIn(buffer.bytes().subspan(at, std::min(cut, buffer.size() - at)));
      for (size_t i = 0; i < part.size(); i += page) {
        const auto offset = static_cast<size_t>(part.data() + i - buffer.data());
        ASSERT_EQ(offset % page, 0u);
        ++times[offset / page];
      }
    }
    EXPECT_EQ(times, std::vector<int>(6, 1)) << cut;
  }
  EXPECT_TRUE(PagesBegunIn({}).empty());
}

TEST(MovePagesTo, CountsPagesAndChangesNoByte) {
  const AlignedBuffer buffer = Pages(1100);  // more than one call moves
  for (size_t i = 0; i < buffer.size(); i += 1000) buffer.data()[i] = static_cast<std::byte>(i);
  const CpuTopology topology = ThisCpuTopology();
  const PagesPlaced placed = MovePagesTo(buffer.bytes(), CurrentNode(topology));
  EXPECT_EQ(placed.pages, 1100);
  EXPECT_LE(placed.there, placed.pages);
  if (topology.Nodes().size() == 1) {
    // Where the system tells where pages lie at all, they lie on the only node.
    EXPECT_TRUE(placed.there == 0 || placed.there == placed.pages) << placed.there;
  }
  for (size_t i = 0; i < buffer.size(); i += 1000) {
    ASSERT_EQ(buffer.data()[i], static_cast<std::byte>(i));
  }
}

TEST(MovePagesTo, ANodeThatIsNotThereIsNoError) {
  const AlignedBuffer buffer = Pages(3);
  const PagesPlaced placed = MovePagesTo(buffer.bytes(), 1000);
  EXPECT_EQ(placed.pages, 3);
  EXPECT_EQ(placed.there, 0);
}

TEST(SpreadPages, KeepsWhatIsThereAndRefusesWhatCannotBe) {
  AlignedBuffer buffer = Pages(8);
  buffer.data()[0] = std::byte{1};
  const std::vector<int64_t> nodes = ThisCpuTopology().Nodes();
  SpreadPages(buffer.bytes(), nodes);  // may be refused: no right to, no such call
  EXPECT_EQ(buffer.data()[0], std::byte{1});
  for (std::byte& byte : buffer.bytes()) byte = std::byte{2};
  EXPECT_FALSE(SpreadPages(buffer.bytes(), std::vector<int64_t>{1 << 20}));
  EXPECT_FALSE(SpreadPages(buffer.bytes(), std::vector<int64_t>{-1}));
  EXPECT_TRUE(SpreadPages(buffer.bytes(), {}));
}

}  // namespace
}  // namespace kvant
