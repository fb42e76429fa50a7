// SPDX-License-Identifier: Apache-2.0

// Collectives and data parallel training, for paddle.distributed and
// paddle.DataParallel.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/chunk.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "fleet/base/interrupt.h"
#include "fleet/comm/communicator.h"
#include "fleet/ops/aten_error.h"
#include "fleet/sync/reducer.h"
#include "fleet/sync/sync_batch_norm.h"
#include "fleet/sync/tensor_collectives.h"

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
                                 group.id, "; it takes ranks of the job"));
  }
  return rank;
}

// What a call without waiting returns.
class Task {
 public:
  Task(base::Future<> future, base::InterruptCheck interrupt)
      : future_(std::move(future)), interrupt_(std::move(interrupt)) {}

  bool Wait(std::optional<double> seconds) {
    if (!done_) {
      const Deadline deadline =
          seconds ? Deadline::After(
                        std::chrono::duration_cast<std::chrono::nanoseconds>(
                            std::chrono::duration<double>(*seconds)))
                  : Deadline::Infinite();  // the call has a deadline of its own
      nb::gil_scoped_release release;
      outcome_ = WaitInterruptibly(
          deadline, interrupt_,
          [this](Deadline slice) { return future_.Wait(slice); });
      done_ = future_.ready();
    }
    const bool late = outcome_.code() == StatusCode::kDeadlineExceeded;
    if (!done_ && late) return false;
    ThrowIfError(outcome_);
    return true;
  }

  bool IsCompleted() const { return done_ || future_.ready(); }

 private:
  base::Future<> future_;
  base::InterruptCheck interrupt_;
  bool done_ = false;
  Status outcome_;  // once done
};

// Runs `call(communicator, deadline)` without the GIL: now, or behind a Task.
template <typename Call>
nb::object Run(Group& group, bool sync, Call call) {
  if (group.communicator == nullptr) return nb::none();
  const Job& job = *group.job;
  if (!sync) {
    auto later = [call = std::move(call), &job](Communicator& communicator) {
      try {
        at::NoGradGuard guard;
        return call(communicator, job.deadline());
      } catch (const c10::Error& error) {
        return ops::FromException(error);
      }
    };
    nb::gil_scoped_release release;
    base::Future<> done = group.communicator->Start(std::move(later));
    nb::gil_scoped_acquire acquire;
    return nb::cast(Task(std::move(done), job.interrupt()));
  }
  Status status;
  {
    nb::gil_scoped_release release;
    std::lock_guard lock(group.one_call);
    status = call(*group.communicator, job.deadline());
  }
  ThrowIfError(status);
  return nb::none();
}

// The same for a call that returns tensors: they are returned, or copied into
// `targets`, which a call without waiting needs.
template <typename Call>
nb::object RunList(Group& group, bool sync,
                   const std::optional<std::vector<Tensor*>>& targets,
                   Call call) {
  if (group.communicator == nullptr) return nb::none();
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
  if (g.rank < 0) return nb::none();
  return Run(g, sync,
             [value = Written(tensor), op = OpOf(op)](Communicator& c,
                                                      Deadline deadline) {
               return sync::AllReduce(c, value, op, deadline);
             });
}

nb::object Broadcast(Tensor& tensor, int src, nb::handle group, bool sync) {
  Group& g = GroupOf(group);
  if (g.rank < 0) return nb::none();
  return Run(g, sync,
             [value = Written(tensor), root = MemberOf(g, "src", src)](
                 Communicator& c, Deadline deadline) {
               return sync::Broadcast(c, value, root, deadline);
             });
}

nb::object Reduce(Tensor& tensor, int dst, int op, nb::handle group,
                  bool sync) {
  Group& g = GroupOf(group);
  if (g.rank < 0) return nb::none();
  return Run(g, sync,
             [value = Written(tensor), root = MemberOf(g, "dst", dst),
              op = OpOf(op)](Communicator& c, Deadline deadline) {
               return sync::Reduce(c, value, op, root, deadline);
             });
}

void Send(const Tensor& tensor, int dst, nb::handle group) {
  Group& g = GroupOf(group);
  Run(g, true,
      [value = tensor.value, to = MemberOf(g, "dst", dst)](Communicator& c,
                                                           Deadline deadline) {
        return sync::Send(c, value, to, deadline);
      });
}

