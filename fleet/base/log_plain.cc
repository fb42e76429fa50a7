// SPDX-License-Identifier: Apache-2.0

// The log without spdlog: the same lines, by stdio.

#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "fleet/base/log.h"

namespace fleet::base {

// One fprintf per line: stdio's own lock keeps lines whole.
void WriteLog(LogSeverity severity, const char* file, int line,
              const std::string& text) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(
          now.time_since_epoch())
          .count() %
      1000;
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &local);
  const char* slash = std::strrchr(file, '/');
  std::fprintf(stderr, "%s.%03d %d %c %s:%d] %s\n", date,
               static_cast<int>(milliseconds), static_cast<int>(::getpid()),
               "DIWE"[static_cast<int>(severity)],
               slash == nullptr ? file : slash + 1, line, text.c_str());
}

}  // namespace fleet::base
