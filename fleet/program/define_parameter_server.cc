// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fleet/program/define_ops.h"
#include "fleet/program/shape_rules.h"

// Ops that need the servers of a job. They have no kernels: whoever runs a
// program with them gives the executor an extension that carries them out.
// plan/parameter_server.h makes them.

namespace fleet::program {
namespace {

using Types = Result<std::vector<TensorType>>;

Status CheckIds(const TensorType& ids, bool old) {
  if (ids.dtype != DType::kInt64 && ids.dtype != DType::kInt32) {
    return InvalidArgument("ids must be int64 or int32, not ", Name(ids.dtype));
  }
  if (old &&
      (ids.dims.empty() || (ids.dims.back() != 1 && ids.dims.back() != -1))) {
    return InvalidArgument("the last dimension of ids ", ToString(ids.dims),
                           " must be 1");
  }
  return OkStatus();
}

// What the look-up had been: "lookup_table" has ids [..., 1].
Result<bool> IsOld(const OpTypes& t) {
  const std::string& version = t.attr<std::string>("lookup_table_version");
  if (version != "lookup_table" && version != "lookup_table_v2") {
    return InvalidArgument("lookup_table_version is '", version, "'");
  }
  return version == "lookup_table";
}

Types LookupShape(const OpTypes& t) {
  const int64_t dim = t.attr<int64_t>("dim");
  if (dim < 1) return InvalidArgument("rows of ", dim, " values");
  ASSIGN_OR_RETURN(const bool old, IsOld(t));
  std::vector<TensorType> out;
  for (const TensorType& ids : t.list("Ids")) {
    RETURN_IF_ERROR(CheckIds(ids, old));
    Dims dims = ids.dims;
    if (old) dims.pop_back();
    dims.push_back(dim);
    out.push_back({DType::kFloat32, dims});
  }
  return out;
}

Types PushShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(const bool old, IsOld(t));
  for (const TensorType& ids : t.list("Ids")) {
    RETURN_IF_ERROR(CheckIds(ids, old));
  }
  if (t.list("Ids").size() != t.list("Grads").size()) {
    return InvalidArgument(t.list("Ids").size(), " Ids but ",
                           t.list("Grads").size(), " Grads");
  }
  return std::vector<TensorType>();
}

// One table for each of X.
Types InPlaceShape(const OpTypes& t) {
  const auto& tables = t.attr<std::vector<int64_t>>("table_ids");
  std::span<const TensorType> x = t.list("X");
  if (tables.size() != x.size()) {
    return InvalidArgument(x.size(), " tensors in X but ", tables.size(),
                           " table_ids");
  }
  return std::vector<TensorType>(x.begin(), x.end());
}

Types SendShape(const OpTypes& t) {
  ASSIGN_OR_RETURN(std::vector<TensorType> gradients, InPlaceShape(t));
  return std::vector<TensorType>();
}

}  // namespace

void DefineParameterServerOps(OpDefiner& ops) {
  // What all operations on a sparse table say. `bound` -1: ids are any 64 bits;
  // otherwise they lie in [0, bound). An id of `padding_idx` reads as zeros and
  // pushes nothing; -1: none. `lookup_table_version` is the type of the
  // look-up that it was.
  const std::string table =
      "table_id: int, table_name: string, dim: int, bound: int = -1, "
      "padding_idx: int = -1, is_test: bool = false, "
      "lookup_table_version: string = 'lookup_table_v2'";
  // The rows of Ids[i] are Outputs[i].
  ops.DefineExternal(
      "distributed_lookup_table(Ids*; " + table + ") -> Outputs!*",
      LookupShape);
  // The gradients of the rows of Ids[i] are Grads[i]. Shows and Clicks, one
  // number for each example, are there for a table that counts them.
  ops.DefineExternal("distributed_push_sparse(Ids*, Grads*, Shows?, Clicks?; " +
                         table + ") -> Out!*",
                     PushShape);
  // Gradients of dense parameters, table_ids[i] for X[i].
  ops.DefineExternal("send(X*; table_ids: ints) -> Out!*", SendShape);

  // The following are in place: X are dense parameters, Out the same.
  for (const char* type : {
           // Ends a step and waits for it: afterwards X has the new values.
           "send_barrier",
           // Ends a step; X has what has arrived by now.
           "recv",
           // Ends a step of a worker that updates X itself; now and then
           // exchanges what changed.
           "geo_step",
           // The first values: worker 0 gives X unless servers have values, all
           // take.
           "ps_init",
       }) {
    ops.DefineExternal(std::string(type) + "(X*; table_ids: ints) -> Out!*",
                       InPlaceShape);
  }
  // Stands where a parameter was filled that lives on servers only; gives
  // nothing.
  ops.DefineExternal("fake_init(; shape: ints = []) -> Out!", nullptr);
}

}  // namespace fleet::program
