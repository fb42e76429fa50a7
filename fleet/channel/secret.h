// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_CHANNEL_SECRET_H_
#define FLEET_CHANNEL_SECRET_H_

#include <memory>
#include <string>
#include <string_view>

#include "fleet/base/status.h"

namespace fleet::channel {

// What every process of a job knows and nobody else. Copies share one place in
// memory, which no core file contains and which is wiped with the last of them.
class Secret final {
 public:
  Secret() = default;
  // NOLINTBEGIN(google-explicit-constructor)
  Secret(std::string_view text);
  Secret(const std::string& text) : Secret(std::string_view(text)) {}
  Secret(const char* text) : Secret(std::string_view(text)) {}
  // NOLINTEND(google-explicit-constructor)

  // 32 bytes from the kernel, as 64 hexadecimal digits.
  static Result<Secret> Random();

  // The key that all processes make of what a person wrote. 64 hexadecimal
  // digits are the key. Any other text is stretched (scrypt), so that one who
  // recorded a hello needs a tenth of a second and 32 MB for every guess.
  // Unimplemented where Fleet was built without OpenSSL.
  static Result<Secret> FromText(std::string_view text);

  // A secret that one who knows `key` makes of it, and another one for every
  // `purpose`; it tells nothing of `key`. Unimplemented without OpenSSL.
  static Result<Secret> Derive(std::string_view key, std::string_view purpose);

  bool empty() const { return text().empty(); }
  std::string_view text() const;

  friend bool operator==(const Secret& a, const Secret& b) {
    return a.text() == b.text();
  }

 private:
  class Pages;
  std::shared_ptr<const Pages> pages_;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_SECRET_H_
