// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/store.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "fleet/base/check.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;

// What a name costs beside its bytes, about.
constexpr size_t kEntryByteSize = 128;

// "0, 3 and 17 more": a thousand names help nobody.
constexpr size_t kMaxNamed = 8;

// `names` are the first of `count`.
template <typename T>
std::string Join(const std::vector<T>& names, size_t count) {
  std::ostringstream out;
  const size_t num_named = std::min(names.size(), kMaxNamed);
  for (size_t i = 0; i < num_named; ++i) {
    out << (i == 0 ? "" : ", ") << names[i];
  }
  if (count > num_named) out << " and " << count - num_named << " more";
  return out.str();
}

// The first that are missing, as many as are named.
template <typename Id>
std::vector<int> FirstMissing(const std::map<int, Id>& arrived, int size) {
  std::vector<int> missing;
  for (int member = 0; member < size && missing.size() < kMaxNamed; ++member) {
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

// Where a call that waits finds its outcome. Two threads share it, and either
// may be done first.
template <typename Outcome>
class Mailbox final {
 public:
  void Put(Outcome outcome) {
    MutexLock lock(mutex_);
    outcome_.emplace(std::move(outcome));
    came_.NotifyAll();
  }
  // False when nothing came in time.
  bool WaitUntil(Deadline deadline) {
    MutexLock lock(mutex_);
    while (!outcome_.has_value()) {
      if (!came_.WaitUntil(mutex_, deadline)) return outcome_.has_value();
    }
    return true;
  }
  Outcome Take() {
    (void)WaitUntil(Deadline::Infinite());
    MutexLock lock(mutex_);
    return *std::move(outcome_);
  }

 private:
  base::Mutex mutex_;
  base::CondVar came_;
  std::optional<Outcome> outcome_ GUARDED_BY(mutex_);
};

void Complete(const std::vector<std::function<void()>>& completions) {
  for (const auto& completion : completions) completion();
}

}  // namespace

Status InProcessStore::Set(std::string_view key, std::string_view value,
                           Deadline) {
  Completions completions;
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(aborted_);
    RETURN_IF_ERROR(PutLocked(key, value, completions));
  }
  Complete(completions);
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
  using Values = Result<std::vector<std::string>>;
  const auto mailbox = std::make_shared<Mailbox<Values>>();
  const CallId id{0, NextNumber()};
  const bool is_new = StartWait(
      id, keys, [mailbox](Values values) { mailbox->Put(std::move(values)); });
  FLEET_CHECK(is_new);
  if (!mailbox->WaitUntil(deadline)) Expire(id);
  return mailbox->Take();
}

Result<int64_t> InProcessStore::Add(std::string_view key, int64_t amount,
                                    Deadline) {
  int64_t sum = 0;
  Completions completions;
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(aborted_);
    int64_t number = 0;
    if (const auto found = values_.find(key); found != values_.end()) {
      ASSIGN_OR_RETURN(number, ParseNumber(key, found->second));
    }
    if (__builtin_add_overflow(number, amount, &sum)) {
      return InvalidArgument("store: add to ", key, ": ", number, " and ",
                             amount, " do not fit in 64 bits");
    }
    RETURN_IF_ERROR(PutLocked(key, std::to_string(sum), completions));
  }
  Complete(completions);
  return sum;
}

Result<std::optional<std::string>> InProcessStore::CompareAndSet(
    std::string_view key, std::optional<std::string_view> expected,
    std::string_view desired, Deadline) {
  Completions completions;
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(aborted_);
    std::optional<std::string> value;
    if (const auto found = values_.find(key); found != values_.end()) {
      value = found->second;
    }
    if (value != expected) return value;
    RETURN_IF_ERROR(PutLocked(key, desired, completions));
  }
  Complete(completions);
  return std::optional<std::string>(desired);
}

Status InProcessStore::Barrier(std::string_view name, int member, int size,
                               Deadline deadline) {
  const auto mailbox = std::make_shared<Mailbox<Status>>();
  const CallId id{0, NextNumber()};
  const bool is_new = StartBarrier(
      id, name, member, size,
      [mailbox](Status status) { mailbox->Put(std::move(status)); });
  FLEET_CHECK(is_new);
  if (!mailbox->WaitUntil(deadline)) Expire(id);
  return mailbox->Take();
}

