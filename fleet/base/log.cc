// SPDX-License-Identifier: Apache-2.0

// The log over spdlog. Its only door: no other file includes it.

#include "fleet/base/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "fleet/base/no_destructor.h"

namespace fleet::base {
namespace {

spdlog::level::level_enum LevelOf(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::DEBUG:
      return spdlog::level::debug;
    case LogSeverity::INFO:
      return spdlog::level::info;
    case LogSeverity::WARNING:
      return spdlog::level::warn;
    case LogSeverity::ERROR:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// A logger of our own, outside spdlog's registry, so that another user of
// spdlog in the process neither sees nor changes it. Never destroyed: threads
// may still write while the program ends.
spdlog::logger& Logger() {
  static NoDestructor<spdlog::logger> logger([] {
    spdlog::logger made("fleet",
                        std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_level(spdlog::level::trace);
    made.set_pattern("%Y-%m-%d %H:%M:%S.%e %P %^%L%$ %s:%#] %v");
    made.flush_on(spdlog::level::trace);
    return made;
  }());
  return *logger;
}

}  // namespace

void WriteLog(LogSeverity severity, const char* file, int line,
              const std::string& text) {
  Logger().log(spdlog::source_loc{file, line, ""}, LevelOf(severity),
               spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace fleet::base
