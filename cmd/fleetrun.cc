// SPDX-License-Identifier: Apache-2.0

// The launcher; see docs/howto/launch.md.

#include <cstdio>
#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <variant>
#include <vector>

#include "fleet/cluster/environment.h"
#include "fleet/launch/launch.h"
#include "fleet/launch/options.h"

int main(int argc, char** argv) {
  // So that no file of ours becomes stdin, stdout or stderr of a rank.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);
  }
  auto parsed = fleet::launch::ParseLaunchOptions({argv + 1, argv + argc});
  if (!parsed.ok()) {
    std::fprintf(stderr, "fleetrun: %s\n", parsed.status().message().c_str());
    return 2;
  }
  if (const auto* help = std::get_if<fleet::launch::LaunchHelp>(&*parsed)) {
    std::fputs(help->text.c_str(), stdout);
    return 0;
  }
  // The path before links are followed: Python is beside the link.
  const auto* path = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return fleet::launch::Launch(std::get<fleet::launch::LaunchOptions>(*parsed),
                               fleet::cluster::ReadEnvironment(),
                               path != nullptr ? path : argv[0]);
}
