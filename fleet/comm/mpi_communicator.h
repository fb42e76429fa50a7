// SPDX-License-Identifier: Apache-2.0

// The communicator over MPI. Only the module libfleet_mpi.so includes this.
//
// Every call has two parts. First the ranks agree: each tells all others what
// it calls, so that late ranks are known by name and two different calls are an
// error. Then MPI moves the data by a collective of its own. What a rank tells
// travels on one tag from each rank to each other, in order: its calls, how
// much of the other's messages it has received, and at the end that it failed,
// and why, or that it left.

#ifndef FLEET_COMM_MPI_COMMUNICATOR_H_
#define FLEET_COMM_MPI_COMMUNICATOR_H_

#include <array>
#include <cstdint>
#include <deque>
#include <mpi.h>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/comm/communicator.h"
#include "fleet/comm/mpi_library.h"
#include "fleet/comm/patience.h"
#include "fleet/comm/send_window.h"

namespace fleet::comm {

class MpiCommunicator final : public Communicator {
 public:
  // `library` outlives it. `comm` is of nobody else.
  MpiCommunicator(MpiLibrary& library, MPI_Comm comm, int rank, int size,
                  CommunicatorOptions options);
  ~MpiCommunicator() override;

  std::string_view backend() const override { return "mpi"; }

 protected:
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
  enum class News : uint8_t { kCall, kFailed, kLeft, kReceived, kWaits };

  // What a rank tells; of `text`, which says why it failed, only a part is
  // sent.
  struct Notice {
    News news = News::kCall;
    StatusCode code = StatusCode::kOk;
    // A failure has only the number of the last call; kReceived and kWaits have
    // only the count, see send_window.h.
    Call call;
    uint32_t text_size = 0;
    std::array<char, 1000> text;
  };

  // What was heard of one other rank.
  struct Peer {
    std::deque<Call> calls;  // which this rank has not made yet
    bool left = false;
    SendWindow window;
  };

  // Which elements each rank combines, in the form that MPI takes.
  struct Slices {
    std::vector<int> counts;
    std::vector<int> begins;
  };

  // To all other ranks.
  Status Tell(const Notice& notice) REQUIRES(library_.mutex);
  Status TellOne(int to, const Notice& notice) REQUIRES(library_.mutex);
  Status TellCount(int to, News news, uint64_t count) REQUIRES(library_.mutex);
  // Takes what has come from them. Fails when Abort came, or one of them failed
  // in the call with the number `during` or before: a rank that is already in a
  // later call has done its part of this one.
  Status Hear(uint64_t during) REQUIRES(library_.mutex);
  // True when all ranks have made `call`.
  Result<bool> AllCalled(const Call& call) REQUIRES(library_.mutex);
  // Ranks that have not made the next call.
  std::vector<int> Missing() const;

  // Returns when all ranks have made `call`.
  Status Agree(const Call& call, Patience& patience) EXCLUDES(library_.mutex);
  // Runs `begin(MPI_Request*)`, a call of MPI, until it is complete. Failing
  // before that, MPI may still write to the caller's memory: nobody in this
  // process may call it again.
  template <typename Operation>
  Status Move(std::string_view name, Patience& patience, Operation begin)
      EXCLUDES(library_.mutex);

  // This rank's slice of `data`, combined over all ranks by CombineAll.
  Result<std::vector<std::byte>> CombineSlice(const Call& call,
                                              const std::byte* data,
                                              const Slices& slices,
                                              Patience& patience);
  Slices MakeSlices(size_t count) const;

  MpiLibrary& library_;
  const MPI_Comm comm_;
  std::vector<Peer> peers_;  // by rank, with one unused for this rank
  uint64_t called_ GUARDED_BY(library_.mutex) = 0;  // number of the last call
  // The earliest that was heard of.
  Status failure_ GUARDED_BY(library_.mutex);
  uint64_t failed_in_ GUARDED_BY(library_.mutex) = 0;
  // All others know that this rank is out.
  bool told_ GUARDED_BY(library_.mutex) = false;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_MPI_COMMUNICATOR_H_
