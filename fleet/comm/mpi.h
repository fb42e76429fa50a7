// SPDX-License-Identifier: Apache-2.0

// Collectives by an MPI library, for jobs that mpirun or srun started. The MPI
// library is loaded on first use, as a part of the module libfleet_mpi.so.

#ifndef FLEET_COMM_MPI_H_
#define FLEET_COMM_MPI_H_

#include <memory>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"

namespace fleet::comm {

// A communicator over `ranks` of MPI's world, which must hold this process; the
// position in the list is the rank in the group. An empty list is the whole
// world. All of them call it with the same list and name; the first call of a
// process is made by all ranks of the job. MPI is initialised by that call
// unless the program did so, and then finalised when the process ends.
//
// Unimplemented without libfleet_mpi.so or MPI: says how to get it.
// DeadlineExceeded names the ranks that did not come with the same list and
// name. FailedPrecondition when MPI was initialised for one thread only. A
// process that mpirun did not start is a world of one rank.
//
// MPI cannot take back a collective that all ranks have begun: a failure in the
// middle of one, which a rank that dies there is, breaks all communicators of
// this process that MPI carries.
Result<std::unique_ptr<Communicator>> ConnectMpi(std::vector<int> ranks,
                                                 CommunicatorOptions options,
                                                 Deadline deadline);

}  // namespace fleet::comm

#endif  // FLEET_COMM_MPI_H_
