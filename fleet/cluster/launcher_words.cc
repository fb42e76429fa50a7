// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/launcher_words.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "fleet/base/descriptor.h"

namespace fleet::cluster {
namespace {

// A launcher takes a word in microseconds. One that is stopped does not, and
// delays nobody for long.
constexpr timeval kPatience = {.tv_sec = 0, .tv_usec = 200'000};

void Send(const LauncherPlace& place, LauncherWord word) {
  const base::Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return;
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  sockaddr_un address = {.sun_family = AF_UNIX};
  // An abstract name begins with a zero.
  std::memcpy(address.sun_path + 1, place.address.data(), place.address.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           place.address.size());
  const std::string datagram = EncodeWord(word, place.process);
  (void)!sendto(fd.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace

void TellLauncher(LauncherWord word) {
  if (word == LauncherWord::kFailed || word == LauncherWord::kOthersFailed) {
    static std::atomic<bool> said = false;
    if (said.exchange(true)) return;
  }
  const char* text = std::getenv("FLEET_LAUNCHER");
  if (text == nullptr) return;
  const Result<LauncherPlace> place = ParseLauncherPlace(text);
  if (place.ok()) Send(*place, word);
}

std::string ToString(const LauncherPlace& place) {
  return place.address + " " + place.process;
}

Result<LauncherPlace> ParseLauncherPlace(std::string_view text) {
  const size_t blank = text.find(' ');
  if (blank == 0 || blank == text.npos || blank + 1 == text.size() ||
      blank >= sizeof(sockaddr_un::sun_path)) {
    return InvalidArgument(
        "FLEET_LAUNCHER: expected an address and a name, "
        "but found '",
        text, "'");
  }
  return LauncherPlace{std::string(text.substr(0, blank)),
                       std::string(text.substr(blank + 1))};
}

std::string EncodeWord(LauncherWord word, std::string_view process) {
  return base::Concat(static_cast<char>(word), process);
}

Result<SaidWord> DecodeWord(std::string_view datagram) {
  for (LauncherWord word :
       {LauncherWord::kMet, LauncherWord::kFailed, LauncherWord::kOthersFailed,
        LauncherWord::kLost, LauncherWord::kLogs, LauncherWord::kLogsNothing}) {
    if (datagram.size() > 1 && datagram.front() == static_cast<char>(word)) {
      return SaidWord{word, std::string(datagram.substr(1))};
    }
  }
  return DataLoss("a word to the launcher that there is not");
}

}  // namespace fleet::cluster
