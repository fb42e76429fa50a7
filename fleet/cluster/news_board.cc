// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/news_board.h"

#include <utility>

namespace fleet::cluster {
namespace {

using base::Deadline;
using base::MutexLock;

}  // namespace

NewsBoard::NewsBoard() : teller_([this] { Tell(); }) {}

NewsBoard::~NewsBoard() {
  {
    MutexLock lock(mutex_);
    over_ = true;
    changed_.NotifyAll();
  }
  teller_.join();
}

void NewsBoard::Publish(News news) {
  MutexLock lock(mutex_);
  news_.push_back(std::move(news));
  changed_.NotifyAll();
}

int NewsBoard::Subscribe(std::function<void(const News&)> listener) {
  MutexLock lock(mutex_);
  const int subscription = next_subscription_++;
  subscribers_[subscription].listener =
      std::make_shared<const std::function<void(const News&)>>(
          std::move(listener));
  changed_.NotifyAll();
  return subscription;
}

void NewsBoard::Unsubscribe(int subscription) {
  MutexLock lock(mutex_);
  subscribers_.erase(subscription);
  if (std::this_thread::get_id() == teller_.get_id()) return;
  while (told_now_ == subscription) {
    changed_.WaitUntil(mutex_, Deadline::Infinite());
  }
}

std::map<int, NewsBoard::Subscriber>::iterator NewsBoard::BehindLocked() {
  auto at = subscribers_.begin();
  while (at != subscribers_.end() && at->second.num_told == news_.size()) ++at;
  return at;
}

void NewsBoard::Tell() {
  mutex_.Lock();
  while (!over_) {
    const auto at = BehindLocked();
    if (at == subscribers_.end()) {
      changed_.WaitUntil(mutex_, Deadline::Infinite());
      continue;
    }
    const News& news = news_[at->second.num_told++];
    const auto listener = at->second.listener;
    told_now_ = at->first;
    mutex_.Unlock();
    (*listener)(news);
    mutex_.Lock();
    told_now_ = 0;
    changed_.NotifyAll();
  }
  mutex_.Unlock();
}

}  // namespace fleet::cluster
