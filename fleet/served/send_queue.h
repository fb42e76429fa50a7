// SPDX-License-Identifier: Apache-2.0

// Gradients of one table, or of the dense parameters of one program, that wait
// for the servers.

#ifndef FLEET_SERVED_SEND_QUEUE_H_
#define FLEET_SERVED_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"

namespace fleet::served {

// Batches, each the sum of the gradients of up to `max_merge` steps. A Batch
// has Clear(). Memory is kept for the next use. Its user locks.
template <typename Batch>
class SendQueue final {
 public:
  using TimePoint = base::Deadline::TimePoint;

  struct Waiting {
    Batch batch;
    uint32_t num_steps = 0;
  };

  // Gradients of so many steps wait; those under way are not counted.
  uint64_t num_waiting() const { return num_waiting_; }
  bool idle() const { return waiting_.empty() && !under_way_; }
  // Whether Take gives something.
  bool ready() const { return !waiting_.empty() && !under_way_; }

  // Until when it rests after a send, so that more gets merged.
  TimePoint rests_until() const { return rests_until_; }
  void set_rests_until(TimePoint when) { rests_until_ = when; }

  // Where to add the gradients of one more step.
  Batch& Add(uint32_t max_merge) {
    if (waiting_.empty() || waiting_.back()->num_steps >= max_merge) {
      if (free_.empty()) free_.push_back(std::make_unique<Waiting>());
      waiting_.push_back(std::move(free_.back()));
      free_.pop_back();
      waiting_.back()->batch.Clear();
      waiting_.back()->num_steps = 0;
    }
    ++waiting_.back()->num_steps;
    ++num_waiting_;
    return waiting_.back()->batch;
  }

  // The oldest, to be sent; null when there is none or one is under way, so
  // that they arrive in order.
  std::unique_ptr<Waiting> Take() {
    if (!ready()) return nullptr;
    std::unique_ptr<Waiting> oldest = std::move(waiting_.front());
    waiting_.pop_front();
    num_waiting_ -= oldest->num_steps;
    under_way_ = true;
    return oldest;
  }
  void Sent(std::unique_ptr<Waiting> batch) {
    free_.push_back(std::move(batch));
    under_way_ = false;
  }

 private:
  std::deque<std::unique_ptr<Waiting>> waiting_;
  std::vector<std::unique_ptr<Waiting>> free_;
  uint64_t num_waiting_ = 0;
  bool under_way_ = false;
  TimePoint rests_until_{};
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_SEND_QUEUE_H_
