// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/channels.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/channel/meet.h"
#include "fleet/comm/exchange.h"
#include "fleet/comm/reduce.h"

namespace fleet::comm {
namespace {

using Bytes = std::span<std::byte>;

// What doubling sends log2(size) times, a ring sends less than twice, in
// 2(size-1) steps. Measured over loopback with four ranks.
constexpr size_t kDoublingByteSize = 32 << 10;
// Small enough that combining overlaps with the wire, large enough that a
// header does not show.
constexpr size_t kPieceByteSize = 256 << 10;
// How long a rank that leaves waits for others to take what it sent.
constexpr auto kLeavePatience = std::chrono::seconds(30);

// Calls body(piece) for every piece of `count` elements from `begin` on, as
// (first element, count).
template <typename Body>
Status ForPieces(size_t begin, size_t count, size_t width, Body body) {
  const size_t step = kPieceByteSize / width;
  for (size_t at = 0; at < count; at += step) {
    RETURN_IF_ERROR(body(begin + at, std::min(step, count - at)));
  }
  return OkStatus();
}

int Wrap(int rank, int size) { return ((rank % size) + size) % size; }

// A binomial tree over the ranks, counted from the root.
struct Tree {
  Tree(int rank, int root, int size) {
    const int place = Wrap(rank - root, size);
    for (int bit = 1; bit < size; bit *= 2) {
      if ((place & bit) != 0) {
        parent = Wrap(place - bit + root, size);
        break;
      }
      if (place + bit < size) {
        children.push_back(Wrap(place + bit + root, size));
      }
    }
  }
  int parent = -1;  // of the root
  std::vector<int> children;
};

// The elements of one call, cut into a block per rank.
class Blocks final {
 public:
  Blocks(Span data, int size) : data_(data), size_(size) {}
  size_t begin(int block) const {
    return data_.count * static_cast<size_t>(block) / size_;
  }
  size_t count(int block) const { return begin(block + 1) - begin(block); }
  size_t width() const { return ByteSize(data_.type); }
  Bytes bytes(size_t begin, size_t count) const {
    return {data_.data + begin * width(), count * width()};
  }
  template <typename Body>
  Status ForPieces(int block, Body body) const {
    return comm::ForPieces(begin(block), count(block), width(), body);
  }

