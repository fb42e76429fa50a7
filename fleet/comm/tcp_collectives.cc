// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/tcp_collectives.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

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

void Complete(Reduction reduction, DataType type, std::byte* data,
              size_t count) {
  if (reduction.op == ReduceOp::kMean) {
    Divide(type, data, count, reduction.num_ranks);
  }
}

// Ranks combine with partners at distance 1, 2, 4, ... Those beyond a power of
// two give theirs to a neighbour first and get the result from it.
Status AllReduceByDoubling(Exchange& x, Reduction reduction, Span data) {
  const Bytes mine{data.data, data.byte_size()};
  std::vector<std::byte> theirs(mine.size());
  // Lower rank first on both sides, so that even NaNs have the same bits.
  auto combine = [&](int peer) -> Status {
    const uint64_t sent = x.Send(peer, mine);
    RETURN_IF_ERROR(x.Recv(peer, theirs));
    RETURN_IF_ERROR(x.WaitSent(peer, sent));
    if (peer > x.place()) {
      Combine(reduction.op, data.type, mine.data(), theirs.data(), data.count);
    } else {
      Combine(reduction.op, data.type, theirs.data(), mine.data(), data.count);
      std::copy(theirs.begin(), theirs.end(), mine.begin());
    }
    return OkStatus();
  };
  int power = 1;
  while (2 * power <= x.size()) power *= 2;
  const int beyond = x.size() - power;
  const bool paired = x.place() < 2 * beyond;
  if (paired && x.place() % 2 == 1) {
    x.Send(x.place() - 1, mine);
    RETURN_IF_ERROR(x.Flush());
    return x.Recv(x.place() - 1, mine);
  }
  if (paired) {
    RETURN_IF_ERROR(x.Recv(x.place() + 1, theirs));
    Combine(reduction.op, data.type, mine.data(), theirs.data(), data.count);
  }
  const int place = paired ? x.place() / 2 : x.place() - beyond;
  for (int distance = 1; distance < power; distance *= 2) {
    const int other = place ^ distance;
    RETURN_IF_ERROR(combine(other < beyond ? 2 * other : other + beyond));
  }
  Complete(reduction, data.type, data.data, data.count);
  if (paired) x.Send(x.place() + 1, mine);
  return x.Flush();
}

