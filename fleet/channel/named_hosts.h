// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_CHANNEL_NAMED_HOSTS_H_
#define FLEET_CHANNEL_NAMED_HOSTS_H_

#include <set>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"

namespace fleet::channel {

// The hosts from which a listener takes connections, as a user named them: by
// addresses or by names. Loopback is always one of them. Not thread-safe.
class NamedHosts final {
 public:
  // Without any, every host is one of them.
  explicit NamedHosts(std::vector<std::string> hosts);

  // Whether the host at `address`, in digits, is one of them. May ask the name
  // service, at most once in five seconds: a host may get its name later.
  bool Contain(const std::string& address);

  // "10.0.0.1, 10.0.0.2"
  std::string ToString() const;

 private:
  void LookUpNames();

  const std::vector<std::string> hosts_;
  std::set<std::string> addresses_;
  bool has_names_ = false;
  base::Deadline look_up_again_ = base::Deadline::Infinite();
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_NAMED_HOSTS_H_
