// SPDX-License-Identifier: Apache-2.0

// Programs of a job with servers: parameters become tables on the servers, and
// a worker's program asks for rows, gives gradients away and takes values back.
//
//   ASSIGN_OR_RETURN(ParameterServerPlan plan,
//                    ServeParameters(main, startup, strategy, role));
//   worker.Serve(plan.tables);
//   executor.Run(startup, ...);
//   executor.Run(main, ...);
//
// What a step of the rewritten program does, and who runs these operations, is
// in README.md and sync/ps_ops.h. All functions are pure: the same programs
// and strategy give the same tables and programs on every worker and server.

#ifndef FLEET_PLAN_PARAMETER_SERVER_H_
#define FLEET_PLAN_PARAMETER_SERVER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/cluster/role.h"
#include "fleet/program/program.h"
#include "fleet/table/options.h"
#include "fleet/table/table_spec.h"

namespace fleet::plan {

// When gradients leave a worker and values come back. docs/modes.md has a
// picture of each.
enum class PsMode {
  kSync,       // all workers end a step together: one process, a joined batch
  kHalfAsync,  // each worker waits for its own step only
  kAsync,      // gradients and values travel while the next step runs
  kGeo,        // workers train by themselves and exchange changes now and then
};

// "sync", "half_async", "async", "geo".
std::string_view ToString(PsMode mode);
// InvalidArgument for any other name.
Result<PsMode> ParsePsMode(std::string_view name);

// What a program does not say of a sparse table.
struct SparseExtras {
  std::optional<table::EntryRule> entry;  // else that of the look-up
  std::optional<table::ShowClickOptions> show_click;
  bool count_unseen_days = false;  // Shrink by days needs it
  std::chrono::seconds time_to_live{0};
  uint64_t max_byte_size = 0;  // of each server's part; not with `disk`
  std::optional<table::DiskOptions> disk;
  uint32_t num_shards = 0;  // zero: by the cores of each server
};

struct ServedTable {
  table::TableSpec spec;
  std::string parameter;
  std::string gradient;        // the variable that is sent; sparse: W@GRAD
  std::vector<int64_t> shape;  // of the parameter
  bool sparse = false;
  // Sparse: ids lie in [0, shape[0]). Otherwise they are any 64 bits.
  bool bounded = false;
};

struct ParameterServerStrategy {
  PsMode mode = PsMode::kAsync;
  // The seed of random rows whose initializer has none of its own. Equal on all
  // workers.
  uint64_t seed = 0;
  // Tables of earlier calls in this job: a parameter that is among them keeps
  // its table, and new ones get other ids.
  std::vector<ServedTable> served;
  // New tables are numbered from here, or behind `served`.
  uint32_t first_table_id = 0;
  // Rates that a scheduler object sets from outside the program, by the name of
  // the learning-rate variable.
  std::map<std::string, table::LearningRate> schedules;
  // By parameter; "" is for all that are not named.
  std::map<std::string, SparseExtras> extras;
  // Gradients with NaN or infinity in them are not applied.
  bool drop_nonfinite = false;
};

struct ParameterServerPlan {
  std::vector<ServedTable> tables;  // by id; those of `served` not repeated
  std::vector<std::string> passes;  // those that changed something, in order
};

// `main` has its backward and its updates. Both programs are rewritten in
// place; after an error they are as they were. The same for every process of
// the job, servers too.
//
// FailedPrecondition: no servers in the job, or nothing in `main` to serve.
// Unimplemented: something that servers cannot do (a clip by norm over sparse
// gradients, a schedule without a form of table/learning_rate.h); names the
// parameter and says what to do instead. InvalidArgument: an entry rule or
// extras that make no sense.
Result<ParameterServerPlan> ServeParameters(
    program::Program& main, program::Program& startup,
    const ParameterServerStrategy& strategy, const cluster::Role& role);

// A program without updates, such as a clone that was made before minimize:
// look-ups of served sparse parameters become operations that ask servers.
// With `is_test`, new ids get no rows. Returns how many it rewrote.
Result<size_t> ServeLookups(program::Program& program,
                            const std::vector<ServedTable>& tables,
                            bool is_test);

// The inverse, for programs that are saved: look-ups read their parameter
// again.
Status RestoreLookups(program::Program& program,
                      const std::vector<ServedTable>& tables);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_PARAMETER_SERVER_H_
