// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/options.h"

#include <algorithm>

namespace fleet::table {
namespace {

Status CheckEntry(const EntryRule& entry) {
  const auto* by_probability = std::get_if<AdmitByProbability>(&entry);
  if (by_probability == nullptr) return OkStatus();
  const double p = by_probability->probability;
  if (p > 0.0 && p < 1.0) return OkStatus();
  return InvalidArgument("entry by probability ", p,
                         ", which is not in (0, 1)");
}

Status CheckUnnamed(const SparseTableOptions& options) {
  if (options.dim == 0) return InvalidArgument("rows of 0 values");
  if (options.num_shards > kMaxShards) {
    return InvalidArgument(options.num_shards, " shards, and a table has ",
                           kMaxShards, " at most");
  }
  RETURN_IF_ERROR(CheckInitializer(options.initializer));
  RETURN_IF_ERROR(CheckOptions(options.update));
  RETURN_IF_ERROR(CheckEntry(options.entry));
  if (options.time_to_live.count() < 0) {
    return InvalidArgument("a time to live of ", options.time_to_live.count(),
                           " s, which is not above 0");
  }
  if (options.disk.has_value() && options.max_byte_size > 0) {
    return InvalidArgument("a table on disk has no limit of its size");
  }
  if (options.count_missed_steps && options.show_click.has_value()) {
    return InvalidArgument(
        "rows with shows and clicks do not make up for missed steps");
  }
  if (options.num_geo_workers < 0) {
    return InvalidArgument(options.num_geo_workers, " geo workers");
  }
  return OkStatus();
}

}  // namespace

std::chrono::seconds ExpiryPeriod(std::chrono::seconds time_to_live) {
  return std::max(std::chrono::seconds(1), time_to_live / 4);
}

uint32_t ShardsOnCores(int num_cores) {
  if (num_cores <= 2) return 1;
  return std::min(static_cast<uint32_t>(num_cores), kMaxShards);
}

Status CheckOptions(const UpdateOptions& options) {
  return CheckLearningRate(options.learning_rate);
}

Status CheckOptions(const SparseTableOptions& options) {
  return CheckUnnamed(options).WithContext("table " + options.name);
}

}  // namespace fleet::table
