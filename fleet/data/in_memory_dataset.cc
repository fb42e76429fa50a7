// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/data/dataset.h"
#include "fleet/data/global_shuffle.h"
#include "fleet/data/shuffle.h"

namespace fleet::data {
namespace {

// Batches of samples that are there.
class MemoryPass final : public BatchSource {
 public:
  MemoryPass(std::shared_ptr<const Samples> samples,
             std::shared_ptr<const MultiSlotParser> parser,
             const PassOptions& options)
      : samples_(std::move(samples)),
        parser_(std::move(parser)),
        batch_size_(options.batch_size) {
    FLEET_CHECK(batch_size_ > 0);
    const size_t count = samples_->order.size();
    num_batches_ = count / batch_size_;
    if (!options.drop_last && count % batch_size_ != 0) ++num_batches_;
  }

  Result<bool> Next(Batch& batch, Deadline) override {
    RETURN_IF_ERROR(stop_.status());
    const size_t index = next_.fetch_add(1);
    if (index >= num_batches_) return false;
    const std::vector<SampleView>& order = samples_->order;
    const size_t begin = index * batch_size_;
    const size_t size = std::min(batch_size_, order.size() - begin);
    batch.Fill(slots(), std::span(order).subspan(begin, size));
    batch.number = index + 1;
    const uint32_t file = order[begin].file();
    batch.file = file < samples_->files.size() ? samples_->files[file]
                                               : "another worker's file";
    return true;
  }
  void Abort(Status why) override { stop_.Raise(std::move(why)); }
  const std::vector<Slot>& slots() const override { return parser_->slots(); }
  std::string WhyEmpty() const override {
    const size_t count = samples_->order.size();
    if (count > 0) return FewerThanABatch(count, batch_size_);
    return base::Concat("it has no samples in memory: ",
                        samples_->files.empty()
                            ? "it was loaded from no files"
                            : "its files hold none, or other workers have all");
  }

