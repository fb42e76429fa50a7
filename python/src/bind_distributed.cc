// SPDX-License-Identifier: Apache-2.0

// Collectives on tensors and bytes, for paddle.distributed.

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/chunk.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "fleet/comm/communicator.h"
#include "fleet/sync/tensor_collectives.h"

#include "collective_call.h"
#include "job.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

using base::Deadline;
using comm::Communicator;
using comm::ReduceOp;

std::vector<at::Tensor> Values(const std::vector<Tensor>& tensors) {
  std::vector<at::Tensor> values;
  for (const Tensor& t : tensors) values.push_back(t.value);
  return values;
}

std::vector<Tensor> Wrapped(std::vector<at::Tensor> values) {
  std::vector<Tensor> tensors;
  for (at::Tensor& value : values) tensors.push_back(Tensor{std::move(value)});
  return tensors;
}

// The memory of `tensor`, about to be overwritten.
const at::Tensor& Written(Tensor& tensor) {
  PrepareInPlace(tensor);
  return tensor.value;
}

std::vector<at::Tensor> AllWritten(const std::vector<Tensor*>& tensors) {
  std::vector<at::Tensor> values;
  for (Tensor* tensor : tensors) values.push_back(Written(*tensor));
  return values;
}

// Paddle's numbers.
ReduceOp OpOf(int number) {
  switch (number) {
    case 0:
      return ReduceOp::kSum;
    case 1:
      return ReduceOp::kMax;
    case 2:
      return ReduceOp::kMin;
    case 3:
      return ReduceOp::kProduct;
    case 4:
      return ReduceOp::kMean;
  }
  ThrowIfError(InvalidArgument("op=", number,
                               ", which is none of ReduceOp.SUM, MAX, MIN, "
                               "PROD and AVG"));
  return ReduceOp::kSum;
}

// The rank in `group` of a rank of the job.
int MemberOf(const Group& group, const char* what, int job_rank) {
  const int rank = group.RankOf(job_rank);
  if (rank < 0) {
    ThrowIfError(InvalidArgument(what, "=", job_rank, " is not in group ",
                                 group.id(), "; it takes ranks of the job"));
  }
  return rank;
}

// Runs a call that returns tensors: they are returned, or copied into
// `targets`, which a call without waiting needs.
template <typename Call>
nb::object RunList(Group& group, bool sync,
                   const std::optional<std::vector<Tensor*>>& targets,
                   Call call) {
  if (group.communicator() == nullptr) return nb::none();
  if (targets) {
    return Run(group, sync,
               [call = std::move(call), into = AllWritten(*targets)](
                   Communicator& communicator, Deadline deadline) -> Status {
                 ASSIGN_OR_RETURN(std::vector<at::Tensor> parts,
                                  call(communicator, deadline));
                 at::NoGradGuard guard;
                 for (size_t i = 0; i < parts.size() && i < into.size(); ++i) {
                   into[i].copy_(parts[i]);
                 }
                 return OkStatus();
               });
  }
  std::vector<at::Tensor> parts;
  Run(group, true,
      [&](Communicator& communicator, Deadline deadline) -> Status {
        ASSIGN_OR_RETURN(parts, call(communicator, deadline));
        return OkStatus();
      });
  return nb::cast(Wrapped(std::move(parts)));
}

nb::object AllReduce(Tensor& tensor, int op, nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  if (g.rank() < 0) return nb::none();
  return Run(g, sync,
             [value = Written(tensor), op = OpOf(op)](Communicator& c,
                                                      Deadline deadline) {
               return sync::AllReduce(c, value, op, deadline);
             });
}

nb::object Broadcast(Tensor& tensor, int src, nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  if (g.rank() < 0) return nb::none();
  return Run(g, sync,
             [value = Written(tensor), root = MemberOf(g, "src", src)](
                 Communicator& c, Deadline deadline) {
               return sync::Broadcast(c, value, root, deadline);
             });
}

nb::object Reduce(Tensor& tensor, int dst, int op, nb::handle group,
                  bool sync) {
  Group& g = GroupOf(group);
  if (g.rank() < 0) return nb::none();
  return Run(g, sync,
             [value = Written(tensor), root = MemberOf(g, "dst", dst),
              op = OpOf(op)](Communicator& c, Deadline deadline) {
               return sync::Reduce(c, value, op, root, deadline);
             });
}

nb::object Send(const Tensor& tensor, int dst, nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  return Run(g, sync,
             [value = tensor.value, to = MemberOf(g, "dst", dst)](
                 Communicator& c, Deadline deadline) {
               return sync::Send(c, value, to, deadline);
             });
}

nb::object Recv(Tensor& tensor, int src, nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  return Run(g, sync,
             [value = Written(tensor), from = MemberOf(g, "src", src)](
                 Communicator& c, Deadline deadline) {
               return sync::Recv(c, value, from, deadline);
             });
}

nb::object AllGather(const Tensor& tensor,
                     std::optional<std::vector<Tensor*>> targets,
                     nb::handle group, bool sync) {
  return RunList(GroupOf(group), sync, targets,
                 [value = tensor.value](Communicator& c, Deadline deadline) {
                   return sync::AllGather(c, value, deadline);
                 });
}

nb::object Gather(const Tensor& tensor,
                  std::optional<std::vector<Tensor*>> targets, int dst,
                  nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  return RunList(g, sync, targets,
                 [value = tensor.value, root = MemberOf(g, "dst", dst)](
                     Communicator& c, Deadline deadline) {
                   return sync::Gather(c, value, root, deadline);
                 });
}

nb::object AllToAll(const std::vector<Tensor>& parts,
                    std::optional<std::vector<Tensor*>> targets,
                    nb::handle group, bool sync) {
  return RunList(GroupOf(group), sync, targets,
                 [values = Values(parts)](Communicator& c, Deadline deadline) {
                   return sync::AllToAll(c, values, deadline);
                 });
}

