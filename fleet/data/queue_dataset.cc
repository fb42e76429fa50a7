// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/base/queue.h"
#include "fleet/data/dataset.h"

namespace fleet::data {
namespace {

class QueuePass final : public BatchSource {
 public:
  QueuePass(const DatasetPlan& plan, std::vector<std::string> files,
            const PassOptions& options)
      : files_(std::move(files)),
        parser_(plan.parser),
        batch_size_(options.batch_size),
        drop_last_(options.drop_last),
        queue_(plan.options.max_waiting_blocks),
        readers_({.files = files_,
                  .parser = plan.parser,
                  .options = plan.read,
                  .num_threads = plan.options.num_threads,
                  .take =
                      [this](uint32_t, std::unique_ptr<SampleBlock> block) {
                        return queue_.Push(std::shared_ptr<const SampleBlock>(
                                               std::move(block)),
                                           Deadline::Infinite());
                      },
                  .done =
                      [this](const Status& status) {
                        if (status.ok()) {
                          queue_.Close();
                        } else {
                          queue_.Abort(status);
                        }
                      }}) {}

  ~QueuePass() override { Abort(Unavailable("the pass was ended")); }

  Result<bool> Next(Batch& batch, Deadline deadline) override {
    {
      // One thread gathers at a time, so that samples stay in order.
      base::MutexLock lock(mutex_);
      while (gathering_) {
        if (!gathered_.WaitUntil(mutex_, deadline) && gathering_ &&
            deadline.expired()) {
          return DeadlineExceeded("dataset: waiting for samples");
        }
      }
      gathering_ = true;
    }
    const Status status = Gather(deadline);
    Gathered mine;
    if (status.ok()) mine = std::exchange(next_, {});
    const bool found =
        drop_last_ ? mine.samples.size() == batch_size_ : !mine.samples.empty();
    if (found) {
      batch.number = ++number_;
    } else {
      num_dropped_ += mine.samples.size();
    }
    {
      base::MutexLock lock(mutex_);
      gathering_ = false;
      gathered_.NotifyOne();
    }
    RETURN_IF_ERROR(status);
    if (!found) return false;
    batch.file = files_[mine.samples.front().file()];
    batch.Fill(slots(), mine.samples);
    return true;
  }

  void Abort(Status why) override {
    readers_.Stop(why);
    queue_.Abort(std::move(why));
  }
  const std::vector<Slot>& slots() const override { return parser_->slots(); }
  std::string WhyEmpty() const override {
    if (files_.empty()) return "it has no files";
    const uint64_t count = num_dropped_.load();
    return count > 0 ? FewerThanABatch(count, batch_size_)
                     : "its files hold no samples";
  }

 private:
  // Samples of a batch and what holds them.
  struct Gathered {
    std::vector<SampleView> samples;
    std::vector<std::shared_ptr<const SampleBlock>> blocks;
  };

  // Takes samples into next_ until it is full or there are no more.
  Status Gather(Deadline deadline) {
    while (next_.samples.size() < batch_size_) {
      if (block_ == nullptr || in_block_ == block_->num_samples()) {
        ASSIGN_OR_RETURN(auto block, queue_.Pop(deadline));
        if (!block) return OkStatus();
        block_ = *std::move(block);
        in_block_ = 0;
      }
      next_.blocks.push_back(block_);
      while (next_.samples.size() < batch_size_ &&
             in_block_ < block_->num_samples()) {
        next_.samples.push_back(block_->sample(in_block_++));
      }
    }
    return OkStatus();
  }

  const std::vector<std::string> files_;
  const std::shared_ptr<const MultiSlotParser> parser_;
  const size_t batch_size_;
  const bool drop_last_;
  base::BoundedQueue<std::shared_ptr<const SampleBlock>> queue_;

  std::atomic<uint64_t> num_dropped_ = 0;  // samples that filled no batch

  base::Mutex mutex_;
  base::CondVar gathered_;
  bool gathering_ GUARDED_BY(mutex_) = false;
  // These belong to the thread that gathers.
  uint64_t number_ = 0;
  Gathered next_;
  std::shared_ptr<const SampleBlock> block_;
  size_t in_block_ = 0;

  FileReaders readers_;  // last: its threads use the rest
};

}  // namespace

QueueDataset::QueueDataset(DatasetPlan plan) : plan_(std::move(plan)) {}

Result<std::unique_ptr<QueueDataset>> QueueDataset::Make(
    DatasetOptions options) {
  ASSIGN_OR_RETURN(DatasetPlan plan, PlanDataset(std::move(options)));
  return std::unique_ptr<QueueDataset>(new QueueDataset(std::move(plan)));
}

void QueueDataset::SetFiles(std::vector<std::string> files) {
  base::MutexLock lock(mutex_);
  files_ = std::move(files);
}

std::unique_ptr<BatchSource> QueueDataset::BeginPass(
    const PassOptions& options) const {
  FLEET_CHECK(options.batch_size > 0);
  base::MutexLock lock(mutex_);
  return std::make_unique<QueuePass>(plan_, files_, options);
}

}  // namespace fleet::data
