// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fleet::base {

// stdio and not the log: a check may fail while the log is being set up.
void CheckFailed(const char* file, int line, const char* condition,
                 const std::string& message) {
  std::fprintf(stderr, "%s:%d: check failed: %s %s\n", file, line, condition,
               message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace fleet::base
