// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/tcp_link.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "fleet/base/bytes.h"

namespace fleet::comm {
namespace {

constexpr size_t kHeaderByteSize = 32;
constexpr uint64_t kMaxLetterByteSize = uint64_t{1} << 44;
using HeaderBytes = std::array<std::byte, kHeaderByteSize>;

base::Deadline Now() { return base::Deadline::After({}); }

HeaderBytes Encode(const LinkHeader& header) {
  HeaderBytes bytes{};
  base::StoreAt(bytes, 0, header.kind);
  base::StoreAt(bytes, 1, header.call.kind);
  base::StoreAt(bytes, 2, header.call.op);
  base::StoreAt(bytes, 3, header.call.type);
  base::StoreAt(bytes, 4, header.call.root);
  base::StoreAt(bytes, 8, header.call.count);
  base::StoreAt(bytes, 16, header.call.number);
  base::StoreAt(bytes, 24, header.byte_size);
  return bytes;
}

Result<LinkHeader> Decode(std::span<const std::byte> frame) {
  if (frame.size() < kHeaderByteSize) {
    return DataLoss("a message of ", frame.size(), " bytes has no header");
  }
  LinkHeader header;
  header.kind = base::LoadAt<LinkHeader::Kind>(frame, 0);
  header.call = {.kind = base::LoadAt<CallKind>(frame, 1),
                 .op = base::LoadAt<ReduceOp>(frame, 2),
                 .type = base::LoadAt<DataType>(frame, 3),
                 .root = base::LoadAt<int32_t>(frame, 4),
                 .count = base::LoadAt<uint64_t>(frame, 8),
                 .number = base::LoadAt<uint64_t>(frame, 16)};
  header.byte_size = base::LoadAt<uint64_t>(frame, 24);
  const size_t inlined = frame.size() - kHeaderByteSize;
  const bool whole =
      header.kind != LinkHeader::Kind::kLetter ||
      (static_cast<int>(header.call.type) < kNumDataTypes &&
       header.call.count <= kMaxLetterByteSize &&
       header.byte_size == header.call.count * ByteSize(header.call.type));
  if (header.kind > LinkHeader::Kind::kWaits || !whole ||
      static_cast<int>(header.call.type) >= kNumDataTypes ||
      inlined !=
          (header.byte_size <= Link::kInlineByteSize ? header.byte_size : 0)) {
    return DataLoss("a message whose header makes no sense");
  }
  return header;
}

}  // namespace

Link::Link(int peer, std::unique_ptr<channel::Channel> channel)
    : peer_(peer), channel_(std::move(channel)) {}

Link::~Link() {
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }
  channel_->Close();
  if (sender_.joinable()) sender_.join();
}

uint64_t Link::Post(const LinkHeader& header, std::span<const std::byte> data) {
  return PostItem({.header = Encode(header), .data = data});
}

uint64_t Link::Post(const LinkHeader& header, std::vector<std::byte> data) {
  Outgoing item{.header = Encode(header), .kept = std::move(data)};
  item.data = item.kept;  // moving a vector does not move its elements
  return PostItem(std::move(item));
}

void Link::PostCount(LinkHeader::Kind kind, uint64_t count) {
  Post({.kind = kind, .call = {.count = count}}, std::span<const std::byte>());
}

Status Link::PostLetter(ConstSpan data) {
  window_.Send(SendCharge(data.byte_size()));
  if (!window_.fits()) {
    // Before the letter, so that the peer need not take it to know.
    if (window_.untold()) {
      PostCount(LinkHeader::Kind::kReceived, window_.Tell());
    }
    PostCount(LinkHeader::Kind::kWaits, window_.need());
  }
  const LinkHeader header{.kind = LinkHeader::Kind::kLetter,
                          .call = {.type = data.type, .count = data.count},
                          .byte_size = data.byte_size()};
  const std::span<const std::byte> bytes(data.data, data.byte_size());
  // One that is larger than the window is waited for.
  const uint64_t number =
      bytes.size() > kSendAhead + SendWindow::kTellEvery
          ? Post(header, bytes)
          : Post(header, std::vector<std::byte>(bytes.begin(), bytes.end()));
  base::MutexLock lock(mutex_);
  // What went wrong after it had gone out is no failure of this letter.
  return sent_ >= number ? OkStatus() : failure_;
}

void Link::NoteReceived(size_t byte_size) {
  if (window_.Receive(SendCharge(byte_size))) {
    PostCount(LinkHeader::Kind::kReceived, window_.Tell());
  }
}

uint64_t Link::PostItem(Outgoing item) {
  uint64_t number = 0;
  {
    base::MutexLock lock(mutex_);
    number = item.number = ++posted_;
    if (!failure_.ok()) return number;
    if (sending_ || !queue_.empty()) {
      queue_.push_back(std::move(item));
      changed_.NotifyAll();
      return number;
    }
    sending_ = true;
  }
  const Status status = TrySend(item, Now());
  base::MutexLock lock(mutex_);
  sending_ = false;
  if (status.ok()) {
    sent_ = number;
  } else if (status.code() == StatusCode::kDeadlineExceeded) {
    queue_.push_front(std::move(item));
    if (!sender_.joinable()) sender_ = std::jthread([this] { SendPosted(); });
  } else if (failure_.ok()) {
    failure_ = status;
  }
  changed_.NotifyAll();
  return number;
}

