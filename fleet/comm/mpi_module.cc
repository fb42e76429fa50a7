// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/mpi_module.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "fleet/comm/mpi_communicator.h"
#include "fleet/comm/mpi_library.h"

namespace fleet::comm {
namespace {

Result<std::unique_ptr<Communicator>> Connect(std::vector<int> ranks,
                                              CommunicatorOptions options,
                                              Deadline deadline) {
  ASSIGN_OR_RETURN(MpiLibrary * library, MpiLibrary::Get(options, deadline));
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(library->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  for (int rank : ranks) {
    if (rank < 0 || rank >= library->size()) {
      return InvalidArgument("rank ", rank, " of a world of ", library->size(),
                             " by MPI; was the job started by mpirun?");
    }
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    return InvalidArgument("a group holds each rank at most once");
  }
  const auto own = std::find(ranks.begin(), ranks.end(), library->rank());
  if (own == ranks.end()) {
    return InvalidArgument("rank ", library->rank(),
                           " of MPI's world is not "
                           "in the group");
  }
  ASSIGN_OR_RETURN(MPI_Comm comm, library->MakeComm(ranks, options, deadline));
  return std::make_unique<MpiCommunicator>(
      *library, comm, static_cast<int>(own - ranks.begin()),
      static_cast<int>(ranks.size()), std::move(options));
}

}  // namespace
}  // namespace fleet::comm

extern "C" void FleetConnectMpi(fleet::comm::MpiConnecting* connecting) {
  auto communicator = fleet::comm::Connect(std::move(connecting->ranks),
                                           std::move(connecting->options),
                                           connecting->deadline);
  connecting->status = communicator.status();
  if (communicator.ok()) {
    connecting->communicator = std::move(communicator).value();
  }
}
