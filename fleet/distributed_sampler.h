// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_DISTRIBUTED_SAMPLER_H_
#define FLEET_DISTRIBUTED_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

#include "fleet/job.h"

namespace fleet {

struct SamplerOptions {
  bool shuffle = true;
  // Examples that do not fill all ranks evenly are left out. Otherwise some are
  // given twice, so that all ranks have the same number.
  bool drop_last = false;
  uint64_t seed = 0;
};

// Which examples of a dataset this rank sees in an epoch, for torch::data:
//
//   fleet::DistributedSampler sampler(*job, dataset.size().value());
//   auto loader = torch::data::make_data_loader(dataset, sampler, 64);
//
// Ranks see different examples, in an order that follows from the seed and the
// epoch alone. The epoch begins at 0 and goes on with every reset, which a
// loader calls before each epoch; set_epoch sets that of the next reset.
class DistributedSampler final : public torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(const Job& job, size_t dataset_size,
                     SamplerOptions options = {});
  DistributedSampler(int rank, int num_ranks, size_t dataset_size,
                     SamplerOptions options);

  // Examples of this rank in an epoch.
  size_t size() const;
  void set_epoch(uint64_t epoch);

  void reset(std::optional<size_t> new_size = std::nullopt) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  // The epoch and the position in it.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void Fill();

  int rank_;
  int num_ranks_;
  size_t dataset_size_;
  SamplerOptions options_;
  uint64_t epoch_ = 0;
  std::optional<uint64_t> next_epoch_;  // of the next reset
  std::vector<size_t> indices_;         // of this rank
  size_t position_ = 0;
};

}  // namespace fleet

#endif  // FLEET_DISTRIBUTED_SAMPLER_H_
