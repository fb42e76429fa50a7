// SPDX-License-Identifier: Apache-2.0

// For tests: ASSERT_OK(x), EXPECT_OK(x), StatusIs(code, message matcher) and
// ASSERT_OK_AND_ASSIGN(int n, Parse(text)). x is a Status or a Result.

#ifndef FLEET_BASE_STATUS_MATCHERS_H_
#define FLEET_BASE_STATUS_MATCHERS_H_

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status.h"

namespace fleet {

inline Status StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is ok") {
  const Status status = StatusOf(arg);
  *result_listener << status;
  return status.ok();
}

MATCHER_P(HasCode, code,
          std::string("has code ") + std::string(StatusCodeName(code))) {
  const Status status = StatusOf(arg);
  *result_listener << status;
  return status.code() == code;
}

MATCHER_P2(StatusIs, code, message_matcher,
           std::string("has code ") + std::string(StatusCodeName(code))) {
  const Status status = StatusOf(arg);
  *result_listener << status << ' ';
  return status.code() == code &&
         testing::ExplainMatchResult(message_matcher, status.message(),
                                     result_listener);
}

}  // namespace fleet

#define EXPECT_OK(expression) EXPECT_THAT((expression), ::fleet::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT((expression), ::fleet::IsOk())
#define ASSERT_OK_AND_ASSIGN(target, expression)                          \
  FLEET_ASSERT_OK_AND_ASSIGN(FLEET_JOIN(fleet_result_, __LINE__), target, \
                             expression)
#define FLEET_ASSERT_OK_AND_ASSIGN(result, target, expression) \
  auto result = (expression);                                  \
  ASSERT_OK(result.status());                                  \
  target = std::move(result).value()

#endif  // FLEET_BASE_STATUS_MATCHERS_H_
