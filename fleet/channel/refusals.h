// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_CHANNEL_REFUSALS_H_
#define FLEET_CHANNEL_REFUSALS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "fleet/base/deadline.h"

namespace fleet::channel {

// What a listener writes to the log about peers that it refuses. A port that
// is scanned must not fill a disk: of each interval the first few are told, and
// the rest is counted. Not thread-safe.
class Refusals final {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr int kTold = 5;
  static constexpr std::chrono::seconds kInterval{60};

  // The line for a refusal at `now`, if it gets one.
  std::optional<std::string> Line(const std::string& refusal, TimePoint now);

  // The line that counts those that got none, once their interval is over.
  std::optional<std::string> Summary(TimePoint now);
  // When there is one.
  base::Deadline summary_due() const;

 private:
  TimePoint begin_;
  uint64_t count_ = 0;  // in the interval that began then
  std::string last_;
};

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_REFUSALS_H_
