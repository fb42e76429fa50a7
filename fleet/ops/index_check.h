// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_INDEX_CHECK_H_
#define FLEET_OPS_INDEX_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"

namespace fleet::ops {

// Fails on the first element of `index` (int64) outside [begin, end), calling
// it `what`. On a GPU it waits for the result: an index outside would kill the
// device's context.
void CheckIndices(const char* what, const at::Tensor& index, int64_t begin,
                  int64_t end);

// Checks for a kernel that can work with other indices than it was given, and
// returns those to use. They are `index` itself unless the outcome comes late
// (below); then `begin` stands where an element is outside.
at::Tensor CheckedIndices(const char* what, const at::Tensor& index,
                          int64_t begin, int64_t end);

// Checks on a GPU whose outcome nobody waits for. What they found is asked for
// afterwards. A program that is recorded once and replayed (exec/) needs that:
// the checks are replayed too, and leave word in memory of the host.
//
// One thread at a time.
class LateChecks final {
 public:
  LateChecks() = default;
  LateChecks(const LateChecks&) = delete;
  LateChecks& operator=(const LateChecks&) = delete;

  // While it lives, the checks of this thread that can come late do so. They
  // then go on with harmless values where one is outside.
  class Collecting final {
   public:
    explicit Collecting(LateChecks& checks);
    Collecting(const Collecting&) = delete;
    Collecting& operator=(const Collecting&) = delete;
    ~Collecting();

   private:
    LateChecks* const before_;
  };
  // Null: this thread's checks wait, or `device` knows none that come late.
  static LateChecks* Of(at::Device device);

  // The operation that runs now, for messages.
  void set_operation(std::string operation) {
    operation_ = std::move(operation);
  }
  // Where a kernel leaves word (gpu_kernels.h) of elements outside. Fails when
  // there are more than kMaxChecks.
  at::Tensor Add(const char* what, int64_t begin, int64_t end);
  // A note for another kind of mistake, which `message` tells.
  at::Tensor Add(std::string message);

  // InvalidArgument for an element outside that a check has met since the last
  // call. What the device has not done yet is not known yet.
  Status Take();
  // No checks, as at first; their memory stays for those that come.
  void Clear();

 private:
  static constexpr size_t kMaxChecks = 256;
  struct Check {
    std::string operation;
    std::string what;
    int64_t begin;
    int64_t end;  // below `begin`: `what` says it all
    at::Tensor note;
  };
  std::string operation_;
  std::vector<Check> checks_;
  // All at once: while a program is recorded no memory of this kind can be had.
  at::Tensor notes_;
};

}  // namespace fleet::ops

#endif  // FLEET_OPS_INDEX_CHECK_H_
