// SPDX-License-Identifier: Apache-2.0

// Collectives between threads of one process. It defines what the other
// backends must do, serves jobs of one rank and ranks that are threads, and
// carries the tests of what stands on comm.
//
//   auto ranks = MakeInProcess(4);
//   // ranks[i] goes to thread i

#ifndef FLEET_COMM_IN_PROCESS_H_
#define FLEET_COMM_IN_PROCESS_H_

#include <functional>
#include <memory>
#include <vector>

#include "fleet/comm/communicator.h"

namespace fleet::comm {

// One communicator for each of `size` ranks. Each may outlive the others. A
// rank whose communicator breaks breaks those of all others, with its reason.
std::vector<std::unique_ptr<Communicator>> MakeInProcess(
    int size, const CommunicatorOptions& options = {});

// A group whose ranks have options of their own.
std::vector<std::unique_ptr<Communicator>> MakeInProcess(
    int size, const std::function<CommunicatorOptions(int rank)>& options);

}  // namespace fleet::comm

#endif  // FLEET_COMM_IN_PROCESS_H_
