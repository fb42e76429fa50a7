// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/nccl.h"

#include <utility>

#include "fleet/base/module.h"
#include "fleet/comm/nccl_module.h"

namespace fleet::comm {

Result<std::unique_ptr<Communicator>> ConnectNccl(
    std::unique_ptr<Communicator> companion, int device,
    CommunicatorOptions options, Deadline deadline) {
  ASSIGN_OR_RETURN(void* entry,
                   base::LoadModule("libfleet_nccl.so", kNcclEntry,
                                    "it is built with Fleet; build it again"));
  NcclConnecting connecting{std::move(companion), device, std::move(options),
                            deadline};
  reinterpret_cast<NcclEntry*>(entry)(&connecting);
  RETURN_IF_ERROR(connecting.status);
  return std::move(connecting.communicator);
}

}  // namespace fleet::comm
