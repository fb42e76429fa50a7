// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/screen.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fleet/base/deadline.h"
#include "fleet/channel/socket.h"

namespace fleet::launch {
namespace {

// A pipe that poll(2) calls writable takes so many bytes without waiting.
constexpr size_t kPiece = 4096;
// Between two looks at a screen that does not block and takes nothing.
constexpr std::chrono::seconds kWritePatience{1};
constexpr off_t kEndByteSize = 64 << 10;

}  // namespace

LogOnScreen::LogOnScreen(const std::string& path, off_t begin, int screen_fd)
    : log_(open(path.c_str(), O_RDONLY | O_CLOEXEC)),
      position_(begin),
      screen_(screen_fd) {}

int LogOnScreen::Copy() {
  char piece[kPiece];
  while (screen_ >= 0) {
    const ssize_t size = pread(log_.get(), piece, sizeof(piece), position_);
    if (size <= 0) return -1;
    pollfd screen = {screen_, POLLOUT, 0};
    if (poll(&screen, 1, 0) != 1) return screen_;
    const ssize_t written = write(screen_, piece, size);
    if (written > 0) {
      position_ += written;
    } else if (errno != EINTR && errno != EAGAIN) {
      screen_ = -1;  // nobody looks any more
    }
  }
  return -1;
}

void WriteText(int fd, const std::string& text) {
  size_t position = 0;
  while (position < text.size()) {
    const ssize_t written =
        write(fd, text.data() + position, text.size() - position);
    if (written < 0 && errno == EAGAIN) {
      channel::WaitFor(fd, POLLOUT, base::Deadline::After(kWritePatience));
    } else if (written < 0 && errno != EINTR) {
      return;
    }
    position += std::max<ssize_t>(written, 0);
  }
}

void Say(base::LogSeverity severity, const std::string& text) {
  if (severity >= base::MinLogSeverity()) WriteText(STDERR_FILENO, text);
}

std::string ReadEnd(const std::string& path, off_t begin) {
  const base::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info;
  if (!file.valid() || fstat(file.get(), &info) != 0) return {};
  begin = std::max(begin, info.st_size - kEndByteSize);
  if (begin >= info.st_size) return {};
  std::string text(info.st_size - begin, '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), begin);
  text.resize(std::max<ssize_t>(size, 0));
  return text;
}

}  // namespace fleet::launch
