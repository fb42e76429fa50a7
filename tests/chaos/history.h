// SPDX-License-Identifier: Apache-2.0

// What all workers of a storm have begun and what was acknowledged to them, in
// memory that survives each of them. Every update adds one to its keys, so what
// a pull may read lies between two counts.

#ifndef FLEET_TESTS_CHAOS_HISTORY_H_
#define FLEET_TESTS_CHAOS_HISTORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/status.h"

namespace fleet::chaos {

// A file that processes map. Thread-safe.
class History final {
 public:
  // `num_counts` are counted for each worker: rows, and the dense parameter.
  static Result<std::unique_ptr<History>> Open(const std::string& file,
                                               int num_workers, int num_servers,
                                               size_t num_counts);
  History(const History&) = delete;
  History& operator=(const History&) = delete;
  ~History();

  // Before an update is sent, and after it was acknowledged.
  void Begin(int worker, std::span<const uint64_t> counts);
  void Acknowledge(int worker, std::span<const uint64_t> counts);
  // Updates of all workers. What was acknowledged before a pull began is in
  // what it reads (so are the worker's own updates); what had not begun when it
  // ended is not.
  uint64_t begun(uint64_t count) const;
  uint64_t acknowledged(uint64_t count) const;

  // The bounds of one pull.
  class Read final {
   public:
    // The pull is about to begin.
    Read(const History& history, std::vector<uint64_t> counts);
    // It has ended and read `values`, one for each count. DataLoss names the
    // first that is outside of its bounds.
    Status Check(std::span<const float> values) const;

   private:
    const History& history_;
    const std::vector<uint64_t> counts_;
    std::vector<uint64_t> at_least_;
  };

  // When the latest push was begun of those that a server has acknowledged, to
  // anyone; steady clock.
  std::atomic<int64_t>& latest_acknowledged(int server) const;
  // Changes while a worker's calls end well: their count, or the step (sync).
  std::atomic<uint64_t>& progress(int worker) const;
  std::atomic<uint64_t>& num_reads() const;
  // Calls that failed because the disk was full.
  std::atomic<uint64_t>& num_refused() const;
  // What a worker is told: to end after this step (sync), or when it is not 0.
  std::atomic<uint64_t>& end() const;
  // Set to ask worker 0 for the number of the job's view, which it sets here,
  // and this to 0.
  std::atomic<uint64_t>& wants_view() const;
  std::atomic<uint64_t>& view() const;
  // Workers that have ended their pushes; 0 then checks all and notes it.
  std::atomic<uint64_t>& num_finished() const;
  std::atomic<uint64_t>& lost() const;
  std::atomic<uint64_t>& twice() const;

 private:
  History(std::atomic<uint64_t>* words, size_t byte_size, int num_workers,
          int num_servers, size_t num_counts);
  std::atomic<uint64_t>* Begun(int worker) const;
  std::atomic<uint64_t>* Acknowledged(int worker) const;

  std::atomic<uint64_t>* const words_;
  const size_t byte_size_;
  const int num_workers_;
  const int num_servers_;
  const size_t num_counts_;
};

}  // namespace fleet::chaos

#endif  // FLEET_TESTS_CHAOS_HISTORY_H_
