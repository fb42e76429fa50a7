// SPDX-License-Identifier: Apache-2.0

// What a table is, before it holds anything.

#ifndef FLEET_TABLE_OPTIONS_H_
#define FLEET_TABLE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "fleet/base/status.h"
#include "fleet/optim/update.h"
#include "fleet/optim/update_rule.h"
#include "fleet/table/initializer.h"
#include "fleet/table/learning_rate.h"

namespace fleet::table {

// How a pushed gradient changes what the table holds. Sparse and dense.
struct UpdateOptions {
  optim::UpdateRule rule;
  optim::Decay decay;
  // Clipping by value; clipping by norm happens where all gradients are.
  optim::Transform transform;
  LearningRate learning_rate;
  // A gradient with NaN or infinity in it is counted, and with this on it is
  // not applied.
  bool drop_nonfinite = false;
};

// Every key gets a row at once.
struct AdmitAll {};

// A key gets a row when training has pulled it this many times. Before that its
// row reads as zeros, is not updated and not saved, and costs 12 bytes.
struct AdmitByCount {
  uint32_t count = 0;
};

// Each time that training pulls a key without a row, it gets one with this
// probability, in (0, 1). Whether follows from seed, key and how often it was
// pulled.
struct AdmitByProbability {
  double probability = 0.5;
};

using EntryRule = std::variant<AdmitAll, AdmitByCount, AdmitByProbability>;

// Rows that know how often their key was shown and clicked (Paddle's
// CtrCommonAccessor, with its defaults). The score of a row is
//   (show - click) * nonclick_coefficient + click * click_coefficient.
struct ShowClickOptions {
  double nonclick_coefficient = 0.1;
  double click_coefficient = 1.0;

  // Columns from this one on are zero, are not updated and get no initial
  // values before the score has reached extend_threshold.
  size_t extended_from = 1;
  double extend_threshold = 10.0;

  // What Shrink does: shows and clicks fade by this factor, then rows go whose
  // score is below the threshold or that were unseen for more days.
  double fade = 0.98;
  double delete_threshold = 0.8;
  uint32_t delete_after_unseen_days = 30;

  // Which rows a base or delta save takes, where the whole table is not asked
  // for.
  double base_threshold = 1.5;
  double delta_threshold = 0.25;
  uint32_t delta_keep_days = 16;
};

// Rows beyond a limit of memory go to disk.
struct DiskOptions {
  // A folder of this table's own; what is in it is removed.
  std::string folder;
  // Rows and index in memory; the others are on disk. At least one batch of
  // rows stays in memory whatever this says.
  uint64_t memory_byte_size = uint64_t{1} << 30;
};

inline constexpr uint32_t kMaxShards = 256;

// One for each core. On two cores one: workers and servers take turns on them,
// and splitting requests costs more than waiting for each other.
uint32_t ShardsOnCores(int num_cores);

struct SparseTableOptions {
  std::string name;
  size_t dim = 0;  // values of a row

  Initializer initializer;
  uint64_t seed = 0;

  UpdateOptions update;
  // A row that a step does not name is left alone, and where the rule has
  // powers (Adam) each row counts its own steps. With this on, all rows have
  // the powers of the table's step, and what one process without servers does
  // to rows that a step does not name is made up for when such a row is next
  // touched: its gradient is zero, or, where a rule updates given rows only
  // (lazy Adam), nothing is done. For tables whose EndStep is called once a
  // step.
  bool count_missed_steps = false;

  EntryRule entry;
  // Rows know for how many days (calls of Shrink) nobody asked for them.
  bool count_unseen_days = false;
  // Rows that training did not touch for so long, while it went on, are erased
  // (SparseTable::Expire). Zero: they stay.
  std::chrono::seconds time_to_live{0};
  std::optional<ShowClickOptions> show_click;

  // Shards with a lock each: how many threads can be inside at a time. A
  // request is split by shard, which costs time of its own. Zero: as many as
  // the process that makes the table has cores for (ShardsOnCores).
  uint32_t num_shards = 0;

  // Beyond this, new rows are refused with Unavailable. Zero: no limit. Not
  // with `disk`.
  uint64_t max_byte_size = 0;
  std::optional<DiskOptions> disk;

  // Geo training: for how many workers changes by others are remembered.
  int num_geo_workers = 0;
};

// How often rows with such a time to live are looked at: a quarter of it, and
// not less than a second.
std::chrono::seconds ExpiryPeriod(std::chrono::seconds time_to_live);

// InvalidArgument names the table and what is wrong.
Status CheckOptions(const UpdateOptions& options);
Status CheckOptions(const SparseTableOptions& options);

}  // namespace fleet::table

#endif  // FLEET_TABLE_OPTIONS_H_