 private:
  const Span data_;
  const size_t size_;
};

void DivideMean(const Call& call, std::byte* data, size_t count, int size) {
  if (call.op == ReduceOp::kMean) Divide(call.type, data, count, size);
}

// Ranks combine with partners at distance 1, 2, 4, ... Those beyond a power of
// two give theirs to a neighbour first and get the result from it.
Status AllReduceByDoubling(Exchange& x, Span data) {
  const Call& call = x.call();
  const Bytes mine{data.data, data.byte_size()};
  std::vector<std::byte> theirs(mine.size());
  // Lower rank first on both sides, so that even NaNs have the same bits.
  auto combine = [&](int peer) -> Status {
    const uint64_t sent = x.Send(peer, mine);
    RETURN_IF_ERROR(x.Recv(peer, theirs));
    RETURN_IF_ERROR(x.WaitSent(peer, sent));
    if (peer > x.rank()) {
      Combine(call.op, call.type, mine.data(), theirs.data(), call.count);
    } else {
      Combine(call.op, call.type, theirs.data(), mine.data(), call.count);
      std::copy(theirs.begin(), theirs.end(), mine.begin());
    }
    return OkStatus();
  };
  int power = 1;
  while (2 * power <= x.size()) power *= 2;
  const int beyond = x.size() - power;
  const bool paired = x.rank() < 2 * beyond;
  if (paired && x.rank() % 2 == 1) {
    x.Send(x.rank() - 1, mine);
    RETURN_IF_ERROR(x.Flush());
    return x.Recv(x.rank() - 1, mine);
  }
  if (paired) {
    RETURN_IF_ERROR(x.Recv(x.rank() + 1, theirs));
    Combine(call.op, call.type, mine.data(), theirs.data(), call.count);
  }
  const int place = paired ? x.rank() / 2 : x.rank() - beyond;
  for (int distance = 1; distance < power; distance *= 2) {
    const int other = place ^ distance;
    RETURN_IF_ERROR(combine(other < beyond ? 2 * other : other + beyond));
  }
  DivideMean(call, data.data, call.count, x.size());
  if (paired) x.Send(x.rank() + 1, mine);
  return x.Flush();
}

// Blocks travel around the ring: once to be combined, once to be spread. A
// piece goes on as soon as it is combined.
Status AllReduceByRing(Exchange& x, Span data) {
  const Call& call = x.call();
  const int size = x.size();
  const int next = Wrap(x.rank() + 1, size);
  const int previous = Wrap(x.rank() - 1, size);
  const Blocks blocks(data, size);
  std::vector<std::byte> theirs(kPieceByteSize);
  std::vector<uint64_t> sent(size);  // by block: its last post

  RETURN_IF_ERROR(blocks.ForPieces(x.rank(), [&](size_t begin, size_t count) {
    sent[x.rank()] = x.Send(next, blocks.bytes(begin, count));
    return OkStatus();
  }));
  for (int step = 0; step < size - 1; ++step) {
    const int block = Wrap(x.rank() - step - 1, size);
    const bool complete = step == size - 2;
    RETURN_IF_ERROR(
        blocks.ForPieces(block, [&](size_t begin, size_t count) -> Status {
          const Bytes piece = blocks.bytes(begin, count);
          RETURN_IF_ERROR(x.Recv(previous, Bytes(theirs).first(piece.size())));
          Combine(call.op, call.type, piece.data(), theirs.data(), count);
          if (complete) DivideMean(call, piece.data(), count, size);
          sent[block] = x.Send(next, piece);
          return OkStatus();
        }));
  }
  for (int step = 0; step < size - 1; ++step) {
    const int block = Wrap(x.rank() - step, size);
    // The result overwrites the sum so far, which has long been received;
    // but the thread that sent it may not know.
    RETURN_IF_ERROR(x.WaitSent(next, sent[block]));
    RETURN_IF_ERROR(
        blocks.ForPieces(block, [&](size_t begin, size_t count) -> Status {
          const Bytes piece = blocks.bytes(begin, count);
          RETURN_IF_ERROR(x.Recv(previous, piece));
          if (step < size - 2) x.Send(next, piece);
          return OkStatus();
        }));
  }
  return x.Flush();
}

// Everybody gives its parent what it combined of its children.
Status ReduceByTree(Exchange& x, Span data) {
  const Call& call = x.call();
  const Tree tree(x.rank(), call.root, x.size());
  for (int child : tree.children) x.Greet(child);
  std::vector<std::byte> theirs(std::min(data.byte_size(), kPieceByteSize));
  auto reduce = [&](size_t begin, size_t count) -> Status {
    const size_t width = ByteSize(call.type);
    const Bytes mine{data.data + begin * width, count * width};
    std::vector<std::byte> sum(mine.begin(), mine.end());
    for (int child : tree.children) {
      RETURN_IF_ERROR(x.Recv(child, Bytes(theirs).first(mine.size())));
      Combine(call.op, call.type, sum.data(), theirs.data(), count);
    }
    if (tree.parent >= 0) {
      x.SendKept(tree.parent, std::move(sum));
    } else {
      DivideMean(call, sum.data(), count, x.size());
      std::copy(sum.begin(), sum.end(), mine.begin());
    }
    return OkStatus();
  };
  if (data.count == 0) {
    RETURN_IF_ERROR(reduce(0, 0));
  }
  RETURN_IF_ERROR(ForPieces(0, data.count, ByteSize(call.type), reduce));
  if (tree.parent >= 0) {
    RETURN_IF_ERROR(x.RecvGreeting(tree.parent));
  }
  return x.Flush();
}

Status BroadcastByTree(Exchange& x, Span data) {
  const Call& call = x.call();
  const Tree tree(x.rank(), call.root, x.size());
  if (tree.parent >= 0) x.Greet(tree.parent);
  auto pass_on = [&](size_t begin, size_t count) -> Status {
    const size_t width = ByteSize(call.type);
    const Bytes piece{data.data + begin * width, count * width};
    if (tree.parent >= 0) RETURN_IF_ERROR(x.Recv(tree.parent, piece));
    for (int child : tree.children) x.Send(child, piece);
    return OkStatus();
  };
  if (data.count == 0) {
    RETURN_IF_ERROR(pass_on(0, 0));
  }
  RETURN_IF_ERROR(ForPieces(0, data.count, ByteSize(call.type), pass_on));
  // Nobody leaves before those that it serves have come.
  for (int child : tree.children) RETURN_IF_ERROR(x.RecvGreeting(child));
  return x.Flush();
}

Status AllGatherByRing(Exchange& x, ConstSpan mine, Span all) {
  const int size = x.size();
  const int next = Wrap(x.rank() + 1, size);
  const int previous = Wrap(x.rank() - 1, size);
  const Blocks blocks(all, size);
  const Bytes my_part = blocks.bytes(blocks.begin(x.rank()), mine.count);
  if (!my_part.empty()) std::memmove(my_part.data(), mine.data, my_part.size());
  if (size == 1) return OkStatus();
  if (mine.count == 0) {
    x.Greet(next);
    return x.RecvGreeting(previous);
  }
  RETURN_IF_ERROR(blocks.ForPieces(x.rank(), [&](size_t begin, size_t count) {
    x.Send(next, blocks.bytes(begin, count));
    return OkStatus();
  }));
  for (int step = 0; step < size - 1; ++step) {
    RETURN_IF_ERROR(blocks.ForPieces(Wrap(x.rank() - step - 1, size),
                                     [&](size_t begin, size_t count) -> Status {
                                       const Bytes piece =
                                           blocks.bytes(begin, count);
                                       RETURN_IF_ERROR(x.Recv(previous, piece));
                                       if (step < size - 2) x.Send(next, piece);
                                       return OkStatus();
                                     }));
  }
  return x.Flush();
}

Status ReduceScatterByRing(Exchange& x, ConstSpan all, Span mine) {
  const Call& call = x.call();
  const int size = x.size();
  const size_t width = ByteSize(call.type);
  if (size == 1) {
    if (mine.count != 0) {
      std::memmove(mine.data, all.data, mine.byte_size());
    }
    return OkStatus();
  }
  const int next = Wrap(x.rank() + 1, size);
  const int previous = Wrap(x.rank() - 1, size);
  if (mine.count == 0) {
    x.Greet(next);
    return x.RecvGreeting(previous);
  }
  RETURN_IF_ERROR(
      ForPieces(previous * mine.count, mine.count, width,
                [&](size_t begin, size_t count) {
                  x.Send(next, {all.data + begin * width, count * width});
                  return OkStatus();
                }));
  for (int step = 0; step < size - 1; ++step) {
    const size_t block_begin = Wrap(x.rank() - step - 2, size) * mine.count;
    const bool complete = step == size - 2;
    RETURN_IF_ERROR(ForPieces(block_begin, mine.count, width,
                              [&](size_t begin, size_t count) -> Status {
                                std::vector<std::byte> sum(count * width);
                                RETURN_IF_ERROR(x.Recv(previous, sum));
                                Combine(call.op, call.type, sum.data(),
                                        all.data + begin * width, count);
                                if (!complete) {
                                  x.SendKept(next, std::move(sum));
                                  return OkStatus();
                                }
                                DivideMean(call, sum.data(), count, size);
                                std::copy(
                                    sum.begin(), sum.end(),
                                    mine.data + (begin - block_begin) * width);
                                return OkStatus();
                              }));
  }
  return x.Flush();
}

Status ScatterDirectly(Exchange& x, ConstSpan all, Span mine) {
  const int root = x.call().root;
  const size_t part = mine.byte_size();
  if (x.rank() != root) {
    x.Greet(root);
    RETURN_IF_ERROR(x.Recv(root, {mine.data, part}));
    return x.Flush();
  }
  for (int i = 0; i < x.size(); ++i) {
    if (i != root) x.Send(i, {all.data + i * part, part});
  }
  if (part != 0) std::memmove(mine.data, all.data + root * part, part);
  for (int i = 0; i < x.size(); ++i) {
    if (i != root) RETURN_IF_ERROR(x.RecvGreeting(i));
  }
  return x.Flush();
}

Status GatherDirectly(Exchange& x, ConstSpan mine, Span all) {
  const int root = x.call().root;
  const size_t part = mine.byte_size();
  if (x.rank() != root) {
    x.Send(root, {mine.data, part});
    RETURN_IF_ERROR(x.RecvGreeting(root));
    return x.Flush();
  }
  for (int i = 0; i < x.size(); ++i) {
    if (i != root) x.Greet(i);
  }
  if (part != 0) std::memmove(all.data + root * part, mine.data, part);
  for (int i = 0; i < x.size(); ++i) {
    if (i != root) RETURN_IF_ERROR(x.Recv(i, {all.data + i * part, part}));
  }
  return x.Flush();
}

Status AllToAllDirectly(Exchange& x, ConstSpan from, Span to) {
  const int size = x.size();
  const size_t part = from.byte_size() / static_cast<size_t>(size);
  for (int step = 1; step < size; ++step) {
    const int peer = Wrap(x.rank() + step, size);
    x.Send(peer, {from.data + peer * part, part});
  }
  if (part != 0) {
    std::memmove(to.data + x.rank() * part, from.data + x.rank() * part, part);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = Wrap(x.rank() - step, size);
    RETURN_IF_ERROR(x.Recv(peer, {to.data + peer * part, part}));
  }
  return x.Flush();
}

// After round k everybody has heard, directly or not, of 2^(k+1) - 1 others.
Status BarrierByDissemination(Exchange& x) {
  for (int distance = 1; distance < x.size(); distance *= 2) {
    x.Greet(Wrap(x.rank() + distance, x.size()));
    RETURN_IF_ERROR(x.RecvGreeting(Wrap(x.rank() - distance, x.size())));
  }
  return x.Flush();
}

class Channels final : public Communicator {
 public:
  Channels(int rank, int size, CommunicatorOptions options,
           std::vector<std::unique_ptr<Link>> links, Whereabouts whereabouts)
      : Communicator(rank, size, std::move(options)),
        links_{std::move(links), std::move(whereabouts), {}} {}
  ~Channels() override {
    Finish();
    // What was sent still has to go out.
    const Deadline deadline = Deadline::After(kLeavePatience);
    for (auto& link : links_.to) {
      if (link == nullptr || broken()) continue;
      (void)link->WaitSent(link->posted(), deadline).ok();
    }
  }

