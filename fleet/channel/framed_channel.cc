// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/framed_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"

namespace fleet::channel {
namespace {

iovec Piece(const std::byte* data, size_t byte_size) {
  // iovec serves reading and writing, and so has no const.
  return {const_cast<std::byte*>(data), byte_size};
}

// A window over header and parts: the first pieces that are not empty behind
// `skip` bytes. Returns how many; 0 when nothing is left.
size_t FillWindow(ConstBytes header, std::span<const ConstBytes> parts,
                  uint64_t skip, std::span<iovec> window) {
  size_t count = 0;
  auto add = [&](ConstBytes part) {
    if (skip >= part.size()) {
      skip -= part.size();
      return;
    }
    window[count++] = Piece(part.data() + skip, part.size() - skip);
    skip = 0;
  };
  add(header);
  for (ConstBytes part : parts) {
    if (count == window.size()) break;
    add(part);
  }
  return count;
}

}  // namespace

FramedChannel::FramedChannel(std::string peer,
                             std::unique_ptr<ByteStream> stream)
    : Channel(std::move(peer)), stream_(std::move(stream)) {
  ahead_.resize(stream_->read_ahead());
}

FramedChannel::~FramedChannel() {
  if (origin_.in_child()) {
    // Its end is the parent's to say, and so are its threads.
    (void)stream_.release();
    return;
  }
  Close();
}

Status FramedChannel::ended() const {
  RETURN_IF_ERROR(origin_.Check());
  if (!aborted_.load(std::memory_order_acquire)) return OkStatus();
  base::MutexLock lock(mutex_);
  return why_;
}

void FramedChannel::Abort(Status why) {
  FLEET_CHECK(!why.ok());
  if (origin_.in_child()) return;
  {
    base::MutexLock lock(mutex_);
    if (why_.ok()) why_ = std::move(why);
    aborted_.store(true, std::memory_order_release);
  }
  stream_->Shut();
}

Status FramedChannel::SendParts(std::span<const ConstBytes> parts,
                                Deadline deadline) {
  RETURN_IF_ERROR(ended());
  uint64_t byte_size = 0;
  for (ConstBytes part : parts) byte_size += part.size();
  if (byte_size > kMaxByteSize) {
    return InvalidArgument(peer(), ": send: ", byte_size, " bytes");
  }
  if (sent_ > 0 && byte_size != sending_byte_size_) {
    return FailedPrecondition(peer(), ": send ", byte_size,
                              " bytes: a message of ", sending_byte_size_,
                              " bytes was begun, and must be sent again first");
  }
  sending_byte_size_ = byte_size;
  const ConstBytes header = base::BytesOf(byte_size);
  const uint64_t total = header.size() + byte_size;

  Waited waited;
  std::array<iovec, 16> window;
  while (sent_ < total) {
    const size_t count = FillWindow(header, parts, sent_, window);
    Result<size_t> written =
        stream_->TryWrite(std::span<const iovec>(window.data(), count));
    RETURN_IF_ERROR(ended());
    if (!written.ok()) {
      return Status(written.status().code(),
                    base::Concat(peer(), ": send ", byte_size,
                                 " bytes: ", written.status().message(),
                                 ", after ", waited));
    }
    sent_ += *written;
    if (*written > 0) continue;
    if (deadline.expired()) {
      return DeadlineExceeded(peer(), ": send ", byte_size,
                              " bytes: the peer takes nothing, after ", waited);
    }
    waited.Begin();
    stream_->WaitWritable(deadline);
  }
  sent_ = 0;
  return OkStatus();
}

size_t FramedChannel::TakeFromAhead(MutableBytes into) {
  const size_t count = std::min(into.size(), ahead_end_ - ahead_begin_);
  if (count > 0) {
    std::memcpy(into.data(), ahead_.data() + ahead_begin_, count);
  }
  ahead_begin_ += count;
  return count;
}

Status FramedChannel::Fill(MutableBytes into, size_t* got, const char* what,
                           Deadline deadline) {
  Waited waited;
  while (*got < into.size()) {
    *got += TakeFromAhead(into.subspan(*got));
    const size_t missing = into.size() - *got;
    if (missing == 0) break;
    // Now nothing is ahead. With room for it behind `into`, a small message and
    // the header of the next come in one call.
    ahead_begin_ = ahead_end_ = 0;
    const std::array<iovec, 2> pieces = {
        Piece(into.data() + *got, missing),
        Piece(ahead_.data(), ahead_.size()),
    };
    Result<size_t> read = stream_->TryRead(pieces);
    RETURN_IF_ERROR(ended());
    if (!read.ok()) {
      return Status(read.status().code(),
                    base::Concat(peer(), ": recv: ", read.status().message(),
                                 what, ", after ", waited));
    }
    *got += std::min(*read, missing);
    ahead_end_ = *read - std::min(*read, missing);
    if (*read > 0) continue;
    if (deadline.expired()) {
      return DeadlineExceeded(peer(), ": recv: no message in ", waited, what);
    }
    waited.Begin();
    stream_->WaitReadable(deadline);
  }
  return OkStatus();
}

Result<uint64_t> FramedChannel::NextSize(Deadline deadline) {
  RETURN_IF_ERROR(ended());
  if (next_size_.has_value()) return *next_size_;
  RETURN_IF_ERROR(Fill(header_, &header_got_, "", deadline));
  const auto byte_size = base::LoadAt<uint64_t>(header_, 0);
  if (byte_size > kMaxByteSize) {
    const Status why =
        DataLoss(peer(), ": recv: ", byte_size, " as the size of a message");
    Abort(why);
    return why;
  }
  header_got_ = 0;
  payload_got_ = 0;
  next_size_ = byte_size;
  return byte_size;
}

Status FramedChannel::Recv(MutableBytes into, Deadline deadline) {
  ASSIGN_OR_RETURN(const uint64_t byte_size, NextSize(deadline));
  if (byte_size != into.size()) {
    return InvalidArgument(peer(), ": recv: a message of ", byte_size,
                           " bytes, and ", into.size(), " are wanted");
  }
  RETURN_IF_ERROR(
      Fill(into, &payload_got_, " in the middle of a message", deadline));
  next_size_.reset();
  return OkStatus();
}

}  // namespace fleet::channel
