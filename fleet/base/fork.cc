// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/fork.h"

#include <cerrno>
#include <pthread.h>
#include <unistd.h>
#include <vector>

#include "fleet/base/check.h"
#include "fleet/base/no_destructor.h"

namespace fleet::base {

std::atomic<uint32_t> fork_depth = 0;

namespace {

// One for the process, as descriptors and fork() are. Never destroyed: objects
// with static storage may close descriptors after everything else.
struct Registry {
  Registry();
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::vector<bool> is_ours;  // by descriptor
};

Registry& TheRegistry();

void BeforeFork() { pthread_mutex_lock(&TheRegistry().mutex); }

void InParent() { pthread_mutex_unlock(&TheRegistry().mutex); }

void InChild() {
  Registry& registry = TheRegistry();
  fork_depth.fetch_add(1, std::memory_order_relaxed);
  for (size_t fd = 0; fd < registry.is_ours.size(); ++fd) {
    if (registry.is_ours[fd]) close(static_cast<int>(fd));
  }
  registry.is_ours.clear();
  pthread_mutex_unlock(&registry.mutex);
}

Registry::Registry() {
  FLEET_CHECK_EQ(pthread_atfork(BeforeFork, InParent, InChild), 0);
}

Registry& TheRegistry() {
  static NoDestructor<Registry> registry;
  return *registry;
}

}  // namespace

void ForkRegistry::Lock() { pthread_mutex_lock(&TheRegistry().mutex); }

void ForkRegistry::Unlock() {
  const int error_number = errno;
  pthread_mutex_unlock(&TheRegistry().mutex);
  errno = error_number;
}

void ForkRegistry::AddLocked(int fd) {
  std::vector<bool>& is_ours = TheRegistry().is_ours;
  const auto at = static_cast<size_t>(fd);
  if (at >= is_ours.size()) is_ours.resize(at + 1);
  is_ours[at] = true;
}

void ForkRegistry::Add(int fd) {
  Lock();
  AddLocked(fd);
  Unlock();
}

bool ForkRegistry::ForgetLocked(int fd) {
  std::vector<bool>& is_ours = TheRegistry().is_ours;
  const auto at = static_cast<size_t>(fd);
  if (at >= is_ours.size() || !is_ours[at]) return false;
  is_ours[at] = false;
  return true;
}

int ForkRegistry::Close(int fd) {
  Lock();
  const int closed = ForgetLocked(fd) ? close(fd) : 0;
  Unlock();
  return closed;
}

void ForkRegistry::Forget(int fd) {
  Lock();
  ForgetLocked(fd);
  Unlock();
}

}  // namespace fleet::base
