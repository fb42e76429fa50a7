// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/nccl.h"

#include <utility>

#include "fleet/base/module.h"
#include "fleet/comm/nccl_module.h"

namespace fleet::comm {
namespace {

template <typename Function>
Result<Function*> FindEntry(const char* name) {
  ASSIGN_OR_RETURN(void* entry,
                   base::LoadModule("libfleet_nccl.so", name,
                                    "it is built with Fleet; build it again"));
  return reinterpret_cast<Function*>(entry);
}

}  // namespace

Result<std::unique_ptr<Communicator>> ConnectNccl(
    std::unique_ptr<Communicator> companion, int device,
    CommunicatorOptions options, Deadline deadline) {
  ASSIGN_OR_RETURN(NcclEntry * connect, FindEntry<NcclEntry>(kNcclEntry));
  NcclConnecting connecting{std::move(companion), device, std::move(options),
                            deadline};
  connect(&connecting);
  RETURN_IF_ERROR(connecting.status);
  return std::move(connecting.communicator);
}

Status CheckNccl(int device) {
  ASSIGN_OR_RETURN(NcclCheckEntry * check,
                   FindEntry<NcclCheckEntry>(kNcclCheckEntry));
  Status answer;
  check(device, &answer);
  return answer;
}

}  // namespace fleet::comm
