// SPDX-License-Identifier: Apache-2.0

// The launchers of a job's hosts while its processes run: a failure on one host
// ends the processes of all, also of programs that have nothing to do with
// Fleet, and servers stay until the workers of all hosts have ended. The first
// host holds a connection to every other one.

#ifndef FLEET_LAUNCH_WATCH_H_
#define FLEET_LAUNCH_WATCH_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fleet/base/descriptor.h"
#include "fleet/base/mutex.h"
#include "fleet/channel/channel.h"

namespace fleet::launch {

// The connection to the launcher of another host.
struct HostLink {
  std::string host;
  std::unique_ptr<channel::Channel> channel;
};

// Why a job failed, as its launchers tell each other.
struct JobFailure {
  int exit_code = 1;
  std::string text;  // one line, which names who failed and where
};

// What came over a link.
struct HostNews {
  enum class Kind {
    // To the first host: the workers of that host. From it: those of all.
    kWorkersEnded,
    kFailed,  // it told so, or vanished
  };
  Kind kind;
  JobFailure failure;  // of kFailed
};

// Used by one thread.
class HostWatch final {
 public:
  // None for a job on one host: then nothing is ever heard or told.
  explicit HostWatch(std::vector<HostLink> links);
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;
  // Says nothing: who has not told the others that it is done has failed.
  ~HostWatch();

  int num_links() const { return static_cast<int>(links_.size()); }

  // Readable while there is news that was not taken.
  int fd() const { return news_read_.get(); }
  std::vector<HostNews> TakeNews();

  // Tell all that are linked. They are given two seconds to listen; one that
  // does not is gone itself.
  void TellWorkersEnded();
  void TellDone();  // the last word
  void TellFailure(const JobFailure& failure);

 private:
  // Listeners end soon.
  void CloseLinks();
  // Until the other end is done, has failed, or is gone.
  void Listen(HostLink& link);
  void Note(HostNews news);
  void Tell(const std::string& message);

  std::vector<HostLink> links_;
  base::Descriptor news_read_, news_write_;
  base::Mutex mutex_;
  std::vector<HostNews> news_ GUARDED_BY(mutex_);
  std::vector<std::jthread> listeners_;  // last: they use all of the above
};

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_WATCH_H_
