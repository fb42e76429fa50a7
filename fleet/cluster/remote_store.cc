// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/remote_store.h"

#include <optional>
#include <utility>
#include <vector>

#include "fleet/base/check.h"

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;

// The numbers are those of docs/wire.md.
enum Operation : uint8_t {
  kSet = 1,
  kGet = 2,
  kWait = 3,
  kAdd = 4,
  kCompareAndSet = 5,
  kBarrier = 6,
  kExpire = 7,  // the deadline of a call has passed; has no reply of its own
};

Status CheckNew(bool is_new, uint64_t number) {
  if (is_new) return OkStatus();
  return DataLoss("store: a second call ", number, " while the first waits");
}

std::string Reply(uint64_t number, const Status& status,
                  MessageWriter values = {}) {
  return MessageWriter().U64(number).Failure(status).Raw(values.Take()).Take();
}

}  // namespace

Status StoreService::Handle(uint64_t caller, std::string_view message,
                            std::function<void(std::string_view)> reply) {
  MessageReader reader(message);
  const uint64_t number = reader.U64();
  const uint8_t operation = reader.U8();
  const InProcessStore::CallId id{caller, number};
  const Deadline now = Deadline::After({});  // none of these calls waits
  switch (operation) {
    case kSet: {
      const std::string key = reader.Text();
      const std::string value = reader.Text();
      RETURN_IF_ERROR(reader.Finish());
      reply(Reply(number, store_.Set(key, value, now)));
      return OkStatus();
    }
    case kGet: {
      const std::string key = reader.Text();
      RETURN_IF_ERROR(reader.Finish());
      const Result<std::string> value = store_.Get(key, now);
      MessageWriter values;
      if (value.ok()) values.Text(*value);
      reply(Reply(number, value.status(), std::move(values)));
      return OkStatus();
    }
    case kWait: {
      const std::vector<std::string> keys = reader.Texts();
      RETURN_IF_ERROR(reader.Finish());
      const bool is_new = store_.StartWait(
          id, keys,
          [number, reply = std::move(reply)](
              const Result<std::vector<std::string>>& found) {
            MessageWriter values;
            if (found.ok()) values.Texts(*found);
            reply(Reply(number, found.status(), std::move(values)));
          });
      return CheckNew(is_new, number);
    }
    case kAdd: {
      const std::string key = reader.Text();
      const auto amount = static_cast<int64_t>(reader.U64());
      RETURN_IF_ERROR(reader.Finish());
      const Result<int64_t> sum = store_.Add(key, amount, now);
      MessageWriter values;
      if (sum.ok()) values.U64(static_cast<uint64_t>(*sum));
      reply(Reply(number, sum.status(), std::move(values)));
      return OkStatus();
    }
    case kCompareAndSet: {
      const std::string key = reader.Text();
      const std::optional<std::string> expected = reader.OptionalText();
      const std::string desired = reader.Text();
      RETURN_IF_ERROR(reader.Finish());
      const Result<std::optional<std::string>> value =
          store_.CompareAndSet(key, expected, desired, now);
      MessageWriter values;
      if (value.ok()) values.OptionalText(*value);
      reply(Reply(number, value.status(), std::move(values)));
      return OkStatus();
    }
    case kBarrier: {
      const std::string name = reader.Text();
      const auto member = static_cast<int>(reader.U32());
      const auto size = static_cast<int>(reader.U32());
      RETURN_IF_ERROR(reader.Finish());
      const bool is_new = store_.StartBarrier(
          id, name, member, size,
          [number, reply = std::move(reply)](const Status& status) {
            reply(Reply(number, status));
          });
      return CheckNew(is_new, number);
    }
    case kExpire:
      RETURN_IF_ERROR(reader.Finish());
      store_.Expire(id);
      return OkStatus();
    default:
      return DataLoss("store: there is no operation ", int{operation});
  }
}

struct RemoteStore::Call {
  base::Mutex mutex;
  base::CondVar changed;
  bool done GUARDED_BY(mutex) = false;
  Status status GUARDED_BY(mutex);
  std::string values GUARDED_BY(mutex);

  void Finish(Status outcome, std::string what) {
    MutexLock lock(mutex);
    if (done) return;
    done = true;
    status = std::move(outcome);
    values = std::move(what);
    changed.NotifyAll();
  }

  // Ok once it is done, whatever came of it.
  Status WaitUntil(Deadline deadline) {
    MutexLock lock(mutex);
    while (!done) {
      if (!changed.WaitUntil(mutex, deadline) && !done) {
        return DeadlineExceeded("no answer");
      }
    }
    return OkStatus();
  }

  Result<std::string> Take() {
    MutexLock lock(mutex);
    RETURN_IF_ERROR(status);
    return std::move(values);
  }
};

