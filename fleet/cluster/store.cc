// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/store.h"

#include <charconv>
#include <sstream>
#include <system_error>
#include <utility>

#include "fleet/base/check.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;

// "0, 3 and 17 more": a thousand names help nobody.
constexpr size_t kMaxNamed = 8;

template <typename T>
std::string Join(const std::vector<T>& names) {
  std::ostringstream out;
  for (size_t i = 0; i < names.size() && i < kMaxNamed; ++i) {
    out << (i == 0 ? "" : ", ") << names[i];
  }
  if (names.size() > kMaxNamed) {
    out << " and " << names.size() - kMaxNamed << " more";
  }
  return out.str();
}

std::vector<int> Missing(const std::set<int>& arrived, int size) {
  std::vector<int> missing;
  for (int member = 0; member < size; ++member) {
    if (!arrived.contains(member)) missing.push_back(member);
  }
  return missing;
}

Result<int64_t> ParseNumber(std::string_view key, const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  return InvalidArgument("store: add to ", key, ": its value '", text,
                         "' is not a number");
}

}  // namespace

Status InProcessStore::Set(std::string_view key, std::string_view value,
                           Deadline) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(aborted_);
  PutLocked(key, value);
  return OkStatus();
}

Result<std::string> InProcessStore::Get(std::string_view key, Deadline) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(aborted_);
  const auto found = values_.find(key);
  if (found == values_.end()) return NotFound("store: no value for ", key);
  return found->second;
}

Result<std::vector<std::string>> InProcessStore::Wait(
    const std::vector<std::string>& keys, Deadline deadline) {
  MutexLock lock(mutex_);
  while (true) {
    RETURN_IF_ERROR(aborted_);
    std::vector<std::string> values;
    std::vector<std::string_view> missing;
    for (const std::string& key : keys) {
      const auto found = values_.find(key);
      if (found == values_.end()) {
        missing.push_back(key);
      } else {
        values.push_back(found->second);
      }
    }
    if (missing.empty()) return values;
    if (deadline.expired()) {
      return DeadlineExceeded("store: ", missing.size(), " of ", keys.size(),
                              " keys never came: ", Join(missing));
    }
    changed_.WaitUntil(mutex_, deadline);
  }
}

Result<int64_t> InProcessStore::Add(std::string_view key, int64_t amount,
                                    Deadline) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(aborted_);
  int64_t number = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    ASSIGN_OR_RETURN(number, ParseNumber(key, found->second));
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(number, amount, &sum)) {
    return InvalidArgument("store: add to ", key, ": ", number, " and ", amount,
                           " do not fit in 64 bits");
  }
  PutLocked(key, std::to_string(sum));
  return sum;
}

Result<std::optional<std::string>> InProcessStore::CompareAndSet(
    std::string_view key, std::optional<std::string_view> expected,
    std::string_view desired, Deadline) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(aborted_);
  std::optional<std::string> value;
  if (const auto found = values_.find(key); found != values_.end()) {
    value = found->second;
  }
  if (value != expected) return value;
  PutLocked(key, desired);
  return std::optional<std::string>(desired);
}

Status InProcessStore::Barrier(std::string_view name, int member, int size,
                               Deadline deadline) {
  if (member < 0 || member >= size) {
    return InvalidArgument("barrier ", name, ": member ", member, " of ", size);
  }
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(aborted_);
  auto& slot = gatherings_[std::string(name)];
  if (slot == nullptr) {
    slot = std::make_shared<Gathering>(Gathering{.size = size, .arrived = {}});
  }
  const std::shared_ptr<Gathering> mine = slot;
  if (mine->size != size) {
    return InvalidArgument("barrier ", name, ": member ", member, " came for ",
                           size, " members, but member ",
                           *mine->arrived.begin(), " for ", mine->size);
  }
  if (!mine->arrived.insert(member).second) {
    return FailedPrecondition("barrier ", name, ": member ", member,
                              " is already waiting there");
  }
  if (mine->arrived.size() == static_cast<size_t>(size)) {
    mine->complete = true;
    gatherings_.erase(gatherings_.find(name));
    changed_.NotifyAll();
    return OkStatus();
  }
  while (!mine->complete) {
    RETURN_IF_ERROR(aborted_);
    if (deadline.expired()) {
      const std::vector<int> missing = Missing(mine->arrived, size);
      mine->arrived.erase(member);
      if (mine->arrived.empty()) gatherings_.erase(gatherings_.find(name));
      return DeadlineExceeded("barrier ", name, ": member ", member,
                              " waits for ", missing.size(), " of ", size,
                              " members: ", Join(missing));
    }
    changed_.WaitUntil(mutex_, deadline);
  }
  return OkStatus();
}

void InProcessStore::Abort(Status reason) {
  FLEET_CHECK(!reason.ok(), "a store aborted without a reason");
  MutexLock lock(mutex_);
  if (!aborted_.ok()) return;
  aborted_ = std::move(reason);
  changed_.NotifyAll();
}

void InProcessStore::PutLocked(std::string_view key, std::string_view value) {
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.NotifyAll();
}

}  // namespace fleet::cluster
