// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/mpi.h"

#include <utility>

#include "fleet/base/module.h"
#include "fleet/comm/mpi_module.h"

namespace fleet::comm {

Result<std::unique_ptr<Communicator>> ConnectMpi(std::vector<int> ranks,
                                                 CommunicatorOptions options,
                                                 Deadline deadline) {
  ASSIGN_OR_RETURN(
      void* entry,
      base::LoadModule("libfleet_mpi.so", kMpiEntry,
                       "collectives by MPI need Open MPI (Debian: "
                       "libopenmpi-dev) when Fleet is built and when it runs"));
  MpiConnecting connecting{std::move(ranks), std::move(options), deadline};
  reinterpret_cast<MpiEntry*>(entry)(&connecting);
  RETURN_IF_ERROR(connecting.status);
  return std::move(connecting.communicator);
}

}  // namespace fleet::comm
