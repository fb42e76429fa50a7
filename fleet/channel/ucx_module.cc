// SPDX-License-Identifier: Apache-2.0

// Bytes as UCX's active messages. How this keeps what channel.h promises is in
// docs/design/0008-a-channel-by-ucx.md; in short:
//
// 1. One thread per stream moves UCX on, so that a process that computes holds
//    up nobody; a thread that waits for messages does so itself. All calls of
//    UCX are made under `mutex_`.
// 2. A sender has the right to kWindow bytes that the receiver has not read
//    yet, so that nothing grows.
// 3. Bytes count as written when UCX has flushed them, or when they are few
//    behind those: they are no longer in this process and arrive even if it
//    dies.
// 4. The end is a message of its own that the peer answers. Without it, the
//    socket `life_` tells that the peer is gone.

#include "fleet/channel/ucx_module.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <poll.h>
#include <span>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <ucp/api/ucp.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fleet/base/bytes.h"
#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"

namespace fleet::channel {
namespace {

using base::Deadline;

// What the receiver stores for a program that does not read: enough that a
// sender never waits for the way back, and no burden with many channels.
constexpr uint64_t kWindow = 4 << 20;
// The bytes of one active message. So many that its cost does not count.
constexpr uint64_t kSegment = 256 << 10;

// After the socket ended without a good-bye: how long what the peer wrote last
// may still be on its way.
constexpr auto kLastWords = std::chrono::milliseconds(200);
// How long an end waits for the answer to its good-bye: the peer's thread gives
// it at once unless its process stands still.
constexpr auto kGoodbye = std::chrono::seconds(2);

// A program that waits for messages is back within this time, most often; its
// own waits then move UCX on, and the thread of the stream stands back. Longer
// would hold up a peer, shorter would have two threads woken for each message.
constexpr auto kStandBack = std::chrono::milliseconds(1);

// The address of a worker is some hundred bytes.
constexpr uint32_t kMaxAddress = 1 << 20;

// A flush is answered by the peer. Below this, which any transport takes at
// once, it is not waited for: a kernel gives a new TCP connection at least
// 16 KB.
constexpr uint64_t kFew = 16 << 10;

// Kinds of active messages. Each has one number as its header.
enum MessageId : unsigned {
  kData = 1,      // the position of its first byte in the stream
  kRead = 2,      // how many bytes the receiver has read
  kEnd = 3,       // how many bytes there were
  kEndHeard = 4,  // 0
};

Status UcxStatus(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return OkStatus();
  return Unavailable("UCX: ", what, ": ", ucs_status_string(status));
}

class UcxStream final : public ByteStream {
 public:
  explicit UcxStream(base::Descriptor life) : life_(std::move(life)) {}

  // Once, before anything else.
  Status Start() {
    for (base::Descriptor* event : {&wake_, &ring_}) {
      *event = base::Descriptor::OfThisProcess(
          eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!event->valid()) return ErrnoStatus(errno, "eventfd");
    }
    RETURN_IF_ERROR(MakeWorker());
    thread_ = std::jthread([this] { Run(); });
    return OkStatus();
  }

  ~UcxStream() override {
    if (thread_.joinable()) {
      Shut();
      thread_.join();
    }
    if (worker_ != nullptr) {
      for (const Arrived& piece : arrived_) {
        ucp_am_data_release(worker_, piece.data);
      }
      ucp_worker_destroy(worker_);
    }
    if (context_ != nullptr) ucp_cleanup(context_);
  }

  Result<size_t> TryWrite(std::span<const iovec> pieces) override {
    base::MutexLock lock(mutex_);
    ProgressLocked();
    if (PeerEndedLocked()) {
      // What went out before was taken, as a kernel would have taken it.
      if (posted_ == reported_) return Unavailable(HowItEndedLocked());
      return static_cast<size_t>(posted_ - std::exchange(reported_, posted_));
    }
    all_posted_ = false;
    if (ep_ == nullptr) return size_t{0};
    PostLocked(pieces);
    const uint64_t written = WrittenLocked();
    const auto moved = static_cast<size_t>(written - reported_);
    reported_ = written;
    return moved;
  }

