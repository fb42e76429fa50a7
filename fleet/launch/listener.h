// SPDX-License-Identifier: Apache-2.0

// Hears what processes of this host tell (cluster/launcher_words.h).

#ifndef FLEET_LAUNCH_LISTENER_H_
#define FLEET_LAUNCH_LISTENER_H_

#include <string>
#include <vector>

#include "fleet/base/descriptor.h"
#include "fleet/base/status.h"
#include "fleet/cluster/launcher_words.h"

namespace fleet::launch {

// Used by one thread.
class WordListener final {
 public:
  // Listens at an address that nobody else knows or can guess.
  static Result<WordListener> Open();

  const std::string& address() const { return address_; }
  // Readable while there are words that were not taken.
  int fd() const { return socket_.get(); }

  // What came so far. What a process said before it ended is among it. Words of
  // another user are left out.
  std::vector<cluster::SaidWord> Take();

 private:
  WordListener(std::string address, base::Descriptor socket);

  std::string address_;
  base::Descriptor socket_;
};

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_LISTENER_H_
