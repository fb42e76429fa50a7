// SPDX-License-Identifier: Apache-2.0

// Invariants. A check that fails is a bug in this program: it writes the place,
// the condition and the values to stderr and aborts. Checks stay on in release
// builds. What comes from outside (peers, disk, users) is a Status instead.
//
//   FLEET_CHECK(slot != kNone, "op ", name, " has no slot ", slot);
//   FLEET_CHECK_EQ(rows.size(), keys.size() * dim);

#ifndef FLEET_BASE_CHECK_H_
#define FLEET_BASE_CHECK_H_

#include <sstream>
#include <string>

namespace fleet::base {

// Writes "file:line: check failed: condition message" and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

template <typename... Parts>
[[noreturn]] [[gnu::noinline]] [[gnu::cold]] void CheckFailedWith(
    const char* file, int line, const char* condition, const Parts&... parts) {
  std::ostringstream out;
  ((out << parts), ...);
  CheckFailed(file, line, condition, out.str());
}

}  // namespace fleet::base

// Aborts unless `condition` holds. What follows it is written behind it and is
// evaluated only then.
#define FLEET_CHECK(condition, ...)                                          \
  do {                                                                       \
    if (!(condition)) [[unlikely]] {                                         \
      ::fleet::base::CheckFailedWith(__FILE__, __LINE__,                     \
                                     #condition __VA_OPT__(, ) __VA_ARGS__); \
    }                                                                        \
  } while (false)

// Compares two values, evaluated once, and shows both.
#define FLEET_CHECK_OP(a, op, b, ...)                                       \
  do {                                                                      \
    const auto& fleet_a = (a);                                              \
    const auto& fleet_b = (b);                                              \
    if (!(fleet_a op fleet_b)) [[unlikely]] {                               \
      ::fleet::base::CheckFailedWith(__FILE__, __LINE__, #a " " #op " " #b, \
                                     "(", fleet_a, " against ", fleet_b,    \
                                     ") " __VA_OPT__(, ) __VA_ARGS__);      \
    }                                                                       \
  } while (false)

#define FLEET_CHECK_EQ(a, b, ...) \
  FLEET_CHECK_OP(a, ==, b __VA_OPT__(, ) __VA_ARGS__)
#define FLEET_CHECK_NE(a, b, ...) \
  FLEET_CHECK_OP(a, !=, b __VA_OPT__(, ) __VA_ARGS__)
#define FLEET_CHECK_LT(a, b, ...) \
  FLEET_CHECK_OP(a, <, b __VA_OPT__(, ) __VA_ARGS__)
#define FLEET_CHECK_LE(a, b, ...) \
  FLEET_CHECK_OP(a, <=, b __VA_OPT__(, ) __VA_ARGS__)
#define FLEET_CHECK_GT(a, b, ...) \
  FLEET_CHECK_OP(a, >, b __VA_OPT__(, ) __VA_ARGS__)
#define FLEET_CHECK_GE(a, b, ...) \
  FLEET_CHECK_OP(a, >=, b __VA_OPT__(, ) __VA_ARGS__)

#endif  // FLEET_BASE_CHECK_H_