  Result<size_t> TryRead(std::span<const iovec> pieces) override {
    base::MutexLock lock(mutex_);
    ProgressLocked();
    size_t moved = 0;
    for (const iovec& piece : pieces) {
      const size_t count =
          TakeLocked(static_cast<std::byte*>(piece.iov_base), piece.iov_len);
      moved += count;
      if (count < piece.iov_len) break;
    }
    if (moved == 0 && AllReadLocked()) return Unavailable(HowItEndedLocked());
    read_ += moved;
    if (read_ - told_read_ >= kWindow / 4) {
      told_read_ = read_;
      SendLocked(kRead, read_);
      FlushLocked();
    }
    return moved;
  }

  void WaitWritable(Deadline deadline) override {
    Wait(deadline, [this] {
      return PeerEndedLocked() || WrittenLocked() != reported_ ||
             (ep_ != nullptr && !all_posted_ && RoomLocked() != 0);
    });
  }

  void WaitReadable(Deadline deadline) override {
    Wait(deadline, [this] { return !arrived_.empty() || AllReadLocked(); });
  }

  void Shut() override {
    base::MutexLock lock(mutex_);
    shut_ = true;
    NotifyLocked();
    Ring(wake_);
  }

  size_t read_ahead() const override { return 0; }

 private:
  // A message or a flush that UCX has not finished. UCX holds its address.
  struct Operation {
    UcxStream* stream = nullptr;
    std::list<Operation>::iterator self;
    uint64_t header = 0;
    std::unique_ptr<std::byte[]> segment;
    bool is_flush = false;
    uint64_t flushes = 0;  // up to this position
  };

  // Bytes that UCX keeps until they are read.
  struct Arrived {
    void* data = nullptr;
    size_t size = 0;
    size_t taken = 0;
  };

  // ---- waiting

  // The first who waits moves UCX on by itself, so that what arrives needs no
  // switch of threads; others sleep until something changed or it is theirs to
  // do so. The stream's own thread stands back meanwhile.
  template <typename Ready>
  void Wait(Deadline deadline, Ready ready) {
    base::MutexLock lock(mutex_);
    while (!shut_ && !ready()) {
      if (leads_) {
        ++num_followers_;
        const bool in_time = changed_.WaitUntil(mutex_, deadline);
        --num_followers_;
        if (!in_time) return;
        continue;
      }
      leads_ = true;
      lead_began_ = std::chrono::steady_clock::now();
      const bool in_time = Lead(deadline, ready);
      leads_ = false;
      lead_ended_ = std::chrono::steady_clock::now();
      if (num_followers_ > 0) changed_.NotifyAll();
      if (thread_rests_) Ring(wake_);
      if (!in_time) return;
    }
  }

  // False when `deadline` has passed.
  template <typename Ready>
  bool Lead(Deadline deadline, Ready ready) REQUIRES(mutex_) {
    while (!shut_) {
      if (Progress() && num_followers_ > 0) changed_.NotifyAll();
      if (ready()) return true;
      if (deadline.expired()) return false;
      if (ucp_worker_arm(worker_) == UCS_ERR_BUSY) continue;
      pollfd entries[] = {{event_, POLLIN, 0}, {ring_.get(), POLLIN, 0}};
      mutex_.Unlock();
      (void)poll(entries, 2, PollTimeout(deadline));
      mutex_.Lock();
      if (entries[1].revents != 0) Silence(ring_);
    }
    return true;
  }

  // Something changed that a waiter may wait for.
  void NotifyLocked() {
    changed_.NotifyAll();
    if (leads_) Ring(ring_);
  }

  static void Ring(const base::Descriptor& event) {
    const uint64_t one = 1;
    (void)!write(event.get(), &one, sizeof(one));
  }
  static void Silence(const base::Descriptor& event) {
    uint64_t count = 0;
    (void)!read(event.get(), &count, sizeof(count));
  }

  // ---- making

