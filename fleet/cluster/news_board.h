// SPDX-License-Identifier: Apache-2.0

// News of a job inside one process: all that came, told to every subscriber in
// order, on a thread of its own, so that a slow listener keeps nobody from
// receiving or beating.

#ifndef FLEET_CLUSTER_NEWS_BOARD_H_
#define FLEET_CLUSTER_NEWS_BOARD_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "fleet/base/mutex.h"
#include "fleet/cluster/membership.h"

namespace fleet::cluster {

// Thread-safe.
class NewsBoard final {
 public:
  NewsBoard();
  NewsBoard(const NewsBoard&) = delete;
  NewsBoard& operator=(const NewsBoard&) = delete;
  // What was not told yet is dropped.
  ~NewsBoard();

  void Publish(News news);
  // As Membership's. A listener may unsubscribe itself.
  int Subscribe(std::function<void(const News&)> listener);
  void Unsubscribe(int subscription);

 private:
  struct Subscriber {
    std::shared_ptr<const std::function<void(const News&)>> listener;
    size_t num_told = 0;
  };

  void Tell();
  // A subscriber who has not heard all.
  std::map<int, Subscriber>::iterator BehindLocked() REQUIRES(mutex_);

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<News> news_ GUARDED_BY(mutex_);  // never shrinks: places stay
  std::map<int, Subscriber> subscribers_ GUARDED_BY(mutex_);
  int next_subscription_ GUARDED_BY(mutex_) = 1;
  int told_now_ GUARDED_BY(mutex_) = 0;  // the subscription that is in a call
  bool over_ GUARDED_BY(mutex_) = false;
  std::jthread teller_;
};

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_NEWS_BOARD_H_