void InProcessStore::Abort(Status reason) {
  FLEET_CHECK(!reason.ok(), "a store aborted without a reason");
  Completions completions;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = std::move(reason);
    EndAllLocked(aborted_, completions);
  }
  Complete(completions);
}

bool InProcessStore::StartWait(CallId id, const std::vector<std::string>& keys,
                               WaitDone done) {
  Result<std::vector<std::string>> values = Unavailable("not asked");
  {
    MutexLock lock(mutex_);
    if (WaitsLocked(id)) return false;
    std::vector<std::string_view> missing;
    size_t byte_size = kEntryByteSize;
    for (const std::string& key : keys) {
      if (!values_.contains(key)) missing.push_back(key);
      byte_size += 2 * (kEntryByteSize + key.size());  // also in wanted_
    }
    const Status room = CheckRoomLocked(byte_size);
    if (!aborted_.ok()) {
      values = aborted_;
    } else if (missing.empty()) {
      values = ValuesLocked(keys);
    } else if (!waits_ended_.ok()) {
      values = waits_ended_;
    } else if (!room.ok()) {
      values = room;
    } else {
      for (std::string_view key : missing) {
        wanted_[std::string(key)].push_back(id);
      }
      waits_.emplace(id, WaitCall{Share(taken_, byte_size), keys,
                                  missing.size(), std::move(done)});
      return true;
    }
  }
  done(std::move(values));
  return true;
}

bool InProcessStore::StartBarrier(CallId id, std::string_view name, int member,
                                  int size, BarrierDone done) {
  if (member < 0 || member >= size || size > kMaxBarrierSize) {
    done(InvalidArgument("barrier ", name, ": member ", member, " of ", size));
    return true;
  }
  Status outcome;
  Completions completions;
  {
    MutexLock lock(mutex_);
    if (WaitsLocked(id)) return false;
    const auto [at, is_new] =
        gatherings_.try_emplace(std::string(name), Gathering{size, {}});
    Gathering& gathering = at->second;
    const bool is_last =
        gathering.arrived.size() + 1 == static_cast<size_t>(size);
    const size_t byte_size = 2 * (kEntryByteSize + name.size());
    const Status room = CheckRoomLocked(byte_size);
    if (!aborted_.ok()) {
      outcome = aborted_;
    } else if (gathering.size != size) {
      outcome = InvalidArgument("barrier ", name, ": member ", member,
                                " came for ", size, " members, but member ",
                                gathering.arrived.begin()->first, " for ",
                                gathering.size);
    } else if (gathering.arrived.contains(member)) {
      outcome = FailedPrecondition("barrier ", name, ": member ", member,
                                   " is already waiting there");
    } else if (is_last) {
      for (const auto& [other, call] : gathering.arrived) {
        auto waiting = barriers_.extract(call);
        completions.emplace_back(
            [done = std::move(waiting.mapped().done)] { done(OkStatus()); });
      }
      gathering.arrived.clear();
    } else if (!waits_ended_.ok()) {
      outcome = waits_ended_;
    } else if (!room.ok()) {
      outcome = room;
    } else {
      gathering.arrived.emplace(member, id);
      barriers_.emplace(
          id, BarrierCall{Share(taken_, byte_size), std::string(name), member,
                          std::move(done)});
      return true;
    }
    if (gathering.arrived.empty()) gatherings_.erase(at);
  }
  Complete(completions);
  done(std::move(outcome));
  return true;
}

void InProcessStore::Expire(CallId id) {
  Completions completions;
  {
    MutexLock lock(mutex_);
    ExpireLocked(id, completions);
  }
  Complete(completions);
}

void InProcessStore::ExpireCaller(uint64_t caller) {
  Completions completions;
  {
    MutexLock lock(mutex_);
    std::vector<CallId> calls;
    for (const auto& [id, call] : waits_) {
      if (id.caller == caller) calls.push_back(id);
    }
    for (const auto& [id, call] : barriers_) {
      if (id.caller == caller) calls.push_back(id);
    }
    for (CallId id : calls) ExpireLocked(id, completions);
  }
  Complete(completions);
}

