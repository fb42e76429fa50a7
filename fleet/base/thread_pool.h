// SPDX-License-Identifier: Apache-2.0

// A fixed number of threads that run tasks in the order they were given.

#ifndef FLEET_BASE_THREAD_POOL_H_
#define FLEET_BASE_THREAD_POOL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "fleet/base/future.h"
#include "fleet/base/queue.h"

namespace fleet::base {

struct ThreadPoolOptions {
  int num_threads = 1;
  // Tasks that may wait. Beyond that Submit waits, so that a producer that is
  // too fast is slowed down and memory stays bounded.
  size_t max_waiting = 1024;
  // Shown by debuggers and top; the first 15 bytes count.
  std::string name = "fleet";
};

// Thread-safe. Tasks do not throw. A task must not Submit to its own pool and
// wait for it: with every thread waiting, nobody is left to run.
class ThreadPool final {
 public:
  explicit ThreadPool(ThreadPoolOptions options);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs what was submitted, then joins the threads.
  ~ThreadPool();

  // Runs `task()` on a thread of the pool. The future carries what it returns:
  // a T gives Future<T>, a Result<T> gives Future<T>, void and Status give
  // Future<>. Waits for room until `deadline`; a task that was not taken
  // answers through the future, with DeadlineExceeded or what Abort was given.
  template <typename Task>
  auto Submit(Task task, Deadline deadline = Deadline::Infinite());

  // Calls body(i) for 0 <= i < count on the pool's threads and on the calling
  // one, and returns when all are done. May be called from a task.
  void ParallelFor(size_t count, const std::function<void(size_t)>& body);

  // Tasks that have not begun are dropped, their futures say `why`, and so do
  // those of later ones. Running tasks finish.
  void Abort(Status why);

  int num_threads() const { return static_cast<int>(threads_.size()); }

 private:
  // A function object that is moved, never copied, and may hold a Promise.
  class Work {
   public:
    virtual ~Work() = default;
    virtual void Run() = 0;
    // It will not run.
    virtual void Refuse(Status why) = 0;
  };
  template <typename T, typename Task>
  class TypedWork;

  // Puts `work` in the queue, or refuses it.
  void Enqueue(std::unique_ptr<Work> work, Deadline deadline);
  void RunTasks();

  BoundedQueue<std::unique_ptr<Work>> queue_;
  std::vector<std::thread> threads_;
};

// The T of Future<T> for a task that returns Returned.
template <typename Returned>
struct TaskOutcome {
  using Type = Returned;
};
template <>
struct TaskOutcome<Status> {
  using Type = void;
};
template <typename T>
struct TaskOutcome<Result<T>> {
  using Type = T;
};

template <typename T, typename Task>
class ThreadPool::TypedWork final : public ThreadPool::Work {
 public:
  explicit TypedWork(Task task) : task_(std::move(task)) {}
  Future<T> future() { return promise_.future(); }

  void Run() override {
    if constexpr (std::is_void_v<std::invoke_result_t<Task&>>) {
      task_();
      promise_.Set(OkStatus());
    } else {
      promise_.Set(task_());
    }
  }
  void Refuse(Status why) override { promise_.Set(std::move(why)); }

 private:
  Task task_;
  Promise<T> promise_;
};

template <typename Task>
auto ThreadPool::Submit(Task task, Deadline deadline) {
  using T = typename TaskOutcome<std::invoke_result_t<Task&>>::Type;
  auto work = std::make_unique<TypedWork<T, Task>>(std::move(task));
  Future<T> future = work->future();
  Enqueue(std::move(work), deadline);
  return future;
}

}  // namespace fleet::base

#endif  // FLEET_BASE_THREAD_POOL_H_