Result<std::string> RemoteStore::Ask(uint8_t operation, MessageWriter arguments,
                                     Deadline deadline) {
  RETURN_IF_ERROR(origin_.Check());
  const auto call = std::make_shared<Call>();
  std::string rest = arguments.Take();
  if (rest.size() > channel::kMaxMessageByteSize - 64) {
    return InvalidArgument("store: a call with ", rest.size(),
                           " bytes; it is for short texts");
  }
  uint64_t number;
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(aborted_);
    number = next_number_++;
    calls_.emplace(number, call);
  }
  options_.send(MessageWriter().U64(number).U8(operation).Raw(rest).Take());
  Status waited = base::WaitInterruptibly(
      deadline, options_.interrupt,
      [&](Deadline slice) { return call->WaitUntil(slice); });
  if (!waited.ok()) {
    options_.send(MessageWriter().U64(number).U8(kExpire).Take());
    if (waited.code() == StatusCode::kDeadlineExceeded) {
      const Status answered = call->WaitUntil(Deadline::After(options_.grace));
      if (answered.ok()) {
        waited = OkStatus();
      } else {
        waited = DeadlineExceeded("store: rank 0 does not answer");
      }
    }
  }
  {
    MutexLock lock(mutex_);
    calls_.erase(number);
  }
  RETURN_IF_ERROR(waited);
  return call->Take();
}

Status RemoteStore::Set(std::string_view key, std::string_view value,
                        Deadline deadline) {
  MessageWriter arguments;
  arguments.Text(key).Text(value);
  return Ask(kSet, std::move(arguments), deadline).status();
}

Result<std::string> RemoteStore::Get(std::string_view key, Deadline deadline) {
  MessageWriter arguments;
  arguments.Text(key);
  ASSIGN_OR_RETURN(const std::string values,
                   Ask(kGet, std::move(arguments), deadline));
  MessageReader reader(values);
  std::string value = reader.Text();
  RETURN_IF_ERROR(reader.Finish());
  return value;
}

Result<std::vector<std::string>> RemoteStore::Wait(
    const std::vector<std::string>& keys, Deadline deadline) {
  MessageWriter arguments;
  arguments.Texts(keys);
  ASSIGN_OR_RETURN(const std::string values,
                   Ask(kWait, std::move(arguments), deadline));
  MessageReader reader(values);
  std::vector<std::string> found = reader.Texts();
  RETURN_IF_ERROR(reader.Finish());
  return found;
}

Result<int64_t> RemoteStore::Add(std::string_view key, int64_t amount,
                                 Deadline deadline) {
  MessageWriter arguments;
  arguments.Text(key).U64(static_cast<uint64_t>(amount));
  ASSIGN_OR_RETURN(const std::string values,
                   Ask(kAdd, std::move(arguments), deadline));
  MessageReader reader(values);
  const auto sum = static_cast<int64_t>(reader.U64());
  RETURN_IF_ERROR(reader.Finish());
  return sum;
}

Result<std::optional<std::string>> RemoteStore::CompareAndSet(
    std::string_view key, std::optional<std::string_view> expected,
    std::string_view desired, Deadline deadline) {
  MessageWriter arguments;
  arguments.Text(key).OptionalText(expected).Text(desired);
  ASSIGN_OR_RETURN(const std::string values,
                   Ask(kCompareAndSet, std::move(arguments), deadline));
  MessageReader reader(values);
  std::optional<std::string> value = reader.OptionalText();
  RETURN_IF_ERROR(reader.Finish());
  return value;
}

Status RemoteStore::Barrier(std::string_view name, int member, int size,
                            Deadline deadline) {
  MessageWriter arguments;
  arguments.Text(name)
      .U32(static_cast<uint32_t>(member))
      .U32(static_cast<uint32_t>(size));
  return Ask(kBarrier, std::move(arguments), deadline).status();
}

void RemoteStore::Abort(Status reason) {
  FLEET_CHECK(!reason.ok(), "a store aborted without a reason");
  std::vector<uint64_t> ended;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = std::move(reason);
    for (const auto& [number, call] : calls_) {
      call->Finish(aborted_, {});
      ended.push_back(number);
    }
  }
  // Where the service still lives, nobody counts the caller any more.
  for (uint64_t number : ended) {
    options_.send(MessageWriter().U64(number).U8(kExpire).Take());
  }
}

Status RemoteStore::OnReply(std::string_view message) {
  MessageReader reader(message);
  const uint64_t number = reader.U64();
  Status status = reader.Failure();
  const std::string values(reader.rest());
  std::shared_ptr<Call> call;
  {
    MutexLock lock(mutex_);
    const auto found = calls_.find(number);
    if (found == calls_.end()) return OkStatus();  // nobody waits any more
    call = found->second;
  }
  call->Finish(std::move(status), values);
  return OkStatus();
}

}  // namespace fleet::cluster
