// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_COMM_MEETING_H_
#define FLEET_COMM_MEETING_H_

#include <string>

#include "fleet/channel/meet.h"
#include "fleet/cluster/store.h"

namespace fleet::comm {

// What the ranks of a group need to find each other; every backend that
// connects processes starts from it. Ranks are those of the group.
struct Meeting {
  cluster::Store* store = nullptr;
  // Begins all keys in the store and all local names: no other group of any
  // job has it.
  std::string prefix;
  int rank = 0;
  int size = 1;
  // Where others reach this process, and the secret of the job.
  std::string host = "127.0.0.1";
  channel::Trust trust;
  // Between hosts.
  channel::Carrier carrier = channel::Carrier::kTcp;
  // Ranks on this host, all groups together: whether waits may spin.
  int processes_on_host = 0;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_MEETING_H_