// Blocks travel around the ring: once to be combined, once to be spread. A
// piece goes on as soon as it is combined.
Status AllReduceByRing(Exchange& x, Reduction reduction, Span data) {
  const int size = x.size();
  const int next = Wrap(x.place() + 1, size);
  const int previous = Wrap(x.place() - 1, size);
  const Blocks blocks(data, size);
  std::vector<std::byte> theirs(kPieceByteSize);
  std::vector<uint64_t> sent(size);  // by block: its last post

  RETURN_IF_ERROR(blocks.ForPieces(x.place(), [&](size_t begin, size_t count) {
    sent[x.place()] = x.Send(next, blocks.bytes(begin, count));
    return OkStatus();
  }));
  for (int step = 0; step < size - 1; ++step) {
    const int block = Wrap(x.place() - step - 1, size);
    const bool complete = step == size - 2;
    RETURN_IF_ERROR(
        blocks.ForPieces(block, [&](size_t begin, size_t count) -> Status {
          const Bytes piece = blocks.bytes(begin, count);
          RETURN_IF_ERROR(x.Recv(previous, Bytes(theirs).first(piece.size())));
          Combine(reduction.op, data.type, piece.data(), theirs.data(), count);
          if (complete) Complete(reduction, data.type, piece.data(), count);
          sent[block] = x.Send(next, piece);
          return OkStatus();
        }));
  }
  for (int step = 0; step < size - 1; ++step) {
    const int block = Wrap(x.place() - step, size);
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

}  // namespace

Status AllReduce(Exchange& x, Reduction reduction, Span data) {
  if (x.size() == 1) {
    Complete(reduction, data.type, data.data, data.count);
    return OkStatus();
  }
  return data.byte_size() <= kDoublingByteSize
             ? AllReduceByDoubling(x, reduction, data)
             : AllReduceByRing(x, reduction, data);
}

// Everybody gives its parent what it combined of its children.
Status Reduce(Exchange& x, Reduction reduction, Span data, int root) {
  const Tree tree(x.place(), root, x.size());
  for (int child : tree.children) x.Greet(child);
  std::vector<std::byte> theirs(std::min(data.byte_size(), kPieceByteSize));
  auto reduce = [&](size_t begin, size_t count) -> Status {
    const size_t width = ByteSize(data.type);
    const Bytes mine{data.data + begin * width, count * width};
    std::vector<std::byte> sum(mine.begin(), mine.end());
    for (int child : tree.children) {
      RETURN_IF_ERROR(x.Recv(child, Bytes(theirs).first(mine.size())));
      Combine(reduction.op, data.type, sum.data(), theirs.data(), count);
    }
    if (tree.parent >= 0) {
      x.SendKept(tree.parent, std::move(sum));
    } else {
      Complete(reduction, data.type, sum.data(), count);
      std::copy(sum.begin(), sum.end(), mine.begin());
    }
    return OkStatus();
  };
  if (data.count == 0) {
    RETURN_IF_ERROR(reduce(0, 0));
  }
  RETURN_IF_ERROR(ForPieces(0, data.count, ByteSize(data.type), reduce));
  if (tree.parent >= 0) {
    RETURN_IF_ERROR(x.RecvGreeting(tree.parent));
  }
  return x.Flush();
}

Status Broadcast(Exchange& x, Span data, int root) {
  const Tree tree(x.place(), root, x.size());
  if (tree.parent >= 0) x.Greet(tree.parent);
  auto pass_on = [&](size_t begin, size_t count) -> Status {
    const size_t width = ByteSize(data.type);
    const Bytes piece{data.data + begin * width, count * width};
    if (tree.parent >= 0) RETURN_IF_ERROR(x.Recv(tree.parent, piece));
    for (int child : tree.children) x.Send(child, piece);
    return OkStatus();
  };
  if (data.count == 0) {
    RETURN_IF_ERROR(pass_on(0, 0));
  }
  RETURN_IF_ERROR(ForPieces(0, data.count, ByteSize(data.type), pass_on));
  // Nobody leaves before those that it serves have come.
  for (int child : tree.children) RETURN_IF_ERROR(x.RecvGreeting(child));
  return x.Flush();
}

Status AllGather(Exchange& x, ConstSpan mine, Span all) {
  const int size = x.size();
  const int next = Wrap(x.place() + 1, size);
  const int previous = Wrap(x.place() - 1, size);
  const Blocks blocks(all, size);
  const Bytes my_part = blocks.bytes(blocks.begin(x.place()), mine.count);
  if (!my_part.empty()) std::memmove(my_part.data(), mine.data, my_part.size());
  if (size == 1) return OkStatus();
  if (mine.count == 0) {
    x.Greet(next);
    return x.RecvGreeting(previous);
  }
  RETURN_IF_ERROR(blocks.ForPieces(x.place(), [&](size_t begin, size_t count) {
    x.Send(next, blocks.bytes(begin, count));
    return OkStatus();
  }));
  for (int step = 0; step < size - 1; ++step) {
    RETURN_IF_ERROR(blocks.ForPieces(Wrap(x.place() - step - 1, size),
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

Status ReduceScatter(Exchange& x, Reduction reduction, ConstSpan all,
                     Span mine) {
  const int size = x.size();
  const size_t width = ByteSize(mine.type);
  if (size == 1) {
    if (mine.count != 0) {
      std::memmove(mine.data, all.data, mine.byte_size());
    }
    return OkStatus();
  }
  const int next = Wrap(x.place() + 1, size);
  const int previous = Wrap(x.place() - 1, size);
  if (mine.count == 0) {
    x.Greet(next);
    return x.RecvGreeting(previous);
  }
  RETURN_IF_ERROR(ForPieces(previous * mine.count, mine.count, width,
                            [&](size_t begin, size_t count) {
                              x.Send(next,
                                     {all.data + begin * width, count * width});
                              return OkStatus();
                            }));
  for (int step = 0; step < size - 1; ++step) {
    const size_t block_begin = Wrap(x.place() - step - 2, size) * mine.count;
    const bool complete = step == size - 2;
    RETURN_IF_ERROR(
        ForPieces(block_begin, mine.count, width,
                  [&](size_t begin, size_t count) -> Status {
                    std::vector<std::byte> sum(count * width);
                    RETURN_IF_ERROR(x.Recv(previous, sum));
                    Combine(reduction.op, mine.type, sum.data(),
                            all.data + begin * width, count);
                    if (!complete) {
                      x.SendKept(next, std::move(sum));
                      return OkStatus();
                    }
                    Complete(reduction, mine.type, sum.data(), count);
                    std::copy(sum.begin(), sum.end(),
                              mine.data + (begin - block_begin) * width);
                    return OkStatus();
                  }));
  }
  return x.Flush();
}

Status Scatter(Exchange& x, ConstSpan all, Span mine, int root) {
  const size_t part = mine.byte_size();
  if (x.place() != root) {
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

Status Gather(Exchange& x, ConstSpan mine, Span all, int root) {
  const size_t part = mine.byte_size();
  if (x.place() != root) {
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

Status AllToAll(Exchange& x, ConstSpan from, Span to) {
  const int size = x.size();
  const size_t part = from.byte_size() / static_cast<size_t>(size);
  for (int step = 1; step < size; ++step) {
    const int peer = Wrap(x.place() + step, size);
    x.Send(peer, {from.data + peer * part, part});
  }
  if (part != 0) {
    std::memmove(to.data + x.place() * part, from.data + x.place() * part,
                 part);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = Wrap(x.place() - step, size);
    RETURN_IF_ERROR(x.Recv(peer, {to.data + peer * part, part}));
  }
  return x.Flush();
}

// After round k everybody has heard, directly or not, of 2^(k+1) - 1 others.
Status Barrier(Exchange& x) {
  for (int distance = 1; distance < x.size(); distance *= 2) {
    x.Greet(Wrap(x.place() + distance, x.size()));
    RETURN_IF_ERROR(x.RecvGreeting(Wrap(x.place() - distance, x.size())));
  }
  return x.Flush();
}

}  // namespace fleet::comm
