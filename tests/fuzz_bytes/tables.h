// SPDX-License-Identifier: Apache-2.0

// The tables of servers in this folder: plain rows, a dense one, rows that are
// counted, aged and shown, rows of geo training.

#ifndef FLEET_TESTS_FUZZ_BYTES_TABLES_H_
#define FLEET_TESTS_FUZZ_BYTES_TABLES_H_

#include <chrono>
#include <vector>

#include "fleet/ps/table_spec.h"

namespace fleet::fuzz {

using ps::TableId;

inline std::vector<ps::TableSpec> Specs() {
  table::SparseTableOptions rows;
  rows.name = "emb";
  rows.dim = 2;
  rows.num_shards = 2;
  rows.update.rule = optim::Adagrad{};
  table::SparseTableOptions counted = rows;
  counted.name = "counted";
  counted.entry = table::AdmitByCount{2};
  counted.count_unseen_days = true;
  counted.time_to_live = std::chrono::seconds(100);
  counted.show_click.emplace();
  table::SparseTableOptions geo = rows;
  geo.name = "geo";
  geo.num_geo_workers = 2;
  ps::DenseSpec dense;
  dense.name = "fc.w";
  dense.size = 10;
  dense.update.rule = optim::Adam{};
  return {{TableId{0}, rows},
          {TableId{1}, dense},
          {TableId{2}, counted},
          {TableId{3}, geo}};
}

}  // namespace fleet::fuzz

#endif  // FLEET_TESTS_FUZZ_BYTES_TABLES_H_