  std::string_view backend() const override { return "tcp"; }

 protected:
  Status DoAllReduce(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline, [&](Exchange& x) {
      if (size() == 1) return OkStatus();
      return data.byte_size() <= kDoublingByteSize
                 ? AllReduceByDoubling(x, data)
                 : AllReduceByRing(x, data);
    });
  }
  Status DoReduce(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return ReduceByTree(x, data); });
  }
  Status DoBroadcast(const Call& call, Span data, Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return BroadcastByTree(x, data); });
  }
  Status DoAllGather(const Call& call, ConstSpan mine, Span all,
                     Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return AllGatherByRing(x, mine, all); });
  }
  Status DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                         Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return ReduceScatterByRing(x, all, mine); });
  }
  Status DoScatter(const Call& call, ConstSpan all, Span mine,
                   Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return ScatterDirectly(x, all, mine); });
  }
  Status DoGather(const Call& call, ConstSpan mine, Span all,
                  Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return GatherDirectly(x, mine, all); });
  }
  Status DoAllToAll(const Call& call, ConstSpan from, Span to,
                    Deadline deadline) override {
    return Run(call, deadline,
               [&](Exchange& x) { return AllToAllDirectly(x, from, to); });
  }
  Status DoBarrier(const Call& call, Deadline deadline) override {
    return Run(call, deadline, BarrierByDissemination);
  }
  Status DoSend(ConstSpan data, int to, Deadline) override {
    // Kept, so that ranks that send to each other never wait for each other.
    const LinkHeader header{.kind = LinkHeader::Kind::kLetter,
                            .call = {.type = data.type, .count = data.count},
                            .byte_size = data.byte_size()};
    links_.to[to]->Post(header, std::vector<std::byte>(
                                    data.data, data.data + data.byte_size()));
    return OkStatus();
  }
  Status DoRecv(Span data, int from, Deadline deadline) override {
    return Run({}, deadline,
               [&](Exchange& x) { return x.RecvLetter(from, data); });
  }
  void DoAbort() override { links_.Fail(status()); }

 private:
  template <typename Body>
  Status Run(const Call& call, Deadline deadline, Body body) {
    Exchange exchange(links_, rank(), options(), call, deadline);
    Status outcome = body(exchange);
    if (outcome.ok()) return outcome;
    // The others may wait for this rank; and nobody may look at the caller's
    // memory any more.
    if (!broken()) links_.TellFailure(outcome);
    links_.Fail(outcome);
    links_.WaitIdle();
    return outcome;
  }

  Links links_;
};

