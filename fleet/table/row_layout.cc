// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/row_layout.h"

#include <string_view>

#include "fleet/base/status.h"

namespace fleet::table {

RowLayout::RowLayout(const SparseTableOptions& options)
    : dim(options.dim),
      num_state(optim::StateNames(options.update.rule).size()),
      num_powers(options.count_missed_steps
                     ? 0
                     : optim::PowerNames(options.update.rule).size()) {
  text = base::Concat("values ", dim);
  for (std::string_view name : optim::StateNames(options.update.rule)) {
    text += base::Concat(", ", name, " ", dim);
  }
  size_t end = dim * (1 + num_state);
  auto add = [&](bool wanted, std::string_view name, size_t* offset) {
    if (!wanted) return;
    *offset = end++;
    text += base::Concat(", ", name, " 1");
  };
  for (size_t i = 0; i < num_powers; ++i) {
    size_t offset = kAbsent;
    add(true, optim::PowerNames(options.update.rule)[i], &offset);
    if (i == 0) powers = offset;
  }
  const bool shows = options.show_click.has_value();
  add(options.count_missed_steps, "done_steps", &done_steps);
  add(options.count_unseen_days || shows, "unseen_days", &unseen_days);
  add(options.time_to_live.count() > 0, "last_seen", &last_seen);
  add(shows, "extended", &extended);
  add(shows, "show", &show);
  add(shows, "click", &click);
  add(shows, "delta_score", &delta_score);
  stride = end;
}

}  // namespace fleet::table
