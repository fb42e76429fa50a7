// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/status.h"

#include <cerrno>
#include <system_error>

namespace fleet {
namespace {

StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EISDIR:
    case ENOTDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL:
      return StatusCode::kInvalidArgument;
    case EACCES:
    case EPERM:
    case EROFS:
    case EEXIST:
    case ENOTEMPTY:
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kUnavailable;
  }
}

}  // namespace

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "InvalidArgument";
    case StatusCode::kNotFound:
      return "NotFound";
    case StatusCode::kFailedPrecondition:
      return "FailedPrecondition";
    case StatusCode::kUnavailable:
      return "Unavailable";
    case StatusCode::kDeadlineExceeded:
      return "DeadlineExceeded";
    case StatusCode::kDataLoss:
      return "DataLoss";
    case StatusCode::kUnimplemented:
      return "Unimplemented";
    case StatusCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

Status::Status(StatusCode code, std::string message)
    : failure_(std::make_unique<Failure>(
          Failure{code, /*error_number=*/0, std::move(message)})) {
  FLEET_CHECK(code != StatusCode::kOk, failure_->message);
}

Status::Status(const Status& other)
    : failure_(other.ok() ? nullptr
                          : std::make_unique<Failure>(*other.failure_)) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) {
    failure_ =
        other.ok() ? nullptr : std::make_unique<Failure>(*other.failure_);
  }
  return *this;
}

StatusCode Status::code() const {
  return ok() ? StatusCode::kOk : failure_->code;
}

const std::string& Status::message() const {
  static const std::string empty;
  return ok() ? empty : failure_->message;
}

int Status::error_number() const { return ok() ? 0 : failure_->error_number; }

Status Status::WithContext(std::string_view prefix) const {
  Status result = *this;
  if (!result.ok()) {
    result.failure_->message = base::Concat(prefix, ": ", message());
  }
  return result;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return base::Concat(StatusCodeName(code()), ": ", message());
}

std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

Status ErrnoStatus(int error_number, std::string message) {
  message += ": ";
  message += std::generic_category().message(error_number);
  Status status(CodeOfErrno(error_number), std::move(message));
  status.failure_->error_number = error_number;
  return status;
}

}  // namespace fleet
