// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_CHANNEL_TRUST_H_
#define FLEET_CHANNEL_TRUST_H_

#include <string>
#include <string_view>

#include "fleet/base/status.h"

namespace fleet::channel {

// Which connections over TCP are encrypted (TLS 1.3) in a job with a secret.
enum class Encryption { kBetweenHosts, kAlways, kOff };

// "hosts", "always" and "off", as FLEET_ENCRYPTION has them; InvalidArgument
// for other words.
Result<Encryption> ParseEncryption(std::string_view text);

// How the processes of a job know each other and keep others out.
struct Trust {
  // What every process of the job knows and nobody else. Empty: everybody who
  // reaches the address is believed.
  std::string secret;
  // Off on both sides or on none; otherwise the hello fails and says so. UCX
  // does not encrypt, and a warning says so.
  Encryption encryption = Encryption::kBetweenHosts;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_TRUST_H_
