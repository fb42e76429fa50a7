// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/tls_stream.h"

namespace fleet::channel {

Status CheckTls() {
  return Unimplemented(
      "Fleet was built without OpenSSL: connections are not encrypted");
}

Result<std::unique_ptr<TlsStream>> MakeTlsStream(base::Descriptor, Side,
                                                 const Digest&) {
  return CheckTls();
}

}  // namespace fleet::channel
