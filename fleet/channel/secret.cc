// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/secret.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <sys/mman.h>
#include <sys/random.h>

#include "fleet/channel/hmac.h"

namespace fleet::channel {
namespace {

constexpr size_t kKeyByteSize = 32;

// The secret whose digits `bytes` are, which are wiped.
Secret TakeDigits(std::array<std::byte, kKeyByteSize>& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::array<char, 2 * kKeyByteSize> digits;
  for (size_t i = 0; i < bytes.size(); ++i) {
    digits[2 * i] = kDigits[std::to_integer<unsigned>(bytes[i]) >> 4];
    digits[2 * i + 1] = kDigits[std::to_integer<unsigned>(bytes[i]) & 15];
  }
  Secret secret(std::string_view(digits.data(), digits.size()));
  explicit_bzero(digits.data(), digits.size());
  explicit_bzero(bytes.data(), bytes.size());
  return secret;
}

bool IsKey(std::string_view text) {
  return text.size() == 2 * kKeyByteSize &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace

class Secret::Pages final {
 public:
  explicit Pages(std::string_view text) : byte_size_(text.size()) {
    void* at = mmap(nullptr, byte_size_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    at_ = static_cast<char*>(at);
    // A kernel that does not know the advice writes the page to core files;
    // all that Fleet supports know it.
    (void)madvise(at_, byte_size_, MADV_DONTDUMP);
    std::memcpy(at_, text.data(), byte_size_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    explicit_bzero(at_, byte_size_);
    (void)munmap(at_, byte_size_);
  }

  std::string_view text() const { return {at_, byte_size_}; }

 private:
  const size_t byte_size_;
  char* at_;
};

Secret::Secret(std::string_view text) {
  if (!text.empty()) pages_ = std::make_shared<const Pages>(text);
}

std::string_view Secret::text() const {
  return pages_ == nullptr ? std::string_view() : pages_->text();
}

Result<Secret> Secret::Random() {
  std::array<std::byte, kKeyByteSize> bytes;
  // Up to 256 bytes come whole or not at all.
  if (getrandom(bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    return ErrnoStatus(errno, "a random job secret");
  }
  return TakeDigits(bytes);
}

Result<Secret> Secret::FromText(std::string_view text) {
  if (text.empty() || IsKey(text)) return Secret(text);
  ASSIGN_OR_RETURN(Digest key, Stretch(text));
  return TakeDigits(key);
}

Result<Secret> Secret::Derive(std::string_view key, std::string_view purpose) {
  ASSIGN_OR_RETURN(Digest digest,
                   HmacSha256(key, std::as_bytes(std::span(purpose))));
  return TakeDigits(digest);
}

}  // namespace fleet::channel
