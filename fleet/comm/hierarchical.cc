// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/hierarchical.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "fleet/comm/shared_memory.h"
#include "fleet/comm/tcp_collectives.h"
#include "fleet/comm/tcp_exchange.h"
#include "fleet/comm/tcp_links.h"

namespace fleet::comm {
namespace {

using Bytes = std::vector<std::byte>;

constexpr auto kLeavePatience = std::chrono::seconds(30);

// Which ranks are where, as one of them sees it.
struct Layout {
  Layout(int rank, const std::vector<int>& host_numbers) {
    std::map<int, int> places;  // hosts in the order of their first ranks
    for (size_t i = 0; i < host_numbers.size(); ++i) {
      const int place =
          places.try_emplace(host_numbers[i], static_cast<int>(places.size()))
              .first->second;
      if (place == static_cast<int>(ranks.size())) {
        ranks.emplace_back();
        leaders.push_back(static_cast<int>(i));
      }
      host_of.push_back(place);
      place_on_host.push_back(static_cast<int>(ranks[place].size()));
      ranks[place].push_back(static_cast<int>(i));
    }
    host = host_of[rank];
    place = place_on_host[rank];
  }

  const std::vector<int>& mine() const { return ranks[host]; }
  bool leads() const { return place == 0; }
  int num_hosts() const { return static_cast<int>(ranks.size()); }

  std::vector<std::vector<int>> ranks;  // by host
  std::vector<int> leaders;             // by host, the first of its ranks
  std::vector<int> host_of;             // by rank
  std::vector<int> place_on_host;       // by rank
  int host = 0;                         // of this rank
  int place = 0;                        // of this rank on it
};

// What looks up while this rank waits inside its host: the call that goes on,
// and what ended it.
struct Lookout {
  Exchange* exchange = nullptr;
  Status cause;

  Status Look() {
    if (exchange == nullptr) return OkStatus();
    Status status = exchange->Look();
    if (cause.ok()) cause = status;
    return status;
  }
};

ReduceOp WithoutMean(ReduceOp op) {
  return op == ReduceOp::kMean ? ReduceOp::kSum : op;
}

Span SpanOf(Bytes& bytes, DataType type) {
  return {bytes.data(), bytes.size() / ByteSize(type), type, nullptr};
}

Bytes CopyOf(ConstSpan data) {
  return Bytes(data.data, data.data + data.byte_size());
}

void Copy(std::byte* to, const std::byte* from, size_t byte_size) {
  if (byte_size != 0) std::memmove(to, from, byte_size);
}

class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(int rank, Layout layout, channel::Carrier carrier,
                           CommunicatorOptions options,
                           std::unique_ptr<Links> links,
                           std::unique_ptr<Lookout> lookout,
                           std::unique_ptr<Communicator> local)
      : Communicator(rank, static_cast<int>(layout.host_of.size()),
                     std::move(options)),
        layout_(std::move(layout)),
        carrier_(carrier),
        ranks_(layout_.host_of.size()),
        lookout_(std::move(lookout)),
        local_(std::move(local)),
        links_(std::move(links)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
  ~HierarchicalCommunicator() override {
    Finish();
    if (!broken()) links_->Flush(Deadline::After(kLeavePatience));
  }

  std::string_view backend() const override {
    return carrier_ == channel::Carrier::kUcx ? "shared memory and ucx"
                                              : "shared memory and tcp";
  }

 protected:
  Result<Buffer> DoAllocate(const Call& call, size_t byte_size,
                            Deadline deadline) override {
    if (local_ == nullptr) {
      return Communicator::DoAllocate(call, byte_size, deadline);
    }
    RETURN_IF_ERROR(DoBarrier(call, deadline));
    return local_->Allocate(byte_size, deadline);
  }

  Status DoAllReduce(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      RETURN_IF_ERROR(ReduceOnHost(call.op, data, deadline));
      if (layout_.leads()) {
        RETURN_IF_ERROR(comm::AllReduce(x, {call.op, size()}, data));
      }
      return BroadcastOnHost(data, 0, deadline);
    });
  }