 private:
  const std::shared_ptr<const Samples> samples_;
  const std::shared_ptr<const MultiSlotParser> parser_;
  const size_t batch_size_;
  size_t num_batches_ = 0;
  std::atomic<size_t> next_ = 0;
  StopSignal stop_;
};

std::shared_ptr<Samples> InOrder(Blocks blocks,
                                 std::vector<std::string> files) {
  auto samples = std::make_shared<Samples>();
  samples->files = std::move(files);
  samples->blocks = std::move(blocks);
  size_t count = 0;
  for (const auto& block : samples->blocks) count += block->num_samples();
  samples->order.reserve(count);
  for (const auto& block : samples->blocks) {
    for (size_t i = 0; i < block->num_samples(); ++i) {
      samples->order.push_back(block->sample(i));
    }
  }
  return samples;
}

}  // namespace

// A load under way.
struct InMemoryDataset::Loading {
  std::vector<std::string> files;
  std::vector<Blocks> blocks;  // by file; one thread fills each
  std::unique_ptr<FileReaders> readers;
};

InMemoryDataset::InMemoryDataset(DatasetPlan plan)
    : plan_(std::move(plan)), samples_(std::make_shared<Samples>()) {}

Result<std::unique_ptr<InMemoryDataset>> InMemoryDataset::Make(
    DatasetOptions options) {
  ASSIGN_OR_RETURN(DatasetPlan plan, PlanDataset(std::move(options)));
  return std::unique_ptr<InMemoryDataset>(new InMemoryDataset(std::move(plan)));
}

void InMemoryDataset::SetFiles(std::vector<std::string> files) {
  base::MutexLock lock(mutex_);
  files_ = std::move(files);
  has_files_ = true;
}

std::shared_ptr<InMemoryDataset::Loading> InMemoryDataset::StartLoading(
    int num_threads) const {
  auto loading = std::make_shared<Loading>();
  loading->files = files_;
  loading->blocks.resize(files_.size());
  std::vector<Blocks>& blocks = loading->blocks;
  loading->readers = std::make_unique<FileReaders>(FileReaders::Work{
      .files = files_,
      .parser = plan_.parser,
      .options = plan_.read,
      .num_threads = num_threads > 0 ? num_threads : plan_.options.num_threads,
      .take =
          [&blocks](uint32_t file, std::unique_ptr<SampleBlock> block) {
            blocks[file].push_back(std::move(block));
            return OkStatus();
          },
      .done = {}});
  return loading;
}

Status InMemoryDataset::FinishLoading(const std::shared_ptr<Loading>& loading,
                                      const base::InterruptCheck& interrupt) {
  const Status status = base::WaitInterruptibly(
      Deadline::Infinite(), interrupt,
      [&](Deadline slice) { return loading->readers->Wait(slice); });
  const ReadStats stats = loading->readers->stats();
  loading->readers.reset();  // ends the threads, if it was interrupted
  base::MutexLock lock(mutex_);
  if (loading_ == loading) loading_ = nullptr;
  RETURN_IF_ERROR(status);
  stats_ = stats;
  Blocks blocks;
  for (Blocks& of_file : loading->blocks) {
    std::move(of_file.begin(), of_file.end(), std::back_inserter(blocks));
  }
  samples_ = InOrder(std::move(blocks), loading->files);
  return OkStatus();
}

Status InMemoryDataset::Load(const base::InterruptCheck& interrupt) {
  RETURN_IF_ERROR(Preload());
  return WaitPreloaded(interrupt);
}

Status InMemoryDataset::Preload(int num_threads) {
  base::MutexLock lock(mutex_);
  if (loading_ != nullptr) {
    return FailedPrecondition(
        "dataset: its files are being read already; wait_preload_done() comes "
        "before the next load");
  }
  if (!has_files_) {
    return FailedPrecondition(
        "dataset: there are no files: call "
        "set_filelist() first");
  }
  loading_ = StartLoading(num_threads);
  return OkStatus();
}

Status InMemoryDataset::WaitPreloaded(const base::InterruptCheck& interrupt) {
  std::shared_ptr<Loading> loading;
  {
    base::MutexLock lock(mutex_);
    loading = loading_;
  }
  if (loading == nullptr) {
    return FailedPrecondition(
        "dataset: nothing is being read: call preload_into_memory() first");
  }
  return FinishLoading(loading, interrupt);
}

Samples& InMemoryDataset::OwnLocked() {
  if (samples_.use_count() > 1) samples_ = std::make_shared<Samples>(*samples_);
  return *samples_;
}

void InMemoryDataset::LocalShuffle(uint64_t seed) {
  base::MutexLock lock(mutex_);
  Random random(seed);
  Shuffle(std::span(OwnLocked().order), random);
}

Status InMemoryDataset::GlobalShuffle(Exchange& exchange, uint64_t seed,
                                      Deadline deadline) {
  std::shared_ptr<Samples> samples;
  {
    base::MutexLock lock(mutex_);
    samples = std::exchange(samples_, std::make_shared<Samples>());
  }
  Blocks blocks;
  if (samples.use_count() == 1) {
    blocks = std::move(samples->blocks);
  } else {
    blocks = samples->blocks;
  }
  std::vector<std::string> files = samples->files;
  samples.reset();
  Result<Blocks> dealt = DealSamples(std::move(blocks), plan_.options.slots,
                                     exchange, seed, deadline);
  if (!dealt.ok()) {
    return dealt.status().WithContext(
        "global_shuffle (the dataset is empty now, load it again)");
  }
  auto shuffled = InOrder(*std::move(dealt), std::move(files));
  Random random(seed ^ (static_cast<uint64_t>(exchange.rank()) + 1) << 32);
  Shuffle(std::span(shuffled->order), random);
  base::MutexLock lock(mutex_);
  samples_ = std::move(shuffled);
  return OkStatus();
}

Status InMemoryDataset::ShuffleSlots(const std::vector<std::string>& names,
                                     uint64_t seed) {
  const std::vector<Slot>& slots = plan_.options.slots;
  std::vector<bool> chosen(slots.size());
  for (const std::string& name : names) {
    const auto found =
        std::find_if(slots.begin(), slots.end(),
                     [&](const Slot& slot) { return slot.name == name; });
    if (found == slots.end()) {
      return InvalidArgument("slots_shuffle: there is no slot ", name);
    }
    chosen[static_cast<size_t>(found - slots.begin())] = true;
  }
  std::shared_ptr<const Samples> old;
  {
    base::MutexLock lock(mutex_);
    old = samples_;
  }
  // Where each slot of each sample lies, then who gives it to whom.
  const size_t count = old->order.size();
  std::vector<std::vector<std::span<const uint32_t>>> parts(slots.size());
  std::vector<const uint32_t*> cursors;
  for (const SampleView& sample : old->order)
    cursors.push_back(sample.values());
  for (size_t s = 0; s < slots.size(); ++s) {
    const size_t words_of_value = slots[s].type == SlotType::kFloat32 ? 1 : 2;
    parts[s].reserve(count);
    for (const uint32_t*& cursor : cursors) {
      const size_t words = slots[s].ragged ? 1 + *cursor * words_of_value
                                           : slots[s].width() * words_of_value;
      parts[s].emplace_back(cursor, words);
      cursor += words;
    }
    if (!chosen[s]) continue;
    Random random(seed + s);
    Shuffle(std::span(parts[s]), random);
  }
  Blocks blocks;
  auto block = std::make_shared<SampleBlock>();
  for (size_t i = 0; i < count; ++i) {
    block->Begin(old->order[i].file());
    for (const auto& slot : parts) {
      std::memcpy(block->Grow(slot[i].size()), slot[i].data(),
                  slot[i].size_bytes());
    }
    block->End();
    if (block->num_words() * sizeof(uint32_t) < plan_.read.block_bytes)
      continue;
    blocks.push_back(std::exchange(block, std::make_shared<SampleBlock>()));
  }
  if (block->num_samples() > 0) blocks.push_back(std::move(block));
  base::MutexLock lock(mutex_);
  samples_ = InOrder(std::move(blocks), old->files);
  return OkStatus();
}

void InMemoryDataset::Release() {
  std::shared_ptr<Samples> old;
  base::MutexLock lock(mutex_);
  old = std::exchange(samples_, std::make_shared<Samples>());
}

uint64_t InMemoryDataset::num_samples() const {
  base::MutexLock lock(mutex_);
  return samples_->order.size();
}

uint64_t InMemoryDataset::byte_size() const {
  base::MutexLock lock(mutex_);
  uint64_t sum = samples_->order.capacity() * sizeof(SampleView);
  for (const auto& block : samples_->blocks) sum += block->byte_size();
  return sum;
}

ReadStats InMemoryDataset::stats() const {
  base::MutexLock lock(mutex_);
  return stats_;
}

std::unique_ptr<BatchSource> InMemoryDataset::BeginPass(
    const PassOptions& options) const {
  base::MutexLock lock(mutex_);
  return std::make_unique<MemoryPass>(samples_, plan_.parser, options);
}

}  // namespace fleet::data
