// One error of several threads is kept, whole. It is the first one where their order is known.
#include "base/first_error.h"

#include <gtest/gtest.h>

#include "base/result.h"
#include "base/thread_pool.h"

namespace kvant {
namespace {

TEST(FirstError, KeepsTheFirst) {
  FirstError error;
  EXPECT_TRUE(error.none());
  error.Set({});
  EXPECT_TRUE(error.none());
  error.Set(MakeError(ErrorCode::kIo, "one"));
  EXPECT_FALSE(error.none());
  error.Set(MakeError(ErrorCode::kInvalid, "two"));
  error.Set({});
  EXPECT_FALSE(error.none());
  const Status status = error.Take();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(status.error().message, "one");
}

TEST(FirstError, IsOkWithoutOne) {
  FirstError error;
  EXPECT_TRUE(error.Take().ok());
}

TEST(FirstError, KeepsOneOfManyThreads) {
  FirstError error;
  ThreadPool pool(8);
  pool.Run([&](const ThreadPool::Member& member) {
    if (member.index % 2 == 0) return;
    error.Set(MakeError(ErrorCode::kInvalid, "{}", member.index));
  });
  const Status status = error.Take();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(std::stoi(status.error().message) % 2, 1);
}

}  // namespace
}  // namespace kvant
