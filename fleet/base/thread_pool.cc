// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <pthread.h>

#include "fleet/base/check.h"

namespace fleet::base {

ThreadPool::ThreadPool(ThreadPoolOptions options)
    : queue_(options.max_waiting) {
  FLEET_CHECK_GT(options.num_threads, 0);
  const std::string name = options.name.substr(0, 15);  // Linux's limit
  for (int i = 0; i < options.num_threads; ++i) {
    threads_.emplace_back([this, name] {
      ::pthread_setname_np(::pthread_self(), name.c_str());
      RunTasks();
    });
  }
}

ThreadPool::~ThreadPool() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Enqueue(std::unique_ptr<Work> work, Deadline deadline) {
  // A push that fails leaves `work` here.
  const Status pushed = queue_.Push(std::move(work), deadline);
  if (!pushed.ok()) work->Refuse(pushed.WithContext("thread pool"));
}

void ThreadPool::RunTasks() {
  while (true) {
    Result<std::optional<std::unique_ptr<Work>>> work =
        queue_.Pop(Deadline::Infinite());
    if (!work.ok() || !work->has_value()) return;
    (**work)->Run();
  }
}

void ThreadPool::Abort(Status why) {
  const Status reason = why.WithContext("thread pool");
  for (std::unique_ptr<Work>& work : queue_.Abort(std::move(why))) {
    work->Refuse(reason);
  }
}

void ThreadPool::ParallelFor(size_t count,
                             const std::function<void(size_t)>& body) {
  // Shared with threads that may come late, after the caller has returned and
  // `body` is gone: they see that nothing is left and touch nothing else.
  struct Shared {
    std::atomic<size_t> next = 0;
    std::atomic<size_t> left;
    Promise<> all_done;
  };
  if (count == 0) return;
  auto shared = std::make_shared<Shared>();
  shared->left = count;
  Future<> all_done = shared->all_done.future();
  auto run = [shared, count, &body] {
    size_t i;
    while ((i = shared->next.fetch_add(1)) < count) {
      body(i);
      if (shared->left.fetch_sub(1) == 1) shared->all_done.Set(OkStatus());
    }
  };
  // The caller works too, so nothing depends on the pool being free: workers
  // that find no room now are not needed.
  const size_t num_others = std::min(count - 1, threads_.size());
  for (size_t i = 0; i < num_others; ++i) {
    (void)Submit(run, Deadline::After(std::chrono::nanoseconds(0)));
  }
  run();
  const Status done = all_done.Wait(Deadline::Infinite());
  FLEET_CHECK(done.ok(), done);
}

}  // namespace fleet::base
