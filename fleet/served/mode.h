// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SERVED_MODE_H_
#define FLEET_SERVED_MODE_H_

#include <span>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/served/rows.h"
#include "fleet/served/synchronizer.h"

namespace fleet::served {

// What all modes have: the client, the options, the tables, memory for rows;
// and the calls that most of them answer alike.
class Mode : public Synchronizer {
 public:
  Mode(ps::PsClient& client, const SynchronizerOptions& options)
      : client_(client), options_(options) {}

  Status AddTables(std::vector<ServedTable> tables) final;
  Status Initialize(std::span<const DenseValues> values) override;
  // Rows straight from the servers.
  Status Fetch(TableId table, std::span<const RowsOfIds> lookups,
               const LookupOptions& options) override;
  Status PullDense(std::span<const DenseValues> values) final;
  const SynchronizerOptions& options() const final { return options_; }
  const ServedTable* table(TableId id) const final { return tables_.Find(id); }

 protected:
  // The deadline of a call that begins now.
  Deadline deadline() const { return Deadline::After(options_.timeout); }

  ps::PsClient& client_;
  const SynchronizerOptions options_;
  ServedTables tables_;
  BatchPool pool_;
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_MODE_H_