void Recv(Tensor& tensor, int src, nb::handle group) {
  Group& g = GroupOf(group);
  Run(g, true,
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
  const auto n = static_cast<int64_t>(group.ranks.size());
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
  if (g.rank < 0) return nb::none();
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
  if (g.rank < 0) return nb::none();
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
  if (g.rank < 0) return nb::none();
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

// A name, a tensor, and whether its gradients are rows.
using Named = std::tuple<std::string, Tensor*, bool>;

std::vector<sync::NamedTensor> NamedTensors(const std::vector<Named>& list) {
  std::vector<sync::NamedTensor> tensors;
  for (const auto& [name, tensor, sparse] : list) {
    tensors.push_back({name, tensor->value, sparse});
  }
  return tensors;
}

std::unique_ptr<sync::Reducer> MakeReducer(const std::vector<Named>& parameters,
                                           const std::vector<Named>& buffers,
                                           nb::handle group,
                                           size_t bucket_bytes,
                                           size_t last_bucket_bytes) {
  Group& g = GroupOf(group);
  if (g.communicator == nullptr) {
    ThrowIfError(InvalidArgument("DataParallel: rank ", g.job->fleet().rank(),
                                 " is not in group ", g.id));
  }
  sync::ReducerOptions options{
      .bucket_bytes = bucket_bytes,
      .last_bucket_bytes = last_bucket_bytes,
      .ranks_on_host = g.job->fleet().role().local_size.value_or(0),
      .timeout = g.job->fleet().timeout(),
      .interrupt = g.job->interrupt()};
  std::vector<sync::NamedTensor> named_parameters = NamedTensors(parameters);
  std::vector<sync::NamedTensor> named_buffers = NamedTensors(buffers);
  Result<std::unique_ptr<sync::Reducer>> made = [&] {
    nb::gil_scoped_release release;
    return sync::Reducer::Make(*g.communicator, std::move(named_parameters),
                               std::move(named_buffers), options);
  }();
  return ValueOrThrow(std::move(made));
}

Tensor SyncBatchNorm(const Tensor& input, std::optional<Tensor> weight,
                     std::optional<Tensor> bias, std::optional<Tensor> mean,
                     std::optional<Tensor> variance, nb::handle group,
                     int64_t channel_axis, double momentum, double epsilon) {
  Group& g = GroupOf(group);
  auto value = [](const std::optional<Tensor>& t) {
    return t ? t->value : at::Tensor();
  };
  if (g.communicator == nullptr) {
    ThrowIfError(InvalidArgument("SyncBatchNorm: rank ", g.job->fleet().rank(),
                                 " is not in group ", g.id));
  }
  sync::SyncBatchNormOptions options{.channel_axis = channel_axis,
                                     .epsilon = epsilon,
                                     .momentum = momentum,
                                     .timeout = g.job->fleet().timeout()};
  nb::gil_scoped_release release;
  return Tensor{sync::SyncBatchNorm(*g.communicator, input.value, value(weight),
                                    value(bias), value(mean), value(variance),
                                    options)};
}

// What an exchange in the middle of backward throws.
void TranslateExchangeError(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const sync::ExchangeError& error) {
    try {
      ThrowIfError(error.status());
    } catch (nb::python_error& raised) {
      raised.restore();
    }
  }
}

void BindJob(nb::module_& m) {
  nb::class_<Job>(m, "Job")
      .def_static(
          "meet",
          [](int rank, int size, const std::string& endpoint) {
            cluster::Endpoint at = ValueOrThrow(
                cluster::ParseEndpoint(endpoint, "server_endpoint"));
            return &Job::Connect({.index = rank,
                                  .worker_num = size,
                                  .master = std::move(at),
                                  .is_collective = true,
                                  .source = cluster::RoleSource::kUser});
          },
          nb::rv_policy::reference, nb::arg("rank"), nb::arg("size"),
          nb::arg("endpoint"),
          "A job of its own whose ranks meet where rank 0 listens.")
      .def("barrier",
           [](Job& self) {
             Run(self.group(0), true, [](Communicator& c, Deadline deadline) {
               return c.Barrier(deadline);
             });
           })
      .def("finish", &Job::Finish, nb::call_guard<nb::gil_scoped_release>());

  m.def(
      "init_parallel",
      [](const cluster::Role& role) { return &BeginJob(role).group(0); },
      nb::rv_policy::reference, nb::arg("role"),
      "Begins the default job; returns the group of all ranks.");
  m.def(
      "is_parallel",
      [] { return CurrentJob() != nullptr && CurrentJob()->size() > 1; },
      "Whether the default job has met other ranks.");
  m.def("leave_parallel", LeaveJob, "Ends the default job well.");
  m.def("forget_parallel", ForgetJob,
        "Lets a forked process begin a job of its own.");
  m.def(
      "job_role",
      []() -> std::optional<cluster::Role> {
        if (CurrentJob() == nullptr) return std::nullopt;
        if (CurrentJob()->size() == 1) return std::nullopt;
        return CurrentJob()->fleet().role();
      },
      "The role in the default job; None before it begins.");
}

void BindGroup(nb::module_& m) {
  nb::class_<Group>(m, "Group", "Some ranks of a job.")
      .def_ro("id", &Group::id)
      .def_ro("rank", &Group::rank,
              "Of this process in the group; -1 outside of it.")
      .def_ro("ranks", &Group::ranks, "Of the job, in the group's order.")
      .def_prop_ro("nranks",
                   [](const Group& self) { return self.ranks.size(); })
      .def_prop_ro("world_size",
                   [](const Group& self) { return self.ranks.size(); })
      .def_prop_ro("name",
                   [](const Group& self) {
                     return "_default_pg" + std::to_string(self.id);
                   })
      .def_prop_ro("backend",
                   [](const Group& self) -> std::optional<std::string> {
                     if (self.communicator == nullptr) return std::nullopt;
                     return std::string(self.communicator->backend());
                   })
      .def("is_member", [](const Group& self) { return self.rank >= 0; })
      .def("get_group_rank", &Group::RankOf, nb::arg("rank"),
           "The rank in the group of a rank of the job; -1 outside.")
      .def("__repr__", [](const Group& self) {
        std::string ranks;
        for (int rank : self.ranks) {
          ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        }
        return base::Concat("rank: ", self.rank,
                            ", nranks: ", self.ranks.size(), ", id: ", self.id,
                            ", ranks: ", ranks, "; name: _default_pg", self.id);
      });

  nb::class_<Task>(m, "Task", "A collective that was started.")
      .def("wait", &Task::Wait, nb::arg("timeout") = nb::none(),
           "Until it is done, or for `timeout` seconds; whether it is done.")
      .def("is_completed", &Task::IsCompleted)
      .def("is_sync", [](const Task&) { return false; })
      .def("synchronize", [](Task& self) { self.Wait(std::nullopt); });

  m.def("get_group", GroupOf, nb::rv_policy::reference,
        nb::arg("group").none());
  m.def("destroy_group",
        [](nb::handle group) { GroupOf(group).destroyed = true; });
  m.def(
      "new_group",
      [](std::optional<std::vector<int>> ranks) {
        Group& world = GroupOf(nb::none());
        return &world.job->NewGroup(ranks ? *std::move(ranks) : world.ranks);
      },
      nb::rv_policy::reference, nb::arg("ranks").none());
}

}  // namespace

