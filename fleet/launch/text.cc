// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/text.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <sys/wait.h>

#include "fleet/base/status.h"

namespace fleet::launch {
namespace {

// Paddle's table: two columns of 40 and 45, two blanks between.
constexpr size_t kNameWidth = 40;
constexpr size_t kValueWidth = 45;
constexpr size_t kRuleWidth = kNameWidth + 2 + kValueWidth;

constexpr size_t kShownLines = 20;
constexpr size_t kMaxShownLines = 100;

// The end of a value that is too wide.
std::string Shortened(std::string value) {
  if (value.size() < kValueWidth) return value;
  return "... " + value.substr(value.size() - (kValueWidth - 4));
}

std::string Row(std::string name, std::string value) {
  value = Shortened(std::move(value));
  const size_t blanks = kValueWidth - value.size();
  const size_t before = blanks / 2;
  if (name.size() < kNameWidth) name.insert(0, kNameWidth - name.size(), ' ');
  return "    |" + name + "  " + std::string(before, ' ') + value +
         std::string(blanks - before, ' ') + "|\n";
}

bool BeginsTraceback(std::string_view line) {
  return line.starts_with("Traceback (most recent call last):");
}

// Between two tracebacks of one failure.
bool LinksTracebacks(std::string_view line) {
  return line.starts_with("During handling of the above exception") ||
         line.starts_with("The above exception was the direct cause");
}

// The line at which the last failure's first traceback begins; lines.size()
// when there is none.
size_t FindTraceback(const std::vector<std::string>& lines) {
  size_t first = lines.size();
  for (size_t i = lines.size(); i-- > 0;) {
    if (!BeginsTraceback(lines[i])) continue;
    first = i;
    // Two lines up, behind an empty one, it may say that it followed another.
    if (i < 2 || !LinksTracebacks(lines[i - 2])) break;
  }
  return first;
}

}  // namespace

std::string Banner(std::string_view lines) {
  return "-----------  Configuration Arguments -----------\n" +
         std::string(lines) +
         "------------------------------------------------\n";
}

std::string VariableLine(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  std::string line;
  for (const auto& [name, value] : variables) {
    if (!line.empty()) line += ' ';
    line += name + "=" + Shortened(value);
  }
  return line;
}

std::string VariableTable(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  const std::string border = "    +" + std::string(kRuleWidth, '=') + "+\n";
  std::string table = border + Row("Distributed Envs", "Value") + "    +" +
                      std::string(kRuleWidth, '-') + "+\n";
  for (const auto& [name, value] : variables) table += Row(name, value);
  return table + border;
}

std::string EndpointsLog(const std::vector<cluster::Endpoint>& workers) {
  std::string text = "PADDLE_TRAINER_ENDPOINTS: \n";
  for (const cluster::Endpoint& worker : workers)
    text += ToString(worker) + "\n";
  return text;
}

std::string LogLine(std::string_view severity, std::string_view file, int line,
                    std::string_view text) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(
          now.time_since_epoch())
          .count() %
      1000;
  std::tm local = {};
  localtime_r(&seconds, &local);
  char date[32];
  std::strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &local);
  char millis[8];
  std::snprintf(millis, sizeof(millis), ",%03d",
                static_cast<int>(milliseconds));
  file.remove_prefix(file.rfind('/') + 1);
  return base::Concat(severity, " ", date, millis, " ", file, ":", line, "] ",
                      text, "\n");
}

std::vector<std::string> LastLines(std::string_view log) {
  std::vector<std::string> lines;
  while (!log.empty()) {
    const size_t end = log.find('\n');
    lines.emplace_back(log.substr(0, end));
    log.remove_prefix(end == log.npos ? log.size() : end + 1);
  }
  if (lines.size() > kMaxShownLines) {
    lines.erase(lines.begin(), lines.end() - kMaxShownLines);
  }
  size_t first = lines.size() - std::min(lines.size(), kShownLines);
  first = std::min(first, FindTraceback(lines));
  lines.erase(lines.begin(), lines.begin() + first);
  return lines;
}

std::string DescribeExit(int wait_status) {
  if (!WIFSIGNALED(wait_status)) {
    return base::Concat("exit code ", WEXITSTATUS(wait_status));
  }
  const int number = WTERMSIG(wait_status);
  const char* name = sigabbrev_np(number);
  if (name == nullptr) return base::Concat("signal ", number);
  return base::Concat("SIG", name, " (signal ", number, ")");
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

}  // namespace fleet::launch
