// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <cstdlib>

#include "fleet/base/log.h"

namespace fleet::base {
namespace {

std::atomic<LogSeverity>& Minimum() {
  static std::atomic<LogSeverity> minimum = [] {
    const char* name = std::getenv("FLEET_LOG_LEVEL");
    return LogSeverityFromName(name == nullptr ? "INFO" : name);
  }();
  return minimum;
}

}  // namespace

LogSeverity LogSeverityFromName(std::string_view name) {
  if (name == "DEBUG") return LogSeverity::DEBUG;
  if (name == "WARNING") return LogSeverity::WARNING;
  if (name == "ERROR") return LogSeverity::ERROR;
  return LogSeverity::INFO;
}

LogSeverity MinLogSeverity() {
  return Minimum().load(std::memory_order_relaxed);
}

void SetMinLogSeverity(LogSeverity severity) {
  Minimum().store(severity, std::memory_order_relaxed);
}

}  // namespace fleet::base