void InProcessStore::EndWaits(Status reason) {
  FLEET_CHECK(!reason.ok(), "waits ended without a reason");
  Completions completions;
  {
    MutexLock lock(mutex_);
    if (!waits_ended_.ok()) return;
    waits_ended_ = std::move(reason);
    EndAllLocked(waits_ended_, completions);
  }
  Complete(completions);
}

uint64_t InProcessStore::NextNumber() {
  MutexLock lock(mutex_);
  return next_number_++;
}

Status InProcessStore::CheckRoomLocked(size_t byte_size) const {
  if (byte_size <= max_byte_size_ - std::min(taken_, max_byte_size_)) {
    return OkStatus();
  }
  return FailedPrecondition(
      "store: full: it has ", taken_, " bytes of at most ", max_byte_size_,
      ", and ", byte_size, " more are to come; it is for short texts");
}

Status InProcessStore::PutLocked(std::string_view key, std::string_view value,
                                 Completions& completions) {
  const auto old = values_.find(key);
  const size_t byte_size = kEntryByteSize + key.size() + value.size();
  const size_t old_byte_size =
      old == values_.end() ? 0
                           : kEntryByteSize + key.size() + old->second.size();
  if (byte_size > old_byte_size) {
    RETURN_IF_ERROR(CheckRoomLocked(byte_size - old_byte_size));
  }
  taken_ += byte_size - old_byte_size;
  values_.insert_or_assign(std::string(key), std::string(value));
  const auto found = wanted_.find(key);
  if (found == wanted_.end()) return OkStatus();
  const std::vector<CallId> callers = std::move(found->second);
  wanted_.erase(found);
  for (CallId id : callers) {
    const auto at = waits_.find(id);
    if (at == waits_.end() || --at->second.num_missing > 0) continue;
    completions.emplace_back(
        [done = std::move(at->second.done),
         values = ValuesLocked(at->second.keys)] { done(values); });
    waits_.erase(at);
  }
  return OkStatus();
}

Result<std::vector<std::string>> InProcessStore::ValuesLocked(
    const std::vector<std::string>& keys) const {
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(values_.at(key));
  return values;
}

void InProcessStore::ExpireLocked(CallId id, Completions& completions) {
  if (auto wait = waits_.extract(id); !wait.empty()) {
    const std::vector<std::string>& keys = wait.mapped().keys;
    std::vector<std::string_view> missing;
    for (const std::string& key : keys) {
      if (values_.contains(key)) continue;
      missing.push_back(key);
      std::erase(wanted_[key], id);
      if (wanted_[key].empty()) wanted_.erase(key);
    }
    Status late =
        DeadlineExceeded("store: ", missing.size(), " of ", keys.size(),
                         " keys never came: ", Join(missing, missing.size()));
    completions.emplace_back([done = std::move(wait.mapped().done),
                              late = std::move(late)] { done(late); });
  }
  if (auto barrier = barriers_.extract(id); !barrier.empty()) {
    const BarrierCall& call = barrier.mapped();
    const auto at = gatherings_.find(call.name);
    Gathering& gathering = at->second;
    const size_t num_missing =
        static_cast<size_t>(gathering.size) - gathering.arrived.size();
    Status late = DeadlineExceeded(
        "barrier ", call.name, ": member ", call.member, " waits for ",
        num_missing, " of ", gathering.size, " members: ",
        Join(FirstMissing(gathering.arrived, gathering.size), num_missing));
    gathering.arrived.erase(call.member);
    if (gathering.arrived.empty()) gatherings_.erase(at);
    completions.emplace_back([done = std::move(barrier.mapped().done),
                              late = std::move(late)] { done(late); });
  }
}

void InProcessStore::EndAllLocked(const Status& reason,
                                  Completions& completions) {
  for (auto& [id, call] : waits_) {
    completions.emplace_back(
        [done = std::move(call.done), reason] { done(reason); });
  }
  for (auto& [id, call] : barriers_) {
    completions.emplace_back(
        [done = std::move(call.done), reason] { done(reason); });
  }
  waits_.clear();
  wanted_.clear();
  barriers_.clear();
  gatherings_.clear();
}

}  // namespace fleet::cluster