  Status MakeWorker() {
    ucp_config_t* config = nullptr;
    RETURN_IF_ERROR(UcxStatus(ucp_config_read(nullptr, nullptr, &config),
                              "its configuration"));
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const ucs_status_t made = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    RETURN_IF_ERROR(UcxStatus(made, "its beginning"));
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    RETURN_IF_ERROR(UcxStatus(ucp_worker_create(context_, &worker, &worker_),
                              "its worker"));
    RETURN_IF_ERROR(
        UcxStatus(ucp_worker_get_efd(worker_, &event_), "its descriptor"));
    RETURN_IF_ERROR((Handle<kData, &UcxStream::OnData>()));
    RETURN_IF_ERROR((Handle<kRead, &UcxStream::OnRead>()));
    RETURN_IF_ERROR((Handle<kEnd, &UcxStream::OnEnd>()));
    return Handle<kEndHeard, &UcxStream::OnEndHeard>();
  }

  // `kMember` gets the header and the bytes of messages with `kId`; it says
  // whether it keeps the bytes.
  template <unsigned kId, auto kMember>
  Status Handle() {
    ucp_am_handler_param_t param{};
    param.field_mask =
        UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
        UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = kId;
    param.flags = UCP_AM_FLAG_PERSISTENT_DATA | UCP_AM_FLAG_WHOLE_MSG;
    param.arg = this;
    param.cb = [](void* arg, const void* header, size_t header_size, void* data,
                  size_t size, const ucp_am_recv_param_t*) -> ucs_status_t {
      base::ByteReader in({static_cast<const std::byte*>(header), header_size});
      const auto number = in.Take<uint64_t>();
      if (!in.finished()) return UCS_OK;
      auto* stream = static_cast<UcxStream*>(arg);
      const bool keeps = (stream->*kMember)(number, data, size);
      return keeps ? UCS_INPROGRESS : UCS_OK;
    };
    return UcxStatus(ucp_worker_set_am_recv_handler(worker_, &param),
                     "a handler");
  }

  // Both tell where their worker is, over the socket; nothing follows on it.
  Result<std::vector<std::byte>> ExchangeAddresses() {
    std::vector<std::byte> message(sizeof(uint32_t));
    {
      base::MutexLock lock(mutex_);
      ucp_address_t* address = nullptr;
      size_t byte_size = 0;
      RETURN_IF_ERROR(
          UcxStatus(ucp_worker_get_address(worker_, &address, &byte_size),
                    "its address"));
      const auto* bytes = reinterpret_cast<const std::byte*>(address);
      message.insert(message.end(), bytes, bytes + byte_size);
      ucp_worker_release_address(worker_, address);
      base::StoreAt(message, 0, static_cast<uint32_t>(byte_size));
    }
    RETURN_IF_ERROR(WriteAll(life_.get(), message, Deadline::After(kGoodbye)));
    std::array<std::byte, sizeof(uint32_t)> size_bytes;
    RETURN_IF_ERROR(ReadPatiently(size_bytes));
    const auto byte_size = base::LoadAt<uint32_t>(size_bytes, 0);
    if (byte_size == 0 || byte_size > kMaxAddress) {
      return DataLoss("UCX: ", byte_size, " as the size of an address");
    }
    std::vector<std::byte> theirs(byte_size);
    RETURN_IF_ERROR(ReadPatiently(theirs));
    return theirs;
  }

  // Until it is there, the peer is gone or this end was shut.
  Status ReadPatiently(std::span<std::byte> bytes) {
    size_t got = 0;
    while (got < bytes.size()) {
      const ssize_t count =
          recv(life_.get(), bytes.data() + got, bytes.size() - got, 0);
      if (count > 0) {
        got += static_cast<size_t>(count);
        continue;
      }
      if (count == 0) return Unavailable("the peer closed the channel");
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        return Unavailable("the peer died");
      }
      pollfd entries[] = {{life_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      (void)poll(entries, 2, -1);
      if (entries[1].revents != 0) return Unavailable("this end was closed");
    }
    return OkStatus();
  }

  Status MakeEndpointLocked(const std::vector<std::byte>& address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.arg = this;
    params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t) {
      static_cast<UcxStream*>(arg)->broken_ = true;
    };
    return UcxStatus(ucp_ep_create(worker_, &params, &ep_), "its endpoint");
  }

  // ---- messages that arrive, inside ProgressLocked

