// SPDX-License-Identifier: Apache-2.0

// The communicator over NCCL. Only the module libfleet_nccl.so includes this.

#ifndef FLEET_COMM_NCCL_COMMUNICATOR_H_
#define FLEET_COMM_NCCL_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/nccl_library.h"
#include "fleet/comm/patience.h"

namespace fleet::comm {

class NcclCommunicator final : public Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> Connect(
      std::unique_ptr<Communicator> companion, int device,
      CommunicatorOptions options, Deadline deadline);

  NcclCommunicator(const NcclLibrary& library,
                   std::unique_ptr<Communicator> companion, CUctx_st* context,
                   CommunicatorOptions options);
  ~NcclCommunicator() override;

  std::string_view backend() const override { return "nccl"; }
  bool on_device() const override { return true; }

 protected:
  Result<Buffer> DoAllocate(const Call& call, size_t byte_size,
                            Deadline deadline) override;
  Status DoAllReduce(const Call& call, Span data, Deadline deadline) override;
  Status DoReduce(const Call& call, Span data, Deadline deadline) override;
  Status DoBroadcast(const Call& call, Span data, Deadline deadline) override;
  Status DoAllGather(const Call& call, ConstSpan mine, Span all,
                     Deadline deadline) override;
  Status DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                         Deadline deadline) override;
  Status DoScatter(const Call& call, ConstSpan all, Span mine,
                   Deadline deadline) override;
  Status DoGather(const Call& call, ConstSpan mine, Span all,
                  Deadline deadline) override;
  Status DoAllToAll(const Call& call, ConstSpan from, Span to,
                    Deadline deadline) override;
  Status DoBarrier(const Call& call, Deadline deadline) override;
  Status DoSend(ConstSpan data, int to, Deadline deadline) override;
  Status DoRecv(Span data, int from, Deadline deadline) override;
  void DoAbort() override;

 private:
  // The ranks get their unique id, and NCCL connects them.
  Status Meet(Deadline deadline);

  // Whether `data` is the host's; then the companion does the call.
  bool OnHost(ConstSpan data) const;

  // Gives work to NCCL by `enqueue(ncclComm*)`, a call of it, and returns when
  // it has taken it. Thread-safe.
  template <typename Enqueue>
  Status Give(std::string_view what, Deadline deadline, Enqueue enqueue)
      EXCLUDES(mutex_);
  Status WaitUntilTaken(std::string_view what, Deadline deadline)
      EXCLUDES(mutex_);

  // Elements of a type that NCCL cannot reduce: combines `count` elements of
  // all ranks from `data` on the host, and writes them to `result` unless that
  // is null.
  Status CombineOnHost(const Call& call, ConstSpan data, std::byte* result,
                       size_t begin, size_t count, Deadline deadline);
  Status WaitForStream(void* stream, Deadline deadline);
  Result<std::shared_ptr<void>> AllocateOnDevice(size_t byte_size);

  const NcclLibrary& library_;
  const std::unique_ptr<Communicator> companion_;
  CUctx_st* const context_;
  base::Mutex mutex_;
  ncclComm* comm_ GUARDED_BY(mutex_) = nullptr;  // null once aborted
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_NCCL_COMMUNICATOR_H_
