// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/trust.h"

namespace fleet::channel {

Result<Encryption> ParseEncryption(std::string_view text) {
  if (text == "hosts") return Encryption::kBetweenHosts;
  if (text == "always") return Encryption::kAlways;
  if (text == "off") return Encryption::kOff;
  return InvalidArgument("FLEET_ENCRYPTION is '", text,
                         "', but there are hosts, always and off");
}

}  // namespace fleet::channel