// Equal parts of one tensor, along its first dimension.
std::vector<at::Tensor> Chunks(const Group& group, const char* what,
                               const at::Tensor& tensor) {
  const int64_t n = group.size();
  if (tensor.dim() == 0 || tensor.size(0) % n != 0) {
    ThrowIfError(InvalidArgument(what, ": shape ",
                                 c10::IntArrayRef(tensor.sizes()),
                                 " cannot be cut into ", n, " equal parts"));
  }
  return at::chunk(tensor, n);
}

nb::object AllToAllSingle(Tensor& out, const Tensor& in, nb::handle group,
                          bool sync) {
  Group& g = GroupOf(group);
  if (g.rank() < 0) return nb::none();
  return Run(g, sync,
             [parts = Chunks(g, "alltoall_single: in_tensor", in.value),
              into = Chunks(g, "alltoall_single: out_tensor", Written(out))](
                 Communicator& c, Deadline deadline) -> Status {
               ASSIGN_OR_RETURN(std::vector<at::Tensor> came,
                                sync::AllToAll(c, parts, deadline));
               at::NoGradGuard guard;
               for (size_t i = 0; i < came.size(); ++i) into[i].copy_(came[i]);
               return OkStatus();
             });
}

nb::object Scatter(Tensor& tensor, const std::vector<Tensor>& parts, int src,
                   nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  if (g.rank() < 0) return nb::none();
  return Run(
      g, sync,
      [values = Values(parts), mine = Written(tensor),
       root = MemberOf(g, "src", src)](Communicator& c, Deadline deadline) {
        return sync::Scatter(c, values, mine, root, deadline);
      });
}

nb::object ReduceScatter(Tensor& tensor, const std::vector<Tensor>& parts,
                         int op, nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  if (g.rank() < 0) return nb::none();
  return Run(g, sync,
             [values = Values(parts), mine = Written(tensor), op = OpOf(op)](
                 Communicator& c, Deadline deadline) {
               return sync::ReduceScatter(c, values, mine, op, deadline);
             });
}

void Barrier(nb::handle group) {
  Run(GroupOf(group), true,
      [](Communicator& c, Deadline deadline) { return c.Barrier(deadline); });
}

// Until what was started is done; the outcome is that of its own task.
void WaitStarted(nb::handle group) {
  nb::object task = Run(GroupOf(group), false,
                        [](Communicator& c, Deadline) { return c.status(); });
  if (!task.is_none()) nb::inst_ptr<Task>(task)->Wait(std::nullopt);
}

comm::ConstBytes BytesOf(const nb::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

nb::bytes ToBytes(const std::vector<std::byte>& bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

std::vector<nb::bytes> AllGatherBytes(const nb::bytes& mine, nb::handle group) {
  std::vector<std::vector<std::byte>> all;
  Run(GroupOf(group), true,
      [&, mine = BytesOf(mine)](Communicator& c, Deadline deadline) -> Status {
        ASSIGN_OR_RETURN(all, c.AllGatherBytes(mine, deadline));
        return OkStatus();
      });
  std::vector<nb::bytes> parts;
  for (const std::vector<std::byte>& part : all) parts.push_back(ToBytes(part));
  return parts;
}

nb::bytes BroadcastBytes(const nb::bytes& mine, int src, nb::handle group) {
  Group& g = GroupOf(group);
  std::vector<std::byte> bytes;
  Run(g, true,
      [&, mine = BytesOf(mine), root = MemberOf(g, "src", src)](
          Communicator& c, Deadline deadline) -> Status {
        ASSIGN_OR_RETURN(bytes, c.BroadcastBytes(mine, root, deadline));
        return OkStatus();
      });
  return ToBytes(bytes);
}

}  // namespace

void BindDistributed(nb::module_& m) {
  const auto group = nb::arg("group").none();
  const auto targets = nb::arg("targets").none();
  m.def("all_reduce", AllReduce, nb::arg("tensor"), nb::arg("op"), group,
        nb::arg("sync"));
  m.def("broadcast", Broadcast, nb::arg("tensor"), nb::arg("src"), group,
        nb::arg("sync"));
  m.def("reduce", Reduce, nb::arg("tensor"), nb::arg("dst"), nb::arg("op"),
        group, nb::arg("sync"));
  m.def("send", Send, nb::arg("tensor"), nb::arg("dst"), group,
        nb::arg("sync"));
  m.def("recv", Recv, nb::arg("tensor"), nb::arg("src"), group,
        nb::arg("sync"));
  m.def("all_gather", AllGather, nb::arg("tensor"), targets, group,
        nb::arg("sync"));
  m.def("gather", Gather, nb::arg("tensor"), targets, nb::arg("dst"), group,
        nb::arg("sync"));
  m.def("alltoall", AllToAll, nb::arg("parts"), targets, group,
        nb::arg("sync"));
  m.def("alltoall_single", AllToAllSingle, nb::arg("out"), nb::arg("tensor"),
        group, nb::arg("sync"));
  m.def("scatter", Scatter, nb::arg("tensor"), nb::arg("parts"), nb::arg("src"),
        group, nb::arg("sync"));
  m.def("reduce_scatter", ReduceScatter, nb::arg("tensor"), nb::arg("parts"),
        nb::arg("op"), group, nb::arg("sync"));
  m.def("barrier", Barrier, group);
  m.def("wait_started", WaitStarted, group);
  m.def("all_gather_bytes", AllGatherBytes, nb::arg("mine"), group);
  m.def("broadcast_bytes", BroadcastBytes, nb::arg("mine"), nb::arg("src"),
        group);
}

}  // namespace fleet::python
