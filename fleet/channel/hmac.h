// SPDX-License-Identifier: Apache-2.0

// HMAC-SHA256 (RFC 2104), by which two processes show each other that they know
// the job secret without saying it. Two files implement it and the build picks
// one: hmac_openssl.cc, and hmac_absent.cc, where every call is Unimplemented.

#ifndef FLEET_CHANNEL_HMAC_H_
#define FLEET_CHANNEL_HMAC_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "fleet/base/status.h"

namespace fleet::channel {

using Digest = std::array<std::byte, 32>;

// Thread-safe.
Result<Digest> HmacSha256(std::string_view key,
                          std::span<const std::byte> text);

// Whether this build can: false without OpenSSL.
bool CanCheckSecrets();

// 32 bytes made of `text` by scrypt (N = 2^15, r = 8, p = 1), which takes 32 MB
// and about a tenth of a second. Thread-safe.
Result<Digest> Stretch(std::string_view text);

// Takes the same time wherever the two differ.
bool SameDigest(const Digest& a, const Digest& b);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_HMAC_H_
