// SPDX-License-Identifier: Apache-2.0

// A stream of bytes that only the two processes of a hello can read or change:
// TLS 1.3 over a connected socket, with a key that both derive from the job
// secret and their hellos. Two files implement it and the build picks one:
// tls_openssl.cc, and tls_absent.cc, where every call is Unimplemented.

#ifndef FLEET_CHANNEL_TLS_STREAM_H_
#define FLEET_CHANNEL_TLS_STREAM_H_

#include <memory>

#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"
#include "fleet/channel/byte_stream.h"
#include "fleet/channel/hello.h"
#include "fleet/channel/hmac.h"

namespace fleet::channel {

class TlsStream : public ByteStream {
 public:
  // Goes on with the handshake as far as bytes have come; true when it is over,
  // and only then the stream may be used. Otherwise again when fd() has bytes.
  // DataLoss when the peer has another key.
  virtual Result<bool> Shake() = 0;
  virtual int fd() const = 0;
};

// Takes a socket whose hello is over. `key` is known to the two of that hello
// alone.
Result<std::unique_ptr<TlsStream>> MakeTlsStream(base::Descriptor fd, Side side,
                                                 const Digest& key);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_TLS_STREAM_H_
