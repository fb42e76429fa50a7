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

bool CanCheckSecrets() { return true; }

Result<Digest> Stretch(std::string_view text) {
  // All processes must come to the same key before they can talk, so the salt
  // is the same for all jobs.
  constexpr std::string_view kSalt = "fleet job secret";
  constexpr uint64_t kCost = 1 << 15;
  constexpr uint64_t kBlock = 8;
  constexpr uint64_t kMaxMemory = 64 << 20;
  Digest key;
  if (EVP_PBE_scrypt(text.data(), text.size(),
                     reinterpret_cast<const unsigned char*>(kSalt.data()),
                     kSalt.size(), kCost, kBlock, 1, kMaxMemory,
                     reinterpret_cast<unsigned char*>(key.data()),
                     key.size()) != 1) {
    return Internal("scrypt of a job secret failed");
  }
  return key;
}

bool SameDigest(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace fleet::channel