// Meets all other ranks: of two, the higher listens.
class Gathering final {
 public:
  Gathering(const Meeting& meeting, const CommunicatorOptions& options,
            Deadline deadline)
      : meeting_(meeting), options_(options), deadline_(deadline) {}

  Result<std::vector<std::unique_ptr<Link>>> Meet() {
    channel::MeetOptions meet{.self = {.rank = meeting_.rank},
                              .secret = meeting_.secret,
                              .interrupt = options_.interrupt};
    ASSIGN_OR_RETURN(
        auto listener,
        channel::Listener::Bind({.host = meeting_.host, .port = 0}, meet));
    RETURN_IF_ERROR(meeting_.store->Set(
        Key(meeting_.rank), listener->address().ToString(), deadline_));
    links_.resize(meeting_.size);
    for (int i = meeting_.rank + 1; i < meeting_.size; ++i) {
      ASSIGN_OR_RETURN(const channel::Address address, AddressOf(i));
      ASSIGN_OR_RETURN(channel::Connection connection,
                       channel::Connect(address, meet, deadline_));
      RETURN_IF_ERROR(Add(i, std::move(connection)));
    }
    for (int i = 0; i < meeting_.rank; ++i) {
      Result<channel::Connection> connection = base::WaitInterruptibly(
          deadline_, options_.interrupt,
          [&](Deadline slice) { return listener->Accept(slice); });
      if (!connection.ok()) return Missing(connection.status());
      RETURN_IF_ERROR(Add(connection->peer.rank, *std::move(connection)));
    }
    return std::move(links_);
  }