Status Link::TrySend(Outgoing& item, base::Deadline deadline) {
  const channel::ConstBytes header = item.header;
  if (item.data.size() <= kInlineByteSize) {
    const std::array<channel::ConstBytes, 2> parts = {header, item.data};
    return channel_->SendParts(parts, deadline);
  }
  if (!item.header_sent) {
    RETURN_IF_ERROR(channel_->Send(header, deadline));
    item.header_sent = true;
  }
  return channel_->Send(item.data, deadline);
}

void Link::SendPosted() {
  mutex_.Lock();
  while (true) {
    if (closed_ || !failure_.ok()) break;
    if (queue_.empty() || sending_) {
      changed_.WaitUntil(mutex_, base::Deadline::Infinite());
      continue;
    }
    Outgoing item = std::move(queue_.front());
    queue_.pop_front();
    sending_ = true;
    mutex_.Unlock();
    // Until the peer takes it, or Fail ends the channel.
    const Status status = TrySend(item, base::Deadline::Infinite());
    mutex_.Lock();
    sending_ = false;
    if (status.ok()) {
      sent_ = item.number;
    } else if (failure_.ok()) {
      failure_ = status;
    }
    changed_.NotifyAll();
  }
  mutex_.Unlock();
}

Status Link::WaitSent(uint64_t post, base::Deadline deadline) {
  base::MutexLock lock(mutex_);
  while (sent_ < post) {
    RETURN_IF_ERROR(failure_);
    if (!changed_.WaitUntil(mutex_, deadline) && sent_ < post &&
        failure_.ok()) {
      return DeadlineExceeded("rank ", peer_, " takes nothing");
    }
  }
  return OkStatus();
}

uint64_t Link::posted() {
  base::MutexLock lock(mutex_);
  return posted_;
}

Result<LinkHeader> Link::Next(base::Deadline deadline) {
  while (!next_.has_value()) RETURN_IF_ERROR(WaitForNews(deadline));
  return *next_;
}

Status Link::WaitForNews(base::Deadline deadline) {
  if (next_.has_value()) return OkStatus();
  ASSIGN_OR_RETURN(const uint64_t byte_size, channel_->NextSize(deadline));
  if (byte_size > kHeaderByteSize + kInlineByteSize) {
    return DataLoss("a message of ", byte_size, " bytes without a header");
  }
  frame_.resize(byte_size);
  RETURN_IF_ERROR(channel_->Recv(frame_, deadline));
  ASSIGN_OR_RETURN(const LinkHeader header, Decode(frame_));
  if (header.kind == LinkHeader::Kind::kReceived) {
    window_.PeerReceived(header.call.count);
  } else if (header.kind == LinkHeader::Kind::kWaits) {
    window_.PeerWaits(header.call.count);
  } else {
    next_ = header;
  }
  return OkStatus();
}

Status Link::WaitReceived(base::Deadline deadline) {
  std::vector<std::byte> dropped;
  while (window_.expects_news()) {
    RETURN_IF_ERROR(WaitForNews(deadline));
    if (!next_.has_value()) continue;
    dropped.resize(next_->byte_size);
    RETURN_IF_ERROR(Take(dropped, deadline));
  }
  return OkStatus();
}

Status Link::Take(std::span<std::byte> into, base::Deadline deadline) {
  if (into.size() <= kInlineByteSize) {
    if (!into.empty()) {
      std::memcpy(into.data(), frame_.data() + kHeaderByteSize, into.size());
    }
  } else {
    RETURN_IF_ERROR(channel_->Recv(into, deadline));
  }
  next_.reset();
  return OkStatus();
}

bool Link::idle() {
  base::MutexLock lock(mutex_);
  return !sending_ && queue_.empty();
}

void Link::TellFailure(uint64_t call_number, const Status& why,
                       base::Deadline deadline) {
  {
    base::MutexLock lock(mutex_);
    while (failure_.ok() && (sending_ || !queue_.empty())) {
      if (!changed_.WaitUntil(mutex_, deadline)) return;
    }
    if (!failure_.ok()) return;
    sending_ = true;
  }
  std::string_view text = why.message();
  text = text.substr(0, kInlineByteSize);
  Outgoing item{
      .header = Encode({.kind = LinkHeader::Kind::kFailure,
                        .call = {.root = static_cast<int32_t>(why.code()),
                                 .number = call_number},
                        .byte_size = text.size()}),
      .data = std::as_bytes(std::span(text))};
  (void)TrySend(item, deadline).ok();
  base::MutexLock lock(mutex_);
  sending_ = false;
  changed_.NotifyAll();
}

void Link::Fail(const Status& why) {
  {
    base::MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = why;
    changed_.NotifyAll();
  }
  channel_->Abort(why);
}

void Link::WaitIdle() {
  base::MutexLock lock(mutex_);
  while (sending_) changed_.WaitUntil(mutex_, base::Deadline::Infinite());
  queue_.clear();
}

}  // namespace fleet::comm
