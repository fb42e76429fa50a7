// SPDX-License-Identifier: Apache-2.0

// What a server knows of each worker's updates, so that after a restart both
// sides can tell which are there. A save carries it; docs/wire.md has its
// bytes.

#ifndef FLEET_PS_LEDGER_H_
#define FLEET_PS_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/ps/wire.h"

namespace fleet::ps {

// Updates by table.
using UpdateCounts = std::map<TableId, uint64_t>;

// One lane of a worker: requests on it are done in their order.
struct LaneRecord {
  uint32_t lane = 0;
  uint64_t last_sequence = 0;  // all up to it are done
  UpdateCounts applied;
  friend bool operator==(const LaneRecord&, const LaneRecord&) = default;
};

struct WorkerRecord {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  std::vector<LaneRecord> lanes;
  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;
};

struct Ledger {
  std::vector<WorkerRecord> workers;
  friend bool operator==(const Ledger&, const Ledger&) = default;
};

std::string Encode(const Ledger& ledger);
Result<Ledger> DecodeLedger(std::string_view bytes);

// What a server had of a worker when that said good-bye: nobody asks for it
// any more, should the server be started again and lack some of it.
struct Goodbye {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  struct Updates {
    std::string table;
    uint64_t count = 0;
  };
  std::map<TableId, Updates> updates;
};
std::string Encode(const std::vector<Goodbye>& goodbyes);
Result<std::vector<Goodbye>> DecodeGoodbyes(std::string_view bytes);

// What a server answers to a hello.
struct HelloAnswer {
  uint64_t epoch = 0;        // of the server
  uint64_t incarnation = 0;  // of the worker
  // An earlier incarnation of the worker took part in the job.
  bool is_back = false;
  std::vector<LaneRecord> lanes;  // what the server has of this incarnation
  // What the server lost of workers that had said good-bye: "12 updates of emb
  // of worker 1". Empty: nothing.
  std::string lost_of_gone;
};

std::string Encode(const HelloAnswer& answer);
Result<HelloAnswer> DecodeHelloAnswer(std::string_view bytes);

}  // namespace fleet::ps

#endif  // FLEET_PS_LEDGER_H_
