// SPDX-License-Identifier: Apache-2.0

// Sockets: addresses, waits with deadlines, and the stream
// of bytes over a connected socket. Nothing here raises SIGPIPE; descriptors
// are closed on exec and do not block.

#ifndef FLEET_CHANNEL_SOCKET_H_
#define FLEET_CHANNEL_SOCKET_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/descriptor.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/channel/byte_stream.h"

namespace fleet::channel {

// Where a process listens.
//   "10.0.0.7:9000", "[::1]:9000", "host-3:9000"   TCP; port 0: any free one
//   "@name"    this host only, for shared memory: an abstract unix socket,
//              which lives in the network namespace and leaves no file behind
struct Address {
  std::string host;  // empty for "@name"
  uint16_t port = 0;
  std::string local_name;

  bool is_local() const { return !local_name.empty(); }
  std::string ToString() const;
  friend bool operator==(const Address&, const Address&) = default;

  // InvalidArgument when `text` has none of the forms above.
  static Result<Address> Parse(std::string_view text);
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t byte_size = 0;

  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// The socket addresses behind an address, in the order to try them. Asks the
// name service when `host` is a name. NotFound when nobody knows it.
Result<std::vector<SocketAddress>> Resolve(const Address& address);

// What getsockname or getpeername gave, as an Address.
Address ToAddress(const SocketAddress& address);

// Whether an address in digits is reached from this host alone.
bool IsLoopback(std::string_view host);

// Waits until `events` of poll(2), or an error, are there; false when
// `deadline` passed first.
bool WaitFor(int fd, short events, base::Deadline deadline);

// Waits so, looking up now and then to ask `interrupt`. DeadlineExceeded with
// the text `late`, or what `interrupt` said.
Status WaitFor(int fd, short events, base::Deadline deadline,
               const base::InterruptCheck& interrupt, const char* late);

// How long poll(2) may wait, rounded up; -1 for ever.
int PollTimeout(base::Deadline deadline);

// All of `bytes`, before any stream is made of `fd`. Unavailable when the peer
// is gone, DeadlineExceeded when it is late.
Status WriteAll(int fd, std::span<const std::byte> bytes,
                base::Deadline deadline,
                const base::InterruptCheck& interrupt = {});
Status ReadAll(int fd, std::span<std::byte> bytes, base::Deadline deadline,
               const base::InterruptCheck& interrupt = {});

// For a stream of messages: no delay of small ones, and a host that vanished is
// noticed.
void TuneSocket(int fd);

// A stream over a connected TCP socket.
std::unique_ptr<ByteStream> MakeSocketStream(base::Descriptor fd);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_SOCKET_H_
