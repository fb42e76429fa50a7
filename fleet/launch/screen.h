// SPDX-License-Identifier: Apache-2.0

// What a process writes to its log, on the screen as well. The log is the only
// buffer: a screen that does not take more delays nobody.

#ifndef FLEET_LAUNCH_SCREEN_H_
#define FLEET_LAUNCH_SCREEN_H_

#include <string>
#include <sys/types.h>

#include "fleet/base/descriptor.h"
#include "fleet/base/log.h"

namespace fleet::launch {

class LogOnScreen final {
 public:
  // Follows the file from `begin` on, to `screen_fd`, which is not owned.
  LogOnScreen(const std::string& path, off_t begin, int screen_fd);

  // Copies what is new as far as the screen takes it without waiting. Returns
  // the screen's descriptor when it has to be waited for, else -1.
  int Copy();

 private:
  base::Descriptor log_;
  off_t position_;
  int screen_;
};

// Writes all of `text`, or gives up when nobody reads any more.
void WriteText(int fd, const std::string& text);

// Writes `text` to stderr, unless what is that important is not to be said
// (--log_level, FLEET_LOG_LEVEL).
void Say(base::LogSeverity severity, const std::string& text);

// The last bytes of the file, at most 64 KB, none from before `begin`.
std::string ReadEnd(const std::string& path, off_t begin);

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_SCREEN_H_
