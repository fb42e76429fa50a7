// SPDX-License-Identifier: Apache-2.0

// For tests and benchmarks: ranks that are processes made by fork, and a store
// through which they meet.

#ifndef FLEET_TESTING_FORKED_RANKS_H_
#define FLEET_TESTING_FORKED_RANKS_H_

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fleet/base/check.h"
#include "fleet/cluster/store.h"

namespace fleet::comm {

// A store in memory that processes forked after its making share. Keys are set
// once; it can do no more than ranks need to meet.
class ForkedStore final : public cluster::Store {
 public:
  ForkedStore() {
    void* memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FLEET_CHECK(memory != MAP_FAILED);
    table_ = new (memory) Table();
  }
  ForkedStore(const ForkedStore&) = delete;
  ForkedStore& operator=(const ForkedStore&) = delete;
  ~ForkedStore() override { munmap(table_, sizeof(Table)); }

  Status Set(std::string_view key, std::string_view value,
             base::Deadline) override {
    const uint32_t i = table_->count.fetch_add(1);
    FLEET_CHECK_LT(i, kEntries);
    Entry& entry = table_->entries[i];
    FLEET_CHECK_LT(key.size(), sizeof(entry.key));
    FLEET_CHECK_LT(value.size(), sizeof(entry.value));
    key.copy(entry.key, key.size());
    value.copy(entry.value, value.size());
    entry.written.store(1);
    return OkStatus();
  }

  Result<std::string> Get(std::string_view key, base::Deadline) override {
    for (const Entry& entry : table_->entries) {
      if (entry.written.load() != 0 && key == entry.key) {
        return std::string(entry.value);
      }
    }
    return NotFound(key);
  }

  Result<std::vector<std::string>> Wait(const std::vector<std::string>& keys,
                                        base::Deadline deadline) override {
    std::vector<std::string> values;
    while (values.size() < keys.size()) {
      Result<std::string> value = Get(keys[values.size()], deadline);
      if (value.ok()) {
        values.push_back(std::move(*value));
      } else if (deadline.expired()) {
        return DeadlineExceeded("nobody set ", keys[values.size()]);
      } else {
        usleep(100);
      }
    }
    return values;
  }

  Result<int64_t> Add(std::string_view, int64_t, base::Deadline) override {
    return Unknown();
  }
  Result<std::optional<std::string>> CompareAndSet(
      std::string_view, std::optional<std::string_view>, std::string_view,
      base::Deadline) override {
    return Unknown();
  }
  Status Barrier(std::string_view, int, int, base::Deadline) override {
    return Unknown();
  }
  void Abort(Status) override {}

 private:
  static constexpr uint32_t kEntries = 4096;
  struct Entry {
    std::atomic<uint32_t> written;
    char key[124];
    char value[128];
  };
  struct Table {
    std::atomic<uint32_t> count;
    Entry entries[kEntries];
  };

  static Status Unknown() {
    return Unimplemented("a store of forked processes only sets and waits");
  }

  Table* table_;
};

// Runs `body(rank)` in `size` forked processes and waits for all of them.
// Returns for each what waitpid said: 0 when `body` returned 0.
inline std::vector<int> RunProcesses(int size,
                                     const std::function<int(int)>& body) {
  std::vector<pid_t> children;
  for (int i = 0; i < size; ++i) {
    const pid_t child = fork();
    FLEET_CHECK(child >= 0);
    if (child == 0) {
      const int code = body(i);
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(child);
  }
  std::vector<int> outcomes;
  for (pid_t child : children) {
    int outcome = 0;
    FLEET_CHECK_EQ(waitpid(child, &outcome, 0), child);
    outcomes.push_back(outcome);
  }
  return outcomes;
}

}  // namespace fleet::comm

#endif  // FLEET_TESTING_FORKED_RANKS_H_