void BindDistributed(nb::module_& m) {
  BindJob(m);
  BindGroup(m);
  nb::register_exception_translator(TranslateExchangeError);

  const auto group = nb::arg("group").none();
  const auto targets = nb::arg("targets").none();
  m.def("all_reduce", AllReduce, nb::arg("tensor"), nb::arg("op"), group,
        nb::arg("sync"));
  m.def("broadcast", Broadcast, nb::arg("tensor"), nb::arg("src"), group,
        nb::arg("sync"));
  m.def("reduce", Reduce, nb::arg("tensor"), nb::arg("dst"), nb::arg("op"),
        group, nb::arg("sync"));
  m.def("send", Send, nb::arg("tensor"), nb::arg("dst"), group);
  m.def("recv", Recv, nb::arg("tensor"), nb::arg("src"), group);
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

  nb::class_<sync::Reducer>(m, "Reducer", "Averages gradients over ranks.")
      .def_static("make", MakeReducer, nb::arg("parameters"),
                  nb::arg("buffers"), group, nb::arg("bucket_bytes"),
                  nb::arg("last_bucket_bytes"))
      .def_prop_rw("sync", &sync::Reducer::sync, &sync::Reducer::set_sync)
      .def("join",
           [](sync::Reducer& self) {
             Status status;
             {
               nb::gil_scoped_release release;
               status = self.Join();
             }
             ThrowIfError(status);
           })
      .def("stats", [](const sync::Reducer& self) {
        const sync::Reducer::Stats stats = self.stats();
        nb::dict result;
        result["num_buckets"] = stats.num_buckets;
        result["rounds"] = stats.rounds;
        result["copied"] = stats.copied;
        result["in_place"] = stats.in_place;
        return result;
      });
  m.def("sync_batch_norm", SyncBatchNorm, nb::arg("input"),
        nb::arg("weight").none(), nb::arg("bias").none(),
        nb::arg("mean").none(), nb::arg("variance").none(), group,
        nb::arg("channel_axis"), nb::arg("momentum"), nb::arg("epsilon"));
}

}  // namespace fleet::python
