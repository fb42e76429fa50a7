// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/tcp.h"

#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "fleet/comm/tcp_collectives.h"
#include "fleet/comm/tcp_exchange.h"
#include "fleet/comm/tcp_links.h"

namespace fleet::comm {
namespace {

// How long a rank that leaves waits for others to take what it sent.
constexpr auto kLeavePatience = std::chrono::seconds(30);

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(int rank, int size, channel::Carrier carrier,
                  CommunicatorOptions options, std::unique_ptr<Links> links)
      : Communicator(rank, size, std::move(options)),
        carrier_(carrier),
        links_(std::move(links)),
        ranks_(size) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
  ~TcpCommunicator() override {
    Finish();
    if (!broken()) links_->Flush(Deadline::After(kLeavePatience));
  }

  std::string_view backend() const override {
    return carrier_ == channel::Carrier::kUcx ? "ucx" : "tcp";
  }

 protected:
  Status DoAllReduce(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) {
      return comm::AllReduce(x, {call.op, size()}, data);
    });
  }
  Status DoReduce(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) {
      return comm::Reduce(x, {call.op, size()}, data, call.root);
    });
  }
  Status DoBroadcast(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) {
      return comm::Broadcast(x, data, call.root);
    });
  }
  Status DoAllGather(const Call& call, ConstSpan mine, Span all,
                     Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return comm::AllGather(x, mine, all); });
  }
  Status DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                         Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) {
      return comm::ReduceScatter(x, {call.op, size()}, all, mine);
    });
  }
  Status DoScatter(const Call& call, ConstSpan all, Span mine,
                   Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) {
      return comm::Scatter(x, all, mine, call.root);
    });
  }
  Status DoGather(const Call& call, ConstSpan mine, Span all,
                  Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) {
      return comm::Gather(x, mine, all, call.root);
    });
  }
  Status DoAllToAll(const Call& call, ConstSpan from, Span to,
                    Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return comm::AllToAll(x, from, to); });
  }
  Status DoBarrier(const Call& call, Deadline deadline) override {
    return Run(call, deadline, [](Exchange& x) { return comm::Barrier(x); });
  }
  Status DoSend(ConstSpan data, int to, Deadline deadline) override {
    return Run({}, deadline,
               [&](Exchange& x) { return x.SendLetter(to, data); });
  }
  Status DoRecv(Span data, int from, Deadline deadline) override {
    return Run({}, deadline,
               [&](Exchange& x) { return x.RecvLetter(from, data); });
  }
  void DoAbort() override { links_->Fail(status()); }

 private:
  template <typename Body>
  Status Run(const Call& call, Deadline deadline, Body body) {
    Exchange exchange(*links_, rank(), ranks_, options(), call, deadline);
    Status outcome = body(exchange);
    if (outcome.ok()) return outcome;
    // The others may wait for this rank; and nobody may look at the caller's
    // memory any more.
    if (!broken()) links_->TellFailure(call.number, outcome);
    links_->Fail(outcome);
    links_->WaitIdle();
    return outcome;
  }

  const channel::Carrier carrier_;
  const std::unique_ptr<Links> links_;
  std::vector<int> ranks_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> ConnectTcp(const Meeting& meeting,
                                                 CommunicatorOptions options,
                                                 Deadline deadline) {
  ASSIGN_OR_RETURN(std::unique_ptr<Links> links,
                   ConnectLinks(meeting, options, deadline));
  return std::make_unique<TcpCommunicator>(meeting.rank, meeting.size,
                                           meeting.carrier, std::move(options),
                                           std::move(links));
}

}  // namespace fleet::comm