  Status DoReduce(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      // The data of a leader that is not the root stays as it is.
      const bool copied = layout_.leads() && rank() != call.root;
      Bytes& copy = Hold(copied ? CopyOf(data) : Bytes());
      const Span work = copied ? SpanOf(copy, data.type) : data;
      RETURN_IF_ERROR(ReduceOnHost(call.op, work, deadline));
      if (layout_.leads()) {
        RETURN_IF_ERROR(comm::Reduce(x, {call.op, size()}, work,
                                     layout_.host_of[call.root]));
      }
      return PassToRoot(work, data, call.root, deadline);
    });
  }

  Status DoBroadcast(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      const int root_host = layout_.host_of[call.root];
      const bool has_root = layout_.host == root_host;
      if (has_root) {
        RETURN_IF_ERROR(
            BroadcastOnHost(data, layout_.place_on_host[call.root], deadline));
      }
      if (layout_.leads()) {
        RETURN_IF_ERROR(comm::Broadcast(x, data, root_host));
      }
      return has_root ? OkStatus() : BroadcastOnHost(data, 0, deadline);
    });
  }

  Status DoAllGather(const Call& call, ConstSpan mine, Span all,
                     Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      ASSIGN_OR_RETURN(Bytes gathered, GatherOnHost(mine, deadline));
      const Bytes& block = Hold(std::move(gathered));
      if (layout_.leads()) {
        const size_t part = mine.byte_size();
        for (int host = 0; host < x.size(); ++host) {
          if (host != x.place()) x.Send(host, block);
        }
        RETURN_IF_ERROR(PlaceBlocks(x, block, part, all.data));
        RETURN_IF_ERROR(x.Flush());
      }
      return BroadcastOnHost(all, 0, deadline);
    });
  }

  Status DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                         Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      Bytes& copy = Hold(layout_.leads() ? CopyOf(all) : Bytes());
      // Others than the root only read.
      const Span work = layout_.leads() ? SpanOf(copy, all.type)
                                        : Span{const_cast<std::byte*>(all.data),
                                               all.count, all.type, nullptr};
      RETURN_IF_ERROR(ReduceOnHost(call.op, work, deadline));
      Bytes block;
      if (layout_.leads()) {
        RETURN_IF_ERROR(comm::AllReduce(x, {call.op, size()}, work));
        block = BlockOf(layout_.host, work.data, mine.byte_size());
      }
      return ScatterOnHost(block, mine, deadline);
    });
  }

  Status DoScatter(const Call& call, ConstSpan all, Span mine,
                   Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      const int root_host = layout_.host_of[call.root];
      const size_t part = mine.byte_size();
      ASSIGN_OR_RETURN(const Bytes whole,
                       TakeFromRoot(all, part * size(), call.root, deadline));
      Bytes block(part * layout_.mine().size());
      if (layout_.leads() && layout_.host == root_host) {
        for (int host = 0; host < x.size(); ++host) {
          if (host != root_host) {
            x.SendKept(host, BlockOf(host, whole.data(), part));
          }
        }
        block = BlockOf(root_host, whole.data(), part);
        for (int host = 0; host < x.size(); ++host) {
          if (host != root_host) RETURN_IF_ERROR(x.RecvGreeting(host));
        }
        RETURN_IF_ERROR(x.Flush());
      } else if (layout_.leads()) {
        x.Greet(root_host);
        RETURN_IF_ERROR(x.Recv(root_host, block));
        RETURN_IF_ERROR(x.Flush());
      }
      return ScatterOnHost(block, mine, deadline);
    });
  }

  Status DoGather(const Call& call, ConstSpan mine, Span all,
                  Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      const int root_host = layout_.host_of[call.root];
      const size_t part = mine.byte_size();
      ASSIGN_OR_RETURN(Bytes parts, GatherOnHost(mine, deadline));
      const Bytes& block = Hold(std::move(parts));
      Bytes whole;
      if (layout_.leads() && layout_.host == root_host) {
        whole.resize(part * size());
        for (int host = 0; host < x.size(); ++host) {
          if (host != root_host) x.Greet(host);
        }
        RETURN_IF_ERROR(PlaceBlocks(x, block, part, whole.data()));
        RETURN_IF_ERROR(x.Flush());
      } else if (layout_.leads()) {
        x.Send(root_host, block);
        RETURN_IF_ERROR(x.RecvGreeting(root_host));
        RETURN_IF_ERROR(x.Flush());
      }
      const Span gathered = SpanOf(whole, mine.type);
      if (rank() == call.root && layout_.leads()) {
        Copy(all.data, whole.data(), whole.size());
        return OkStatus();
      }
      return PassToRoot(gathered, all, call.root, deadline);
    });
  }

  Status DoAllToAll(const Call& call, ConstSpan from, Span to,
                    Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) -> Status {
      const size_t part = call.count * ByteSize(call.type);
      const size_t row = part * size();  // of one rank
      ASSIGN_OR_RETURN(const Bytes rows, GatherOnHost(from, deadline));
      Bytes result(layout_.leads() ? row * layout_.mine().size() : 0);
      if (layout_.leads()) {
        // A block for a host: for each rank here its parts for each rank there.
        auto block_for = [&](int host) {
          Bytes block;
          for (size_t i = 0; i < layout_.mine().size(); ++i) {
            const Bytes parts = BlockOf(host, rows.data() + i * row, part);
            block.insert(block.end(), parts.begin(), parts.end());
          }
          return block;
        };
        auto place = [&](int host, const Bytes& block) {
          const std::byte* at = block.data();
          for (int sender : layout_.ranks[host]) {
            for (size_t i = 0; i < layout_.mine().size(); ++i, at += part) {
              Copy(result.data() + i * row + sender * part, at, part);
            }
          }
        };
        for (int host = 0; host < x.size(); ++host) {
          if (host != x.place()) x.SendKept(host, block_for(host));
        }
        place(x.place(), block_for(x.place()));
        for (int host = 0; host < x.size(); ++host) {
          if (host == x.place()) continue;
          Bytes block(part * layout_.mine().size() *
                      layout_.ranks[host].size());
          RETURN_IF_ERROR(x.Recv(host, block));
          place(host, block);
        }
        RETURN_IF_ERROR(x.Flush());
      }
      return ScatterOnHost(result, to, deadline);
    });
  }

  Status DoBarrier(const Call& call, Deadline deadline) override {
    // All ranks of the host have come when their calls have been compared.
    return Run(call, deadline, [&](Exchange& x) -> Status {
      if (layout_.leads()) RETURN_IF_ERROR(comm::Barrier(x));
      return local_ == nullptr ? OkStatus() : local_->Barrier(deadline);
    });
  }

  Status DoSend(ConstSpan data, int to, Deadline deadline) override {
    Exchange x(*links_, rank(), ranks_, options(), {}, deadline);
    return Settle(x, x.SendLetter(to, data));
  }

  Status DoRecv(Span data, int from, Deadline deadline) override {
    Exchange x(*links_, rank(), ranks_, options(), {}, deadline);
    return Settle(x, x.RecvLetter(from, data));
  }

  void DoAbort() override {
    const Status why = status();
    links_->Fail(why);
    if (local_ != nullptr) local_->Abort(why);
  }

 private:
  template <typename Body>
  Status Run(const Call& call, Deadline deadline, Body body) {
    Exchange x(*links_, rank(), layout_.leaders, options(), call, deadline);
    lookout_->exchange = &x;
    Status outcome = CompareCalls(call, deadline);
    if (outcome.ok()) outcome = body(x);
    lookout_->exchange = nullptr;
    outcome = Settle(x, std::move(outcome));
    held_.clear();
    return outcome;
  }

  // Keeps what links are given to send until the call is settled: after a
  // failure they may still look at it.
  Bytes& Hold(Bytes bytes) { return held_.emplace_back(std::move(bytes)); }

  // The ranks of a host compare their calls here, leaders those of hosts with
  // the first message.
  Status CompareCalls(const Call& call, Deadline deadline) {
    if (local_ == nullptr) return OkStatus();
    using Words = std::array<uint64_t, 3>;
    auto pack = [](const Call& c) -> Words {
      return {static_cast<uint64_t>(c.kind) | static_cast<uint64_t>(c.op) << 8 |
                  static_cast<uint64_t>(c.type) << 16 |
                  static_cast<uint64_t>(static_cast<uint32_t>(c.root)) << 32,
              c.count, c.number};
    };
    const Words mine = pack(call);
    std::vector<Words> all(layout_.mine().size());
    RETURN_IF_ERROR(
        local_->AllGather({reinterpret_cast<const std::byte*>(&mine),
                           mine.size(), DataType::kInt64, nullptr},
                          {reinterpret_cast<std::byte*>(all.data()),
                           mine.size() * all.size(), DataType::kInt64, nullptr},
                          deadline));
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] == mine) continue;
      const Call other{.kind = static_cast<CallKind>(all[i][0] & 0xff),
                       .op = static_cast<ReduceOp>(all[i][0] >> 8 & 0xff),
                       .type = static_cast<DataType>(all[i][0] >> 16 & 0xff),
                       .root = static_cast<int32_t>(all[i][0] >> 32),
                       .count = all[i][1],
                       .number = all[i][2]};
      return Mismatch(rank(), call, layout_.mine()[i], other);
    }
    return OkStatus();
  }

  // What a failure is to be called; and then nobody waits for this rank, or
  // looks at the caller's memory.
  Status Settle(Exchange& x, Status outcome) {
    if (outcome.ok()) return outcome;
    if (!lookout_->cause.ok()) {
      outcome = lookout_->cause;
    } else if (local_ != nullptr && !local_->status().ok() && !broken()) {
      outcome = Explain(x, outcome);
    }
    if (!broken()) links_->TellFailure(x.call().number, outcome);
    links_->Fail(outcome);
    if (local_ != nullptr) local_->Abort(outcome);
    links_->WaitIdle();
    return outcome;
  }

  // A failure inside the host speaks of places there; in words of the group.
  Status Explain(Exchange& x, const Status& why) {
    RETURN_IF_ERROR(x.Hear());
    const std::vector<int> gone = x.Gone(layout_.mine());
    if (why.code() != StatusCode::kUnavailable || gone.empty()) return why;
    return Unavailable(ToString(x.call()), ": ", RankList(gone), " left");
  }

  // Into the leader's `data`; that of others stays as it is.
  Status ReduceOnHost(ReduceOp op, Span data, Deadline deadline) {
    if (local_ == nullptr) return OkStatus();
    return local_->Reduce(data, WithoutMean(op), 0, deadline);
  }

  Status BroadcastOnHost(Span data, int root, Deadline deadline) {
    if (local_ == nullptr) return OkStatus();
    return local_->Broadcast(data, root, deadline);
  }

  // The parts of all ranks of this host, at the leader; else nothing.
  Result<Bytes> GatherOnHost(ConstSpan mine, Deadline deadline) {
    if (local_ == nullptr) return CopyOf(mine);
    Bytes block(layout_.leads() ? mine.byte_size() * layout_.mine().size() : 0);
    RETURN_IF_ERROR(
        local_->Gather(mine, SpanOf(block, mine.type), 0, deadline));
    return block;
  }

  // The leader's `block` holds the parts of all ranks of this host.
  Status ScatterOnHost(Bytes& block, Span mine, Deadline deadline) {
    if (local_ == nullptr) {
      Copy(mine.data, block.data(), mine.byte_size());
      return OkStatus();
    }
    if (!layout_.leads()) block.clear();
    return local_->Scatter(SpanOf(block, mine.type), mine, 0, deadline);
  }

  // From the leader of the root's host to the root, when that is another.
  Status PassToRoot(ConstSpan from_leader, Span at_root, int root,
                    Deadline deadline) {
    const int place = layout_.place_on_host[root];
    if (layout_.host != layout_.host_of[root] || place == 0) return OkStatus();
    if (layout_.leads()) return local_->Send(from_leader, place, deadline);
    if (rank() == root) return local_->Recv(at_root, 0, deadline);
    return OkStatus();
  }

  // The root's `all` at the leader of its host; elsewhere nothing.
  Result<Bytes> TakeFromRoot(ConstSpan all, size_t byte_size, int root,
                             Deadline deadline) {
    if (layout_.host != layout_.host_of[root]) return Bytes();
    if (rank() == root) {
      if (layout_.leads()) return CopyOf(all);
      const ConstSpan bytes{all.data, byte_size, DataType::kUInt8, nullptr};
      RETURN_IF_ERROR(local_->Send(bytes, 0, deadline));
      return Bytes();
    }
    if (!layout_.leads()) return Bytes();
    Bytes whole(byte_size);
    RETURN_IF_ERROR(local_->Recv(SpanOf(whole, DataType::kUInt8),
                                 layout_.place_on_host[root], deadline));
    return whole;
  }

  // The parts of the ranks of `host`, one after the other.
  Bytes BlockOf(int host, const std::byte* all, size_t part) const {
    Bytes block;
    block.reserve(part * layout_.ranks[host].size());
    for (int i : layout_.ranks[host]) {
      block.insert(block.end(), all + i * part, all + (i + 1) * part);
    }
    return block;
  }

  // Takes the block of every other host and puts all parts where they belong.
  Status PlaceBlocks(Exchange& x, const Bytes& my_block, size_t part,
                     std::byte* all) {
    for (int host = 0; host < x.size(); ++host) {
      Bytes theirs;
      if (host != x.place()) {
        theirs.resize(part * layout_.ranks[host].size());
        RETURN_IF_ERROR(x.Recv(host, theirs));
      }
      const Bytes& block = host == x.place() ? my_block : theirs;
      for (size_t i = 0; i < layout_.ranks[host].size(); ++i) {
        Copy(all + layout_.ranks[host][i] * part, block.data() + i * part,
             part);
      }
    }
    return OkStatus();
  }

  const Layout layout_;
  const channel::Carrier carrier_;
  std::vector<int> ranks_;
  const std::unique_ptr<Lookout> lookout_;
  // The ranks of this host; null when this rank is alone there.
  const std::unique_ptr<Communicator> local_;
  // The last member, so that who sees that this rank has left its host finds
  // its links closed.
  const std::unique_ptr<Links> links_;
  std::deque<Bytes> held_;  // of the call that goes on
};

}  // namespace

