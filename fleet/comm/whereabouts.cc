// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/whereabouts.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"

namespace fleet::comm {
namespace {

// The store answers in well under a millisecond, or it is gone.
base::Deadline Quick() {
  return base::Deadline::After(std::chrono::seconds(1));
}

}  // namespace

Whereabouts::Whereabouts(cluster::Store& store, std::string prefix, int rank,
                         int size)
    : store_(store), prefix_(std::move(prefix)), rank_(rank), size_(size) {}

void Whereabouts::Say(uint64_t number) {
  if (said_ >= number) return;
  said_ = number;
  (void)store_
      .Set(base::Concat(prefix_, "/at/", rank_), std::to_string(number),
           Quick())
      .ok();
}

std::vector<int> Whereabouts::Late(uint64_t number) {
  std::vector<int> late;
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    const Result<std::string> at =
        store_.Get(base::Concat(prefix_, "/at/", i), Quick());
    if (at.ok() ? std::strtoull(at->c_str(), nullptr, 10) < number
                : at.status().code() == StatusCode::kNotFound) {
      late.push_back(i);
    }
  }
  return late;
}

}  // namespace fleet::comm
