// SPDX-License-Identifier: Apache-2.0

// How failure travels: a function that can fail for reasons outside the
// program returns Status, or Result<T> when it also has something to give.
//
//   Result<LoadStats> Load(const Path& dir);
//
//   Status Restore(const Path& dir) {
//     ASSIGN_OR_RETURN(LoadStats stats, Load(dir));
//     if (stats.num_rows == 0) return DataLoss(dir.string(), ": no rows");
//     return OkStatus();
//   }
//
// The eight codes and who acts on each are in README.md. Broken invariants are
// not a Status: see check.h. Values of these types may be moved between
// threads; one value is used by one thread at a time.

#ifndef FLEET_BASE_STATUS_H_
#define FLEET_BASE_STATUS_H_

#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "fleet/base/check.h"

namespace fleet {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,     // the user corrects what was passed
  kNotFound,            // no such file, name, key or rank
  kFailedPrecondition,  // calls came in the wrong order
  kUnavailable,         // a peer or a resource is gone for now: retry
  kDeadlineExceeded,    // a peer is late: report
  kDataLoss,            // a file or message is damaged
  kUnimplemented,       // a backend that is not built in
  kInternal,            // our own fault
};

// "InvalidArgument", "NotFound", ...
std::string_view StatusCodeName(StatusCode code);

// Success, or a code with a message. Success costs one null pointer.
class [[nodiscard]] Status final {
 public:
  // Success.
  Status() = default;
  // `code` must not be kOk.
  Status(StatusCode code, std::string message);

  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const;
  // Empty on success.
  const std::string& message() const;
  // The errno behind the failure, 0 when there was none. Python's OSError
  // is made from it.
  int error_number() const;

  // The same failure with `prefix` and ": " before its message. Success stays
  // success. Use it where a layer knows something that the one below does not:
  // `return status.WithContext("worker 3: pull emb")`.
  Status WithContext(std::string_view prefix) const;

  // "OK", or "DataLoss: model.pdparams: ...".
  std::string ToString() const;

  // Equal in code and message.
  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  friend Status ErrnoStatus(int error_number, std::string message);

  struct Failure {
    StatusCode code;
    int error_number;
    std::string message;
  };
  std::unique_ptr<Failure> failure_;
};

std::ostream& operator<<(std::ostream& out, const Status& status);

inline Status OkStatus() { return Status(); }

namespace base {
// Writes every part one after the other, as `<<` would.
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  if constexpr (sizeof...(parts) == 1 &&
                (std::is_convertible_v<const Parts&, std::string_view> &&
                 ...)) {
    return std::string((std::string_view(parts), ...));
  } else {
    std::ostringstream out;
    ((out << parts), ...);
    return std::move(out).str();
  }
}
}  // namespace base

// One maker per code; the parts are concatenated:
//   return InvalidArgument("axis ", axis, " of a tensor with rank ", rank);
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  return Status(StatusCode::kInvalidArgument, base::Concat(parts...));
}
template <typename... Parts>
Status NotFound(const Parts&... parts) {
  return Status(StatusCode::kNotFound, base::Concat(parts...));
}
template <typename... Parts>
Status FailedPrecondition(const Parts&... parts) {
  return Status(StatusCode::kFailedPrecondition, base::Concat(parts...));
}
template <typename... Parts>
Status Unavailable(const Parts&... parts) {
  return Status(StatusCode::kUnavailable, base::Concat(parts...));
}
template <typename... Parts>
Status DeadlineExceeded(const Parts&... parts) {
  return Status(StatusCode::kDeadlineExceeded, base::Concat(parts...));
}
template <typename... Parts>
Status DataLoss(const Parts&... parts) {
  return Status(StatusCode::kDataLoss, base::Concat(parts...));
}
template <typename... Parts>
Status Unimplemented(const Parts&... parts) {
  return Status(StatusCode::kUnimplemented, base::Concat(parts...));
}
template <typename... Parts>
Status Internal(const Parts&... parts) {
  return Status(StatusCode::kInternal, base::Concat(parts...));
}

// A failed system call: `message` with the system's own words behind it. The
// code is NotFound for ENOENT, InvalidArgument where the path itself is wrong,
// FailedPrecondition for missing rights, and Unavailable for the rest (disk
// full, too many open files), which may be better later.
Status ErrnoStatus(int error_number, std::string message);

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result final {
 public:
  // Both conversions are implicit, so that `return value;` and
  // `return NotFound(...);` work. The status must not be ok.
  Result(T value) : held_(std::in_place_index<1>, std::move(value)) {}
  Result(Status status) : held_(std::in_place_index<0>, std::move(status)) {
    FLEET_CHECK(!std::get<0>(held_).ok(), "a Result made from OkStatus()");
  }
  // Whatever makes a T makes a Result<T>: `return std::make_unique<Derived>()`.
  template <typename U>
    requires(std::is_convertible_v<U &&, T> &&
             !std::is_same_v<std::remove_cvref_t<U>, T> &&
             !std::is_same_v<std::remove_cvref_t<U>, Status> &&
             !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U&& value) : held_(std::in_place_index<1>, std::forward<U>(value)) {}

  bool ok() const { return held_.index() == 1; }
  Status status() const { return ok() ? OkStatus() : std::get<0>(held_); }

  // The value; aborts with the status when there is none. Ask ok() first.
  T& value() & {
    CheckOk();
    return *std::get_if<1>(&held_);
  }
  const T& value() const& {
    CheckOk();
    return *std::get_if<1>(&held_);
  }
  T&& value() && {
    CheckOk();
    return std::move(*std::get_if<1>(&held_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  T value_or(T fallback) && {
    return ok() ? std::move(*this).value() : std::move(fallback);
  }

 private:
  void CheckOk() const {
    FLEET_CHECK(ok(), "value() of a Result that failed: ", std::get<0>(held_));
  }

  std::variant<Status, T> held_;
};

}  // namespace fleet

#define FLEET_JOIN_INNER(a, b) a##b
#define FLEET_JOIN(a, b) FLEET_JOIN_INNER(a, b)

// Leaves the function with the Status of `expression` when that is a failure.
#define RETURN_IF_ERROR(expression)                                      \
  do {                                                                   \
    if (::fleet::Status fleet_status = (expression); !fleet_status.ok()) \
      return fleet_status;                                               \
  } while (false)

// Assigns the value of a Result, or leaves the function with its Status:
//   ASSIGN_OR_RETURN(std::string text, ReadFile(path));
// Put parentheses around a target that holds a comma.
#define ASSIGN_OR_RETURN(target, expression)                          \
  FLEET_ASSIGN_OR_RETURN(FLEET_JOIN(fleet_result_, __LINE__), target, \
                         expression)
#define FLEET_ASSIGN_OR_RETURN(result, target, expression) \
  auto result = (expression);                              \
  if (!result.ok()) return result.status();                \
  target = std::move(result).value()

#endif  // FLEET_BASE_STATUS_H_
