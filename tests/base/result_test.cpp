// Results and statuses: values and errors arrive, and the macros pass errors on and values through.
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace kvant {
namespace {

Status Positive(int number) {
  if (number > 0) return {};
  return MakeError(ErrorCode::kInvalid, "{} is not positive", number);
}

Result<std::unique_ptr<int>> Make(int number) {
  KVANT_TRY(Positive(number));
  return std::make_unique<int>(number);
}

Result<int> Twice(int number, int* evaluations) {
  const auto counted = [&] {
    ++*evaluations;
    return Make(number);
  };
  KVANT_ASSIGN(const std::unique_ptr<int> made, counted());
  return *made * 2;
}

TEST(Result, HoldsAValue) {
  Result<int> result(5);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, 5);
  *result = 6;
  EXPECT_EQ(result.value(), 6);
  EXPECT_EQ(*Make(3).value(), 3);
}

TEST(Result, HoldsAnError) {
  const Result<int> result(MakeError(ErrorCode::kContextFull, "{} of {}", 3, 2));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kContextFull);
  EXPECT_EQ(result.error().message, "3 of 2");
  EXPECT_STREQ(ErrorCodeName(result.error().code), "CONTEXT_FULL");
}

TEST(Result, MacrosPassErrorsAndValues) {
  int evaluations = 0;
  EXPECT_EQ(*Twice(4, &evaluations), 8);
  EXPECT_EQ(evaluations, 1) << "the expression is evaluated once";
  const auto failed = Twice(-4, &evaluations);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "-4 is not positive");
}

TEST(Status, IsOkUnlessAnErrorIsGiven) {
  EXPECT_TRUE(Status().ok());
  const Status status = Positive(0);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalid);
}

TEST(ResultDeathTest, MisuseIsABugOfOurs) {
  EXPECT_DEATH(static_cast<void>(Result<int>(1).error()), "internal error at .*result.h");
  EXPECT_DEATH(static_cast<void>(Make(0).value()), "internal error at .*result.h");
}

TEST(ErrorCode, EveryCodeHasAName) {
  const std::pair<ErrorCode, const char*> names[] = {{ErrorCode::kInvalid, "INVALID"},
                                                     {ErrorCode::kNotSupported, "NOT_SUPPORTED"},
                                                     {ErrorCode::kOutOfMemory, "OUT_OF_MEMORY"},
                                                     {ErrorCode::kContextFull, "CONTEXT_FULL"},
                                                     {ErrorCode::kIo, "IO"},
                                                     {ErrorCode::kCorrupt, "CORRUPT"},
                                                     {ErrorCode::kCancelled, "CANCELLED"}};
  for (const auto& [code, name] : names) EXPECT_STREQ(ErrorCodeName(code), name);
}

}  // namespace
}  // namespace kvant
