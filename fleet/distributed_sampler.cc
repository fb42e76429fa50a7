// SPDX-License-Identifier: Apache-2.0
#include "fleet/distributed_sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/tensor.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

namespace fleet {
namespace {

// A generator of our own: standard libraries shuffle differently, and all ranks
// must agree.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // Below `limit`, which is small against 2^64.
  uint64_t Below(uint64_t limit) {
    state_ += 0x9E3779B97F4A7C15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (z ^ (z >> 31)) % limit;
  }

 private:
  uint64_t state_;
};

}  // namespace

DistributedSampler::DistributedSampler(const Job& job, size_t dataset_size,
                                       SamplerOptions options)
    : DistributedSampler(job.rank(), job.size(), dataset_size, options) {}

DistributedSampler::DistributedSampler(int rank, int num_ranks,
                                       size_t dataset_size,
                                       SamplerOptions options)
    : rank_(rank),
      num_ranks_(num_ranks),
      dataset_size_(dataset_size),
      options_(options) {
  next_epoch_ = 0;
  Fill();
}

size_t DistributedSampler::size() const {
  const auto ranks = static_cast<size_t>(num_ranks_);
  return options_.drop_last ? dataset_size_ / ranks
                            : (dataset_size_ + ranks - 1) / ranks;
}

void DistributedSampler::set_epoch(uint64_t epoch) { next_epoch_ = epoch; }

void DistributedSampler::Fill() {
  std::vector<size_t> all(dataset_size_);
  std::iota(all.begin(), all.end(), size_t{0});
  if (options_.shuffle) {
    Random random(options_.seed * 0x2545F4914F6CDD1Dull + epoch_);
    for (size_t i = all.size(); i > 1; --i) {
      std::swap(all[i - 1], all[random.Below(i)]);
    }
  }
  indices_.clear();
  for (size_t i = 0; i < size(); ++i) {
    // Past the end it begins again from the front.
    const size_t at = i * num_ranks_ + rank_;
    indices_.push_back(all[at % all.size()]);
  }
  position_ = 0;
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  if (new_size.has_value()) dataset_size_ = *new_size;
  epoch_ = next_epoch_.value_or(epoch_ + 1);
  next_epoch_.reset();
  Fill();
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  if (position_ == indices_.size()) return std::nullopt;
  const size_t end = std::min(indices_.size(), position_ + batch_size);
  std::vector<size_t> batch(indices_.begin() + position_,
                            indices_.begin() + end);
  position_ = end;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", at::tensor(static_cast<int64_t>(epoch_)), true);
  archive.write("position", at::tensor(static_cast<int64_t>(position_)), true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor epoch = at::tensor(int64_t{0}), position = at::tensor(int64_t{0});
  archive.read("epoch", epoch, true);
  archive.read("position", position, true);
  epoch_ = static_cast<uint64_t>(epoch.item<int64_t>());
  next_epoch_.reset();
  Fill();
  position_ =
      std::min(indices_.size(), static_cast<size_t>(position.item<int64_t>()));
}

}  // namespace fleet