  bool OnData(uint64_t position, void* data, size_t size) {
    // Messages between two endpoints keep their order.
    if (position != received_) broken_ = true;
    if (size == 0 || broken_) return false;
    received_ += size;
    arrived_.push_back({.data = data, .size = size});
    return true;
  }
  bool OnRead(uint64_t count, void*, size_t) {
    peer_read_ = std::max(peer_read_, count);
    return false;
  }
  bool OnEnd(uint64_t, void*, size_t) {
    peer_said_end_ = true;
    return false;
  }
  bool OnEndHeard(uint64_t, void*, size_t) {
    end_heard_ = true;
    return false;
  }

  // ---- sending

  uint64_t RoomLocked() const { return peer_read_ + kWindow - posted_; }

  // What of `pieces` is not posted yet goes out, a quarter of the window at a
  // time so that the peer reads while we write.
  void PostLocked(std::span<const iovec> pieces) {
    uint64_t skip = posted_ - reported_;
    uint64_t left = std::min(RoomLocked(), kWindow / 4);
    bool posted = false;
    all_posted_ = true;
    std::unique_ptr<std::byte[]> segment;
    uint64_t used = 0;
    auto post = [&] {
      SendLocked(kData, posted_, std::move(segment), used);
      posted_ += std::exchange(used, 0);
      posted = true;
    };
    for (const iovec& piece : pieces) {
      const auto* from = static_cast<const std::byte*>(piece.iov_base);
      uint64_t size = piece.iov_len;
      const uint64_t skipped = std::min(skip, size);
      from += skipped;
      size -= skipped;
      skip -= skipped;
      while (size > 0) {
        if (left == 0) {
          all_posted_ = false;
          break;
        }
        if (segment == nullptr) segment = NewSegmentLocked();
        const uint64_t count = std::min({size, left, kSegment - used});
        std::memcpy(segment.get() + used, from, count);
        from += count;
        size -= count;
        left -= count;
        used += count;
        if (used == kSegment) post();
      }
    }
    if (used > 0) post();
    // Asked for ahead of need, so that small messages never wait for it.
    const uint64_t known = std::max({flushed_, asked_, peer_read_});
    if (posted && (WrittenLocked() < posted_ || posted_ - known > kFew / 2)) {
      FlushLocked();
    }
  }

  // How far the bytes count as written: they are flushed, or so few came after
  // the last flush that the transport has taken them at once.
  uint64_t WrittenLocked() const {
    const uint64_t known = std::max(flushed_, peer_read_);
    const bool few = known > 0 && posted_ - known <= kFew;
    return few && num_sending_ == 0 ? posted_ : std::max(known, reported_);
  }

  std::unique_ptr<std::byte[]> NewSegmentLocked() {
    if (free_.empty()) return std::make_unique<std::byte[]>(kSegment);
    std::unique_ptr<std::byte[]> segment = std::move(free_.back());
    free_.pop_back();
    return segment;
  }

  Operation& NewOperationLocked() {
    Operation& op = operations_.emplace_back();
    op.stream = this;
    op.self = std::prev(operations_.end());
    return op;
  }

  void SendLocked(MessageId id, uint64_t number,
                  std::unique_ptr<std::byte[]> segment = nullptr,
                  uint64_t byte_size = 0) {
    if (ep_ == nullptr || broken_) return;
    Operation& op = NewOperationLocked();
    ++num_sending_;
    op.header = number;
    op.segment = std::move(segment);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                         UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    // What a receiver keeps was promised room; there is nothing to negotiate.
    param.flags = UCP_AM_SEND_FLAG_EAGER;
    param.cb.send = OnDone;
    param.user_data = &op;
    Begun(op, ucp_am_send_nbx(ep_, id, &op.header, sizeof(op.header),
                              op.segment.get(), byte_size, &param));
  }

  // Afterwards flushed_ reaches what is posted now.
  void FlushLocked() {
    if (ep_ == nullptr || broken_) return;
    Operation& op = NewOperationLocked();
    op.flushes = posted_;
    op.is_flush = true;
    asked_ = posted_;
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = OnDone;
    param.user_data = &op;
    Begun(op, ucp_ep_flush_nbx(ep_, &param));
    // Its thread sleeps, and must help what is not done yet.
    if (!operations_.empty()) (void)ucp_worker_signal(worker_);
  }

  void Begun(Operation& op, ucs_status_ptr_t request) {
    if (UCS_PTR_IS_PTR(request)) return;
    Finish(op, UCS_PTR_RAW_STATUS(request));
  }

