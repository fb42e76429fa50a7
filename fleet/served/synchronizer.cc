// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/synchronizer.h"

#include <utility>

#include "fleet/served/async.h"
#include "fleet/served/geo.h"
#include "fleet/served/stepwise.h"

namespace fleet::served {

Result<std::unique_ptr<Synchronizer>> Synchronizer::Make(
    ps::PsClient& client, std::vector<ServedTable> tables,
    const SynchronizerOptions& options) {
  if (options.geo_steps == 0 || options.max_merge == 0 ||
      options.queue_size == 0 || options.num_workers < 1) {
    return InvalidArgument("geo_steps ", options.geo_steps, ", max_merge ",
                           options.max_merge, ", queue_size ",
                           options.queue_size, ", num_workers ",
                           options.num_workers, ": all must be positive");
  }
  std::unique_ptr<Synchronizer> made;
  switch (options.mode) {
    case PsMode::kSync:
    case PsMode::kHalfAsync:
      made = std::make_unique<StepwiseSync>(client, options);
      break;
    case PsMode::kAsync:
      made = std::make_unique<AsyncSync>(client, options);
      break;
    case PsMode::kGeo:
      made = std::make_unique<GeoSync>(client, options);
      break;
  }
  RETURN_IF_ERROR(made->AddTables(std::move(tables)));
  return made;
}

}  // namespace fleet::served
