// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_BASE_EXCEPTIONS_H_
#define FLEET_BASE_EXCEPTIONS_H_

#include <exception>
#include <new>

#include "fleet/base/status.h"

namespace fleet::base {

// What `work` returns, a Status or a Result. What it throws becomes one:
// Unavailable where there is no memory, otherwise Internal with its text. For
// the functions of threads, which an exception would not leave: it would end
// the process, and with it what the other threads do.
template <typename Work>
auto CatchExceptions(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Unavailable("no memory left");
  } catch (const std::exception& error) {
    return Internal("an exception: ", error.what());
  }
}

}  // namespace fleet::base

#endif  // FLEET_BASE_EXCEPTIONS_H_
