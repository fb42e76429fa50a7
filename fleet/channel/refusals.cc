// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/refusals.h"

#include "fleet/base/status.h"

namespace fleet::channel {

std::optional<std::string> Refusals::Line(const std::string& refusal,
                                          TimePoint now) {
  if (count_ == 0) begin_ = now;
  ++count_;
  last_ = refusal;
  if (count_ < kTold) return refusal;
  if (count_ > kTold) return std::nullopt;
  return base::Concat(refusal, " (more of the next ", kInterval.count(),
                      " s are only counted)");
}

std::optional<std::string> Refusals::Summary(TimePoint now) {
  if (count_ == 0 || now - begin_ < kInterval) return std::nullopt;
  const uint64_t untold = count_ > kTold ? count_ - kTold : 0;
  count_ = 0;
  if (untold == 0) return std::nullopt;
  return base::Concat(last_, " (and ", untold - 1, " more in ",
                      kInterval.count(), " s)");
}

base::Deadline Refusals::summary_due() const {
  return count_ > kTold ? base::Deadline::At(begin_ + kInterval)
                        : base::Deadline::Infinite();
}

}  // namespace fleet::channel