  static void OnDone(void* request, ucs_status_t status, void* user_data) {
    auto& op = *static_cast<Operation*>(user_data);
    op.stream->Finish(op, status);
    ucp_request_free(request);
  }

  void Finish(Operation& op, ucs_status_t status) {
    if (!op.is_flush) --num_sending_;
    if (status != UCS_OK) broken_ = true;
    if (status == UCS_OK) flushed_ = std::max(flushed_, op.flushes);
    if (op.segment != nullptr && free_.size() < kWindow / kSegment) {
      free_.push_back(std::move(op.segment));
    }
    operations_.erase(op.self);
  }

  // ---- receiving

  size_t TakeLocked(std::byte* to, size_t wanted) {
    size_t moved = 0;
    while (moved < wanted && !arrived_.empty()) {
      Arrived& first = arrived_.front();
      const size_t count = std::min(wanted - moved, first.size - first.taken);
      std::memcpy(to + moved, static_cast<std::byte*>(first.data) + first.taken,
                  count);
      first.taken += count;
      moved += count;
      if (first.taken < first.size) continue;
      ucp_am_data_release(worker_, first.data);
      arrived_.pop_front();
    }
    return moved;
  }

  // ---- the end

  bool PeerEndedLocked() const {
    return peer_said_end_ || life_ended_ || broken_ || !failure_.empty();
  }
  // And nothing more comes.
  bool AllReadLocked() const {
    return arrived_.empty() &&
           (peer_said_end_ || no_more_ || !failure_.empty());
  }
  std::string HowItEndedLocked() const {
    if (!failure_.empty()) return failure_;
    return peer_said_end_ ? "the peer closed the channel" : "the peer died";
  }

  // ---- the thread

  // Everything that UCX can do now. Whether something changed that a waiter may
  // wait for.
  bool Progress() REQUIRES(mutex_) {
    const auto before = Marks();
    while (ucp_worker_progress(worker_) != 0) {
    }
    if (peer_said_end_ && !answered_end_) {
      answered_end_ = true;
      SendLocked(kEndHeard, 0);
      FlushLocked();
    }
    return Marks() != before;
  }
  void ProgressLocked() REQUIRES(mutex_) {
    if (Progress()) NotifyLocked();
  }
  std::array<uint64_t, 3> Marks() const {
    return {received_, flushed_,
            peer_read_ * 8 + (peer_said_end_ ? 4 : 0) + (end_heard_ ? 2 : 0) +
                (broken_ ? 1 : 0)};
  }

  void Run() {
    Result<std::vector<std::byte>> address = ExchangeAddresses();
    {
      base::MutexLock lock(mutex_);
      Status status = address.status();
      if (status.ok()) status = MakeEndpointLocked(*address);
      if (!status.ok()) failure_ = status.message();
      NotifyLocked();
    }
    while (Step()) {
    }
    Leave();
  }

  // One round: whatever there is to do, then a sleep. False at the end.
  bool Step() {
    Deadline until = Deadline::Infinite();
    bool watch_life = false;
    bool watch_event = false;
    {
      base::MutexLock lock(mutex_);
      ProgressLocked();
      if (life_ended_ && !no_more_) {
        no_more_ = broken_ || last_words_.expired();
        if (no_more_) NotifyLocked();
        until = last_words_;
      }
      if (shut_) {
        if (!SayGoodbyeLocked()) return false;
        until = Earlier(until, goodbye_);
      }
      watch_life = !life_ended_;
      until = Earlier(until, RestUntilLocked());
      watch_event = !thread_rests_ && RestUntilLocked().is_infinite();
      if (watch_event && ucp_worker_arm(worker_) == UCS_ERR_BUSY) return true;
    }
    pollfd entries[] = {{watch_event ? event_ : -1, POLLIN, 0},
                        {wake_.get(), POLLIN, 0},
                        {watch_life ? life_.get() : -1, POLLIN, 0}};
    (void)poll(entries, 3, PollTimeout(until));
    if (entries[1].revents != 0) Silence(wake_);
    base::MutexLock lock(mutex_);
    thread_rests_ = false;
    if (entries[2].revents != 0) {
      life_ended_ = true;
      last_words_ = Deadline::After(kLastWords);
      NotifyLocked();
    }
    return true;
  }

