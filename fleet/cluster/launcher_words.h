// SPDX-License-Identifier: Apache-2.0

// What a process tells the launcher that started it, in one direction: that its
// ranks met, whose failure its own end follows from, that updates are lost, and
// whether it logs them. Of several processes that fail the launcher shows first
// one that did not fail because of another; when processes end is too close
// together to tell them apart by it.
//
// The launcher gives each process a place in FLEET_LAUNCHER; without one, and
// where nobody listens there any more, nothing happens. Thread-safe. Called by
// the process that the launcher started, not by those that it forks.

#ifndef FLEET_CLUSTER_LAUNCHER_WORDS_H_
#define FLEET_CLUSTER_LAUNCHER_WORDS_H_

#include <string>
#include <string_view>

#include "fleet/base/status.h"

namespace fleet::cluster {

enum class LauncherWord : char {
  kMet = 'm',           // this process has met the other ranks of its job
  kFailed = 'f',        // it fails by itself
  kOthersFailed = 'o',  // another process has failed; if it fails, by that
  // It knows of updates that a server acknowledged and lost; its log says
  // which.
  kLost = 'l',
  // A server that logs what it acknowledges, so that it can be started again
  // from there, or one that does not.
  kLogs = 'k',
  kLogsNothing = 'n',
};

// The first of kFailed and kOthersFailed that is said counts; later ones are
// not sent. The others may be said at any time.
void TellLauncher(LauncherWord word);

// Where a launcher listens: an abstract unix address for datagrams, and the
// name under which it knows the process. As text, "address name".
struct LauncherPlace {
  std::string address;
  std::string process;
};
std::string ToString(const LauncherPlace& place);
Result<LauncherPlace> ParseLauncherPlace(std::string_view text);

// A datagram: the word, and the name of the process.
std::string EncodeWord(LauncherWord word, std::string_view process);
struct SaidWord {
  LauncherWord word;
  std::string process;
};
Result<SaidWord> DecodeWord(std::string_view datagram);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_LAUNCHER_WORDS_H_
