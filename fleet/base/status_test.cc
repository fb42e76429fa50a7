// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/status.h"

#include <cerrno>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet {
namespace {

using ::testing::HasSubstr;

TEST(Status, IsOkByDefaultAndSmall) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
  EXPECT_EQ(sizeof(Status), sizeof(void*));
}

TEST(Status, MakersConcatenateTheirParts) {
  const Status status = InvalidArgument("axis ", 3, " of ", 2.5, " is ", 'x');
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "axis 3 of 2.5 is x");
}

TEST(Status, EveryMakerHasItsCodeAndName) {
  const std::vector<std::pair<Status, StatusCode>> all = {
      {InvalidArgument("m"), StatusCode::kInvalidArgument},
      {NotFound("m"), StatusCode::kNotFound},
      {FailedPrecondition("m"), StatusCode::kFailedPrecondition},
      {Unavailable("m"), StatusCode::kUnavailable},
      {DeadlineExceeded("m"), StatusCode::kDeadlineExceeded},
      {DataLoss("m"), StatusCode::kDataLoss},
      {Unimplemented("m"), StatusCode::kUnimplemented},
      {Internal("m"), StatusCode::kInternal}};
  for (const auto& [status, code] : all) {
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.ToString(), std::string(StatusCodeName(code)) + ": m");
  }
  EXPECT_EQ(NotFound("m").ToString(), "NotFound: m");
}

TEST(Status, CopiesAreIndependent) {
  Status a = NotFound("key");
  const Status b = a;
  a = OkStatus();
  EXPECT_TRUE(a.ok());
  EXPECT_EQ(b.message(), "key");
  a = b;
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a == NotFound("other"));
}

TEST(Status, ContextGoesBeforeTheMessageAndKeepsTheCode) {
  const Status status = Unavailable("no answer in 30s").WithContext("worker 3");
  EXPECT_EQ(status, Unavailable("worker 3: no answer in 30s"));
  EXPECT_TRUE(OkStatus().WithContext("worker 3").ok());
}

TEST(Status, ErrnoBecomesCodeWordsAndNumber) {
  const Status missing = ErrnoStatus(ENOENT, "open a.txt");
  EXPECT_THAT(missing, StatusIs(StatusCode::kNotFound,
                                HasSubstr("open a.txt: No such file")));
  EXPECT_EQ(missing.error_number(), ENOENT);
  EXPECT_EQ(missing.WithContext("load").error_number(), ENOENT);
  EXPECT_THAT(ErrnoStatus(ENOSPC, "x"), HasCode(StatusCode::kUnavailable));
  EXPECT_THAT(ErrnoStatus(EISDIR, "x"), HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(ErrnoStatus(EACCES, "x"),
              HasCode(StatusCode::kFailedPrecondition));
  EXPECT_EQ(NotFound("x").error_number(), 0);
}

Result<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgument(n, " is odd");
  return n / 2;
}

Result<int> Quarter(int n) {
  ASSIGN_OR_RETURN(const int half, Half(n));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int n) {
  RETURN_IF_ERROR(Quarter(n).status());
  return OkStatus();
}

TEST(Result, CarriesAValueOrAStatus) {
  const Result<int> good = Half(4);
  ASSERT_OK(good);
  EXPECT_EQ(*good, 2);
  EXPECT_THAT(Half(3), StatusIs(StatusCode::kInvalidArgument, "3 is odd"));
  EXPECT_EQ(Half(3).value_or(7), 7);
  EXPECT_EQ(Half(8).value_or(7), 4);
}

TEST(Result, MacrosMoveFailureUp) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_THAT(Quarter(6), StatusIs(StatusCode::kInvalidArgument, "3 is odd"));
  EXPECT_OK(CheckQuarter(4));
  EXPECT_EQ(CheckQuarter(5), InvalidArgument("5 is odd"));
}

struct Shape {
  virtual ~Shape() = default;
  virtual int sides() const = 0;
};
struct Square final : Shape {
  int sides() const override { return 4; }
};
Result<std::unique_ptr<Shape>> MakeSquare() {
  return std::make_unique<Square>();
}

TEST(Result, HoldsMoveOnlyValuesAndConverts) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Shape> shape, MakeSquare());
  EXPECT_EQ(shape->sides(), 4);
  const Result<std::string> text = "plain";
  EXPECT_EQ(text->size(), 5u);
}

TEST(ResultDeathTest, ValueOfAFailureAbortsWithTheStatus) {
  EXPECT_DEATH((void)Half(3).value(), "3 is odd");
  EXPECT_DEATH((void)Result<int>(OkStatus()), "made from OkStatus");
}

}  // namespace
}  // namespace fleet
