// SPDX-License-Identifier: Apache-2.0

// Messages for people, to stderr, one line each:
//
//   FLEET_LOG(INFO) << name_ << ": " << stats.num_rows << " rows";
//
// Severities are DEBUG, INFO, WARNING and ERROR. What is below
// FLEET_LOG_LEVEL (an environment variable with one of these names; INFO when
// unset) is not written, and its arguments are not evaluated. Two files
// implement it and the build picks one: log.cc over spdlog, log_plain.cc
// without. Thread-safe.

#ifndef FLEET_BASE_LOG_H_
#define FLEET_BASE_LOG_H_

#include <sstream>
#include <string>
#include <string_view>

namespace fleet::base {

enum class LogSeverity { DEBUG = 0, INFO, WARNING, ERROR };

// The lowest severity that is written. The setter overrides the environment.
LogSeverity MinLogSeverity();
void SetMinLogSeverity(LogSeverity severity);

// Writes one line: time, severity, place, text. FLEET_LOG calls it.
void WriteLog(LogSeverity severity, const char* file, int line,
              const std::string& text);

// The severity with that name, INFO for any other text.
LogSeverity LogSeverityFromName(std::string_view name);

// Collects one message and writes it when it dies.
class LogMessage final {
 public:
  LogMessage(LogSeverity severity, const char* file, int line)
      : severity_(severity), file_(file), line_(line) {}
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;
  ~LogMessage() { WriteLog(severity_, file_, line_, text_.str()); }
  std::ostream& stream() { return text_; }

 private:
  LogSeverity severity_;
  const char* file_;
  int line_;
  std::ostringstream text_;
};

}  // namespace fleet::base

// An else branch without a dangling if: safe in an if without braces.
#define FLEET_LOG(severity)                                           \
  switch (0)                                                          \
  default:                                                            \
    if (::fleet::base::LogSeverity::severity <                        \
        ::fleet::base::MinLogSeverity()) {                            \
    } else                                                            \
      ::fleet::base::LogMessage(::fleet::base::LogSeverity::severity, \
                                __FILE__, __LINE__)                   \
          .stream()

#endif  // FLEET_BASE_LOG_H_
