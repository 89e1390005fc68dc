#include "culet/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

namespace culet {
namespace {

TEST(Status, SuccessHasNoMessage) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
  EXPECT_TRUE(OkStatus().ok());
}

TEST(Status, SuccessDropsAMessage) {
  const Status status(StatusCode::kOk, "all is well");
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
}

TEST(Status, FailureKeepsCodeAndMessageAndCopies) {
  Status copy;
  {
    const Status original(StatusCode::kInvalidArgument, "m is 0; it must be >= 1");
    copy = original;
    EXPECT_EQ(original.message(), copy.message());
  }
  EXPECT_FALSE(copy.ok());
  EXPECT_EQ(copy.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(copy.message(), "m is 0; it must be >= 1");
  EXPECT_EQ(copy.ToString(), "INVALID_ARGUMENT: m is 0; it must be >= 1");
}

TEST(Status, FailureWithoutMessageIsItsCode) {
  EXPECT_EQ(Status(StatusCode::kIo, "").ToString(), "IO");
}

TEST(StatusCode, NamesAreUniqueAndUnknownCodesHaveOne) {
  std::set<std::string> names;
  constexpr int kLast = static_cast<int>(StatusCode::kInternal);
  for (int code = 0; code <= kLast; ++code) names.insert(ToString(static_cast<StatusCode>(code)));
  EXPECT_EQ(static_cast<int>(names.size()), kLast + 1);
  EXPECT_EQ(names.count("UNKNOWN"), 0u) << "a code has no name";
  EXPECT_STREQ(ToString(static_cast<StatusCode>(kLast + 1)), "UNKNOWN");
}

TEST(Result, HoldsAValue) {
  Result<std::string> result = std::string("value");
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_TRUE(result.status().ok());
  EXPECT_EQ(*result, "value");
  EXPECT_EQ(result->size(), 5u);
  result.value() += "!";
  EXPECT_EQ(std::as_const(result).value(), "value!");
}

TEST(Result, HoldsAStatus) {
  const Result<int> result = Status(StatusCode::kNotFound, "no such device");
  EXPECT_FALSE(result.ok());
  EXPECT_FALSE(static_cast<bool>(result));
  EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(result.status().message(), "no such device");
}

TEST(Result, NeverHoldsSuccessWithoutAValue) {
  const Result<int> result = Status();
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Status(StatusCode::kInvalidArgument, "value is odd");
  return value / 2;
}
Status HalveTwice(int value, int& out) {
  const auto half = Half(value);
  CULET_RETURN_IF_ERROR(half.status());
  const auto quarter = Half(*half);
  CULET_RETURN_IF_ERROR(quarter.status());
  out = *quarter;
  return {};
}

TEST(ReturnIfError, LeavesAtTheFirstFailure) {
  int out = -1;
  EXPECT_TRUE(HalveTwice(12, out).ok());
  EXPECT_EQ(out, 3);
  out = -1;
  EXPECT_EQ(HalveTwice(6, out).message(), "value is odd");
  EXPECT_EQ(out, -1);
}

}  // namespace
}  // namespace culet
