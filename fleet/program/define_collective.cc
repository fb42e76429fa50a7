// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops that need the other ranks. They have no kernels: whoever runs a program
// with them gives the executor an extension that carries them out.

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

Types SameAsList(const OpTypes& t) {
  std::span<const TensorType> x = t.list("X");
  return std::vector<TensorType>(x.begin(), x.end());
}

Result<int64_t> NumRanks(const OpTypes& t) {
  const int64_t nranks = t.attr<int64_t>("nranks");
  if (nranks < 1) return InvalidArgument("nranks is ", nranks);
  if (t.in("X").dims.empty()) return InvalidArgument("X has no dimensions");
  return nranks;
}

// The tensors of all ranks one behind the other.
Types GatherShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(int64_t nranks, NumRanks(t));
  TensorType out = t.in("X");
  if (out.dims[0] >= 0) out.dims[0] *= nranks;
  return std::vector<TensorType>{out};
}

Types ScatterShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(int64_t nranks, NumRanks(t));
  TensorType out = t.in("X");
  if (out.dims[0] >= 0) {
    if (out.dims[0] % nranks != 0) {
      return InvalidArgument("the first dimension of X, ", out.dims[0],
                             ", is not a multiple of ", nranks, " ranks");
    }
    out.dims[0] /= nranks;
  }
  return std::vector<TensorType>{out};
}

}  // namespace

void DefineCollectiveOps(OpDefiner& ops) {
  // Begins the sum of a bucket of tensors over all ranks, or the mean with
  // `average`, and returns. Out names the variables of X; nobody touches them
  // before c_allreduce_wait of the same bucket. With `blocking`, there is no
  // such operation: the sum is complete. `brief` then says that it is used
  // before the next such bucket is made. `updates` is a text that must be equal
  // on all ranks.
  ops.DefineExternal(
      "c_allreduce_start(X*; bucket: int, average: bool = false, "
      "blocking: bool = false, brief: bool = false, updates: string = '') "
      "-> Out!*",
      SameAsList);
  ops.DefineExternal("c_allreduce_wait(X*; bucket: int) -> Out!*", SameAsList);

  // The values of rank `root`, on all ranks; in place.
  ops.DefineExternal("c_broadcast_state(X*; root: int = 0) -> Out!*",
                     SameAsList);

  const std::string group = "ring_id: int = 0, use_calc_stream: bool = false";
  for (const char* reduction : {"sum", "max", "min", "prod"}) {
    ops.DefineExternal(
        "c_allreduce_" + std::string(reduction) + "(X; " + group + ") -> Out!",
        SameAs("X"));
  }
  ops.DefineExternal("c_broadcast(X; " + group + ", root: int = 0) -> Out!",
                     SameAs("X"));
  ops.DefineExternal("c_allgather(X; " + group + ", nranks: int = 1) -> Out!",
                     GatherShape);
  ops.DefineExternal(
      "c_reducescatter(X; " + group + ", nranks: int = 1) -> Out!",
      ScatterShape);
  // Order between calls: what X names is complete after it.
  ops.DefineExternal("c_sync_comm_stream(X*; ring_id: int = 0) -> Out!*",
                     SameAsList);
  ops.DefineExternal("c_sync_calc_stream(X) -> Out!", SameAs("X"));
}

}  // namespace fleet::program
