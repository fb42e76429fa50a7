// SPDX-License-Identifier: Apache-2.0

// How a global shuffle moves samples between the workers of a job. Who has a
// way to the other workers implements it.

#ifndef FLEET_DATA_EXCHANGE_H_
#define FLEET_DATA_EXCHANGE_H_

#include <cstddef>
#include <span>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"

namespace fleet::data {

// All workers make the same calls. One thread at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Both spans are cut into size() parts of equal length, which all workers
  // have in common: part i of `from` goes to worker i, and part i of `to` came
  // from it. A failure names who is missing; no call may follow it.
  virtual Status AllToAll(std::span<const std::byte> from,
                          std::span<std::byte> to, base::Deadline deadline) = 0;
};

}  // namespace fleet::data

#endif  // FLEET_DATA_EXCHANGE_H_
