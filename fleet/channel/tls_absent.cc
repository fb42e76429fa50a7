// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/tls_stream.h"

namespace fleet::channel {

Result<std::unique_ptr<TlsStream>> MakeTlsStream(base::Descriptor, Side,
                                                 const Digest&) {
  return Unimplemented(
      "Fleet was built without OpenSSL: connections are not encrypted");
}

}  // namespace fleet::channel
