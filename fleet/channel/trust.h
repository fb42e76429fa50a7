// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_CHANNEL_TRUST_H_
#define FLEET_CHANNEL_TRUST_H_

#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/channel/secret.h"

namespace fleet::channel {

// Which connections over TCP are encrypted (TLS 1.3) in a job with a secret.
enum class Encryption { kBetweenHosts, kAlways, kOff };

// "hosts", "always" and "off", as FLEET_ENCRYPTION has them; InvalidArgument
// for other words.
Result<Encryption> ParseEncryption(std::string_view text);

// How the processes of a job know each other and keep others out.
struct Trust {
  // Empty: everybody who reaches the address is believed.
  Secret secret;
  // Off on both sides or on none; otherwise the hello fails and says so. UCX
  // does not encrypt, and a warning says so.
  Encryption encryption = Encryption::kBetweenHosts;
  // Without a secret, a listener takes connections over the network only from
  // these hosts (and its own), given by address or name. Empty: from all.
  std::vector<std::string> named_hosts;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_TRUST_H_
