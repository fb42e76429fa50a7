// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fleet/data/dataset.h"
#include "fleet/data/pipe_command.h"

namespace fleet::data {

Result<DatasetPlan> PlanDataset(DatasetOptions options) {
  RETURN_IF_ERROR(CheckSlots(options.slots));
  if (options.num_threads < 1) {
    return InvalidArgument(
        "dataset: the number of threads must be at least 1, "
        "but is ",
        options.num_threads);
  }
  DatasetPlan plan;
  ASSIGN_OR_RETURN(plan.read.command, SplitCommand(options.pipe_command));
  if (plan.read.command == std::vector<std::string>{"cat"}) {
    plan.read.command.clear();
  }
  plan.read.skip_bad_lines = options.skip_bad_lines;
  plan.read.max_line_bytes = options.max_line_bytes;
  plan.parser =
      std::make_shared<MultiSlotParser>(options.slots, options.num_texts);
  plan.options = std::move(options);
  return plan;
}

std::string FewerThanABatch(uint64_t num_samples, size_t batch_size) {
  return base::Concat("its ", num_samples, " samples do not fill a batch of ",
                      batch_size, ", and what does not is dropped");
}

}  // namespace fleet::data