Result<std::unique_ptr<Communicator>> ConnectHierarchical(
    const Meeting& meeting, const std::vector<int>& hosts,
    CommunicatorOptions options, Deadline deadline) {
  Layout layout(meeting.rank, hosts);
  ASSIGN_OR_RETURN(std::unique_ptr<Links> links,
                   ConnectLinks(meeting, options, deadline));
  auto lookout = std::make_unique<Lookout>();
  std::unique_ptr<Communicator> local;
  if (layout.mine().size() > 1) {
    Meeting inside = meeting;
    inside.prefix = base::Concat(meeting.prefix, "/host ", layout.host);
    inside.rank = layout.place;
    inside.size = static_cast<int>(layout.mine().size());
    // This rank speaks of stalls itself, in ranks of the group.
    CommunicatorOptions inner{
        .name = "inside the host",
        .stall_report = std::chrono::hours(24 * 365),
        .interrupt = [lookout = lookout.get(),
                      interrupt = options.interrupt]() -> Status {
          if (lookout->exchange != nullptr) return lookout->Look();
          return interrupt ? interrupt() : OkStatus();
        }};
    ASSIGN_OR_RETURN(local,
                     ConnectSharedMemory(inside, std::move(inner), deadline));
  }
  return std::make_unique<HierarchicalCommunicator>(
      meeting.rank, std::move(layout), meeting.carrier, std::move(options),
      std::move(links), std::move(lookout), std::move(local));
}

}  // namespace fleet::comm
