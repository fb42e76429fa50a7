// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/nccl_module.h"

#include <utility>

#include "fleet/comm/nccl_communicator.h"
#include "fleet/comm/nccl_library.h"

extern "C" void FleetConnectNccl(fleet::comm::NcclConnecting* connecting) {
  auto communicator = fleet::comm::NcclCommunicator::Connect(
      std::move(connecting->companion), connecting->device,
      std::move(connecting->options), connecting->deadline);
  connecting->status = communicator.status();
  if (communicator.ok()) {
    connecting->communicator = std::move(communicator).value();
  }
}

extern "C" void FleetCheckNccl(int device, fleet::Status* answer) {
  auto library = fleet::comm::NcclLibrary::Get();
  *answer =
      library.ok() ? (*library)->FindGpu(device).status() : library.status();
}