 private:
  std::string Key(int rank) const {
    return base::Concat(meeting_.prefix, "/address/", rank);
  }

  Result<channel::Address> AddressOf(int rank) {
    Result<std::vector<std::string>> found = base::WaitInterruptibly(
        deadline_, options_.interrupt, [&](Deadline slice) {
          return meeting_.store->Wait({Key(rank)}, slice);
        });
    if (!found.ok()) return Missing(found.status());
    return channel::Address::Parse(found->front());
  }

  Status Add(int rank, channel::Connection connection) {
    const int came = connection.peer.rank;
    if (came != rank || came < 0 || came >= meeting_.size ||
        came == meeting_.rank || links_[came] != nullptr) {
      return FailedPrecondition("rank ", meeting_.rank, " met ",
                                connection.peer.Name(), ", which is not due");
    }
    links_[came] = std::make_unique<Link>(came, std::move(connection.channel));
    return OkStatus();
  }

  // `why`, and if it is that somebody is late, who.
  Status Missing(const Status& why) const {
    if (why.code() != StatusCode::kDeadlineExceeded) return why;
    std::vector<int> ranks;
    for (int i = 0; i < meeting_.size; ++i) {
      const bool here =
          i == meeting_.rank || links_[i] != nullptr ||
          (i > meeting_.rank &&
           meeting_.store->Get(Key(i), Deadline::After(std::chrono::seconds(1)))
               .ok());
      if (!here) ranks.push_back(i);
    }
    return DeadlineExceeded("no connection to ", RankList(ranks), ": ",
                            why.message());
  }

  const Meeting& meeting_;
  const CommunicatorOptions& options_;
  const Deadline deadline_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> ConnectChannels(
    const Meeting& meeting, CommunicatorOptions options, Deadline deadline) {
  Result<std::vector<std::unique_ptr<Link>>> links =
      Gathering(meeting, options, deadline).Meet();
  if (!links.ok()) return links.status().WithContext(options.name);
  return std::make_unique<Channels>(
      meeting.rank, meeting.size, std::move(options), *std::move(links),
      Whereabouts(*meeting.store, meeting.prefix, meeting.rank, meeting.size));
}

}  // namespace fleet::comm
