// SPDX-License-Identifier: Apache-2.0

// Collectives on tensors, over all ranks of a job or over a group of them.
//
//   torch::Tensor loss = ...;
//   RETURN_IF_ERROR(fleet::AllReduce(*job, loss.detach(), ReduceOp::kMean));
//   ASSIGN_OR_RETURN(fleet::Group* even, job->NewGroup({0, 2}));
//   if (even->rank() >= 0) RETURN_IF_ERROR(fleet::AllReduce(*even, loss));
//
// What they do is said in sync/tensor_collectives.h. Roots and peers are ranks
// of the group. Calls wait for late ranks as long as the group says, and fail
// as Group::Run.

#ifndef FLEET_COLLECTIVES_H_
#define FLEET_COLLECTIVES_H_

#include <vector>

#include "fleet/job.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet {

using comm::ReduceOp;

// Over whom a collective is.
class Ranks final {
 public:
  Ranks(Job& job) : group_(job.group()) {}  // NOLINT: meant to convert
  Ranks(Group& group) : group_(group) {}    // NOLINT: meant to convert

  Group* operator->() const { return &group_; }

 private:
  Group& group_;
};

inline Status AllReduce(Ranks over, const at::Tensor& data,
                        ReduceOp op = ReduceOp::kSum) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::AllReduce(c, data, op, until);
  });
}

inline Status Reduce(Ranks over, const at::Tensor& data, int root,
                     ReduceOp op = ReduceOp::kSum) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::Reduce(c, data, op, root, until);
  });
}

inline Status Broadcast(Ranks over, const at::Tensor& data, int root) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::Broadcast(c, data, root, until);
  });
}

inline Result<std::vector<at::Tensor>> AllGather(Ranks over,
                                                 const at::Tensor& mine) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::AllGather(c, mine, until);
  });
}

inline Result<std::vector<at::Tensor>> Gather(Ranks over,
                                              const at::Tensor& mine,
                                              int root) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::Gather(c, mine, root, until);
  });
}

inline Status Scatter(Ranks over, const std::vector<at::Tensor>& parts,
                      const at::Tensor& mine, int root) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::Scatter(c, parts, mine, root, until);
  });
}

inline Status ReduceScatter(Ranks over, const std::vector<at::Tensor>& parts,
                            const at::Tensor& mine,
                            ReduceOp op = ReduceOp::kSum) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::ReduceScatter(c, parts, mine, op, until);
  });
}

inline Result<std::vector<at::Tensor>> AllToAll(
    Ranks over, const std::vector<at::Tensor>& parts) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::AllToAll(c, parts, until);
  });
}

inline Status Send(Ranks over, const at::Tensor& data, int to) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::Send(c, data, to, until);
  });
}

inline Status Recv(Ranks over, const at::Tensor& data, int from) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return sync::Recv(c, data, from, until);
  });
}

inline Status Barrier(Ranks over) {
  return over->Run([&](comm::Communicator& c, base::Deadline until) {
    return c.Barrier(until);
  });
}

}  // namespace fleet

#endif  // FLEET_COLLECTIVES_H_
