// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/hmac.h"

namespace fleet::channel {

namespace {

Status NoOpenSsl() {
  return Unimplemented(
      "a job secret cannot be checked: Fleet was built without OpenSSL "
      "(install libssl-dev and build again)");
}

}  // namespace

Result<Digest> HmacSha256(std::string_view, std::span<const std::byte>) {
  return NoOpenSsl();
}

bool CanCheckSecrets() { return false; }

Result<Digest> Stretch(std::string_view) { return NoOpenSsl(); }

bool SameDigest(const Digest& a, const Digest& b) { return a == b; }

}  // namespace fleet::channel
