// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/history.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/descriptor.h"

namespace fleet::chaos {
namespace {

// Words before those of servers, workers and counts.
enum Word {
  kReads,
  kRefused,
  kEnd,
  kWantsView,
  kView,
  kFinished,
  kLost,
  kTwice,
  kNumWords
};

}  // namespace

Result<std::unique_ptr<History>> History::Open(const std::string& file,
                                               int num_workers, int num_servers,
                                               size_t num_counts) {
  const auto workers = static_cast<size_t>(num_workers);
  const size_t byte_size =
      sizeof(uint64_t) * (kNumWords + static_cast<size_t>(num_servers) +
                          workers + 2 * workers * num_counts);
  const base::Descriptor opened(
      ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!opened.valid() ||
      ::ftruncate(opened.get(), static_cast<off_t>(byte_size)) != 0) {
    return ErrnoStatus(errno, file);
  }
  void* const mapped = ::mmap(nullptr, byte_size, PROT_READ | PROT_WRITE,
                              MAP_SHARED, opened.get(), 0);
  if (mapped == MAP_FAILED) return ErrnoStatus(errno, file);
  return std::unique_ptr<History>(
      new History(static_cast<std::atomic<uint64_t>*>(mapped), byte_size,
                  num_workers, num_servers, num_counts));
}

History::History(std::atomic<uint64_t>* words, size_t byte_size,
                 int num_workers, int num_servers, size_t num_counts)
    : words_(words),
      byte_size_(byte_size),
      num_workers_(num_workers),
      num_servers_(num_servers),
      num_counts_(num_counts) {}

History::~History() { (void)::munmap(words_, byte_size_); }

std::atomic<uint64_t>* History::Begun(int worker) const {
  return words_ + kNumWords + num_servers_ + num_workers_ +
         2 * static_cast<size_t>(worker) * num_counts_;
}

std::atomic<uint64_t>* History::Acknowledged(int worker) const {
  return Begun(worker) + num_counts_;
}

void History::Begin(int worker, std::span<const uint64_t> counts) {
  for (const uint64_t count : counts) ++Begun(worker)[count];
}

void History::Acknowledge(int worker, std::span<const uint64_t> counts) {
  for (const uint64_t count : counts) ++Acknowledged(worker)[count];
}

uint64_t History::begun(uint64_t count) const {
  uint64_t sum = 0;
  for (int w = 0; w < num_workers_; ++w) sum += Begun(w)[count];
  return sum;
}

uint64_t History::acknowledged(uint64_t count) const {
  uint64_t sum = 0;
  for (int w = 0; w < num_workers_; ++w) sum += Acknowledged(w)[count];
  return sum;
}

History::Read::Read(const History& history, std::vector<uint64_t> counts)
    : history_(history), counts_(std::move(counts)) {
  for (const uint64_t count : counts_) {
    at_least_.push_back(history.acknowledged(count));
  }
}

Status History::Read::Check(std::span<const float> values) const {
  ++history_.num_reads();
  for (size_t i = 0; i < counts_.size(); ++i) {
    const uint64_t at_most = history_.begun(counts_[i]);
    const auto value = static_cast<double>(values[i]);
    if (value >= static_cast<double>(at_least_[i]) &&
        value <= static_cast<double>(at_most)) {
      continue;
    }
    return DataLoss("a pull read ", value, " updates of ", counts_[i],
                    ", of which ", at_least_[i],
                    " had been acknowledged when it began, and ", at_most,
                    " had begun when it ended");
  }
  return OkStatus();
}

std::atomic<int64_t>& History::latest_acknowledged(int server) const {
  return reinterpret_cast<std::atomic<int64_t>&>(words_[kNumWords + server]);
}
std::atomic<uint64_t>& History::progress(int worker) const {
  return words_[kNumWords + num_servers_ + worker];
}
std::atomic<uint64_t>& History::num_reads() const { return words_[kReads]; }
std::atomic<uint64_t>& History::num_refused() const { return words_[kRefused]; }
std::atomic<uint64_t>& History::end() const { return words_[kEnd]; }
std::atomic<uint64_t>& History::wants_view() const {
  return words_[kWantsView];
}
std::atomic<uint64_t>& History::view() const { return words_[kView]; }
std::atomic<uint64_t>& History::num_finished() const {
  return words_[kFinished];
}
std::atomic<uint64_t>& History::lost() const { return words_[kLost]; }
std::atomic<uint64_t>& History::twice() const { return words_[kTwice]; }

}  // namespace fleet::chaos
