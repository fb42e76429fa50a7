// SPDX-License-Identifier: Apache-2.0

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "fleet/channel/hmac.h"

namespace fleet::channel {

Result<Digest> HmacSha256(std::string_view key,
                          std::span<const std::byte> text) {
  Digest digest;
  unsigned int byte_size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &byte_size);
  if (done == nullptr || byte_size != digest.size()) {
    return Internal("HMAC-SHA256 of ", text.size(), " bytes failed");
  }
  return digest;
}

bool SameDigest(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace fleet::channel