  // Until when a thread of the program does this one's work, or is likely to be
  // back for it. Infinite: it does not; or, with thread_rests_, it wakes this
  // one when it stops.
  Deadline RestUntilLocked() {
    const auto now = std::chrono::steady_clock::now();
    thread_rests_ = false;
    if (shut_ || broken_) return Deadline::Infinite();
    if (leads_) {
      const auto long_after = lead_began_ + kStandBack;
      if (now < long_after) return Deadline::After(long_after - now);
      thread_rests_ = true;
      return Deadline::Infinite();
    }
    const auto over = lead_ended_ + kStandBack;
    return now < over ? Deadline::After(over - now) : Deadline::Infinite();
  }

  // False when there is nothing more to wait for.
  bool SayGoodbyeLocked() {
    if (ep_ == nullptr || broken_ || life_ended_ || end_heard_) return false;
    if (!said_end_) {
      said_end_ = true;
      goodbye_ = Deadline::After(kGoodbye);
      SendLocked(kEnd, posted_);
      FlushLocked();
    }
    return !goodbye_.expired();
  }

  void Leave() {
    base::MutexLock lock(mutex_);
    if (ep_ != nullptr) {
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      ucs_status_ptr_t closing = ucp_ep_close_nbx(ep_, &param);
      const Deadline deadline = Deadline::After(kGoodbye);
      auto closed = [&] {
        return !UCS_PTR_IS_PTR(closing) ||
               ucp_request_check_status(closing) != UCS_INPROGRESS;
      };
      while ((!closed() || !operations_.empty()) && !deadline.expired()) {
        if (ucp_worker_progress(worker_) == 0) (void)poll(nullptr, 0, 1);
      }
      if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
      ep_ = nullptr;
    }
    (void)shutdown(life_.get(), SHUT_RDWR);
    NotifyLocked();
  }

  const base::Descriptor life_;
  base::Descriptor wake_;  // an eventfd, for the thread
  base::Descriptor ring_;  // an eventfd, for who leads
  int event_ = -1;         // of the worker, which closes it

  // All calls of UCX, and with them its callbacks, are made under it; the
  // callbacks say nothing of it, because the analysis cannot see that.
  base::Mutex mutex_;
  base::CondVar changed_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h ep_ = nullptr;  // once the two know each other
  std::list<Operation> operations_;
  int num_sending_ = 0;                             // those that are messages
  std::vector<std::unique_ptr<std::byte[]>> free_;  // segments

  // Positions in the stream that goes out: reported to the writer <= posted <=
  // read by the peer + kWindow.
  uint64_t posted_ = 0;
  uint64_t flushed_ = 0;
  uint64_t asked_ = 0;  // flushed_ gets there
  uint64_t reported_ = 0;
  uint64_t peer_read_ = 0;
  bool all_posted_ = true;  // of what TryWrite was given last

  std::deque<Arrived> arrived_;
  uint64_t received_ = 0;
  uint64_t read_ = 0;
  uint64_t told_read_ = 0;

  bool leads_ = false;  // some thread is in Lead
  int num_followers_ = 0;
  std::chrono::steady_clock::time_point lead_began_;
  std::chrono::steady_clock::time_point lead_ended_;
  bool thread_rests_ = false;  // and must be woken when nobody leads

  bool shut_ = false;
  bool said_end_ = false;
  bool end_heard_ = false;
  bool peer_said_end_ = false;
  bool answered_end_ = false;
  bool life_ended_ = false;
  bool no_more_ = false;  // life_ended_, and its last words are here
  bool broken_ = false;   // UCX says that the peer is gone
  std::string failure_;   // the two did not find each other
  Deadline last_words_ = Deadline::Infinite();
  Deadline goodbye_ = Deadline::Infinite();

  std::jthread thread_;
};

}  // namespace
}  // namespace fleet::channel

extern "C" __attribute__((visibility("default"))) void FleetOpenUcxStream(
    fleet::channel::UcxOpening* opening) {
  using fleet::channel::UcxStream;
  auto stream = std::make_unique<UcxStream>(std::move(opening->life));
  opening->status = stream->Start();
  if (opening->status.ok()) opening->stream = std::move(stream);
}
