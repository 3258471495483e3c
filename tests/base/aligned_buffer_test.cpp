// Aligned buffers: zeros at page boundaries, movable, and an impossible request is an error.
#include "base/aligned_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace kvant {
namespace {

TEST(AlignedBuffer, IsZeroedAndAligned) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{4097}, size_t{5} << 20}) {
    auto buffer = AlignedBuffer::Allocate(size, "test");
    ASSERT_TRUE(buffer.ok()) << buffer.error().message;
    EXPECT_GE(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 4096, 0u);
    EXPECT_TRUE(std::ranges::all_of(buffer->bytes(), [](std::byte b) { return b == std::byte{}; }));
    buffer->data()[size - 1] = std::byte{7};
    buffer->Commit();
    EXPECT_EQ(buffer->data()[size - 1], std::byte{7}) << "Commit keeps the content";
  }
}

TEST(AlignedBuffer, MayBeEmpty) {
  auto buffer = AlignedBuffer::Allocate(0, "test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0u);
  buffer->Commit();
}

TEST(AlignedBuffer, Moves) {
  AlignedBuffer first = AlignedBuffer::Allocate(100, "test").value();
  const std::byte* data = first.data();
  AlignedBuffer second = std::move(first);
  EXPECT_EQ(first.data(), nullptr);
  AlignedBuffer third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
}

TEST(AlignedBuffer, ReportsWhatIsImpossible) {
  for (const size_t size : {std::numeric_limits<size_t>::max(), size_t{1} << 62}) {
    const auto buffer = AlignedBuffer::Allocate(size, "the KV cache");
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(buffer.error().message, testing::StartsWith("the KV cache: "));
  }
}

}  // namespace
}  // namespace kvant
