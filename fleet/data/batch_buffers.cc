// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/batch_buffers.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <numeric>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/base/mutex.h"

namespace fleet::data {
namespace {

// Parts of a batch begin at cache lines.
constexpr uint64_t kAlignment = 64;
// Views grow in such steps, so that batches of varying size seldom remap.
constexpr uint64_t kViewStep = uint64_t{1} << 20;

uint64_t RoundUp(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

Result<std::shared_ptr<const base::Mapping>> View(const base::Descriptor& file,
                                                  size_t buffer,
                                                  uint64_t byte_size) {
  ASSIGN_OR_RETURN(
      base::Mapping mapping,
      base::Mapping::OfPart(file, buffer * kBatchBufferByteSize, byte_size));
  return std::make_shared<const base::Mapping>(std::move(mapping));
}

}  // namespace

Result<base::Descriptor> MakeBatchBuffers(size_t num_buffers) {
  ASSIGN_OR_RETURN(base::Descriptor file,
                   base::MakeSharedMemory("fleet batches",
                                          num_buffers * kBatchBufferByteSize));
  return base::Descriptor(file.Release());
}

BatchWriter::BatchWriter(base::Descriptor file, size_t num_buffers)
    : file_(std::move(file)), windows_(num_buffers) {}

void BatchWriter::Start(size_t buffer) {
  FLEET_CHECK(buffer < windows_.size());
  buffer_ = buffer;
  end_ = 0;
  outgrown_.clear();
}

Result<BatchPart> BatchWriter::Add(size_t byte_size) {
  const uint64_t offset = RoundUp(end_, kAlignment);
  if (byte_size > kBatchBufferByteSize - offset) {
    return ErrnoStatus(
        ENOMEM,
        base::Concat("a batch of ", offset, " and ", byte_size,
                     " more bytes, and at most ", kBatchBufferByteSize));
  }
  const uint64_t end = offset + byte_size;
  // Also a part without bytes has an address of its own in the view.
  const uint64_t needed = std::max(end, offset + 1);
  Window& window = windows_[buffer_];
  if (window == nullptr || window->byte_size() < needed) {
    const uint64_t had = window == nullptr ? 0 : window->byte_size();
    const uint64_t wanted = RoundUp(std::max(needed, had + had / 2), kViewStep);
    // The new view shows the same pages as the old one, and more.
    ASSIGN_OR_RETURN(
        Window larger,
        View(file_, buffer_, std::min(wanted, kBatchBufferByteSize)));
    if (window != nullptr) outgrown_.push_back(std::move(window));
    window = std::move(larger);
  }
  end_ = end;
  return BatchPart{offset, window->data() + offset, window};
}

std::optional<uint64_t> BatchWriter::OffsetOf(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const auto in = [&](const Window& window) {
    return window != nullptr && !std::less<>()(at, window->data()) &&
           std::less<>()(at, window->data() + window->byte_size());
  };
  if (in(windows_[buffer_])) return at - windows_[buffer_]->data();
  for (const Window& window : outgrown_) {
    if (in(window)) return at - window->data();
  }
  return std::nullopt;
}

struct BatchReader::FreeBuffers {
  base::Mutex mutex;
  // The last that became free is used first: its pages are the likeliest to be
  // in the cache.
  std::vector<size_t> buffers GUARDED_BY(mutex);

  void Add(size_t buffer) {
    base::MutexLock lock(mutex);
    buffers.push_back(buffer);
  }
};

BatchReader::BatchReader(base::Descriptor file, size_t num_buffers,
                         size_t max_lent)
    : file_(std::move(file)),
      max_lent_(max_lent),
      windows_(num_buffers),
      free_(std::make_shared<FreeBuffers>()) {
  base::MutexLock lock(free_->mutex);
  free_->buffers.resize(num_buffers);
  std::iota(free_->buffers.begin(), free_->buffers.end(), size_t{0});
}

Result<size_t> BatchReader::Take() {
  base::MutexLock lock(free_->mutex);
  if (free_->buffers.empty()) {
    return FailedPrecondition("no buffer is free for a batch");
  }
  const size_t buffer = free_->buffers.back();
  free_->buffers.pop_back();
  ++num_pending_;
  return buffer;
}

void BatchReader::GiveBack(size_t buffer) {
  --num_pending_;
  free_->Add(buffer);
}

std::shared_ptr<const void> BatchReader::Lend(size_t buffer) {
  {
    base::MutexLock lock(free_->mutex);
    const size_t num_lent =
        windows_.size() - free_->buffers.size() - num_pending_;
    if (num_lent >= max_lent_) return nullptr;
  }
  --num_pending_;
  return std::shared_ptr<const void>(
      free_.get(), [free = free_, buffer](const void*) { free->Add(buffer); });
}

Result<BatchPart> BatchReader::At(size_t buffer, uint64_t offset,
                                  size_t byte_size) {
  if (buffer >= windows_.size() || offset > kBatchBufferByteSize ||
      byte_size > kBatchBufferByteSize - offset) {
    return InvalidArgument("no buffer has ", byte_size, " bytes at ", offset);
  }
  const uint64_t end = offset + byte_size;
  auto& window = windows_[buffer];
  if (window == nullptr || window->byte_size() < end) {
    ASSIGN_OR_RETURN(
        window,
        View(file_, buffer, RoundUp(std::max(end, uint64_t{1}), kViewStep)));
  }
  return BatchPart{offset, window->data() + offset, window};
}

}  // namespace fleet::data
