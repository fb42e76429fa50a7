// SPDX-License-Identifier: Apache-2.0

// Messages over a stream of bytes: 8 bytes of size, little-endian, then the
// message. Large messages go from and to the caller's memory without a copy.

#ifndef FLEET_CHANNEL_FRAMED_CHANNEL_H_
#define FLEET_CHANNEL_FRAMED_CHANNEL_H_

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/base/fork.h"
#include "fleet/base/mutex.h"
#include "fleet/channel/byte_stream.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/waited.h"

namespace fleet::channel {

class FramedChannel final : public Channel {
 public:
  // A size beyond this is no size but noise.
  static constexpr uint64_t kMaxByteSize = uint64_t{1} << 48;

  FramedChannel(std::string peer, std::unique_ptr<ByteStream> stream);
  ~FramedChannel() override;

  Status SendParts(std::span<const ConstBytes> parts,
                   Deadline deadline) override;
  Result<uint64_t> NextSize(Deadline deadline) override;
  Status Recv(MutableBytes into, Deadline deadline) override;
  void Abort(Status why) override;

 private:
  using Header = std::array<std::byte, 8>;

  // Ok, or what Abort was given; not ok in a forked child.
  Status ended() const;
  // Goes on filling `into`, of which `*got` bytes are there.
  Status Fill(MutableBytes into, size_t* got, const char* what,
              Deadline deadline);
  size_t TakeFromAhead(MutableBytes into);

  const base::Origin origin_;
  std::unique_ptr<ByteStream> stream_;

  std::atomic<bool> aborted_ = false;
  mutable base::Mutex mutex_;
  Status why_ GUARDED_BY(mutex_);

  // The sending thread's. A message that was begun and not finished.
  uint64_t sent_ = 0;
  uint64_t sending_byte_size_ = 0;

  // The receiving thread's.
  Header header_;
  size_t header_got_ = 0;
  std::optional<uint64_t> next_size_;
  size_t payload_got_ = 0;
  // Bytes [ahead_begin_, ahead_end_) were read beyond what was asked for.
  std::vector<std::byte> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_FRAMED_CHANNEL_H_
