// SPDX-License-Identifier: Apache-2.0

// What shim.cc is told, in a file that both sides map.

#ifndef FLEET_TESTS_CHAOS_SHIM_H_
#define FLEET_TESTS_CHAOS_SHIM_H_

#include <atomic>
#include <cstdint>

namespace fleet::chaos {

struct Control {
  std::atomic<int64_t> clock_step = 0;    // nanoseconds; of CLOCK_REALTIME
  std::atomic<int64_t> disk_is_full = 0;  // no file gets more room
  std::atomic<int64_t> disk_fails = 0;    // fdatasync: an input/output error
};

}  // namespace fleet::chaos

#endif  // FLEET_TESTS_CHAOS_SHIM_H_
