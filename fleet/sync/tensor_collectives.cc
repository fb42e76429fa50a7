// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/tensor_collectives.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fleet/ops/aten_error.h"

namespace fleet::sync {
namespace {

using at::Tensor;
using base::Deadline;
using comm::Communicator;
using comm::DataType;
using comm::ReduceOp;
using comm::Span;

// Runs `f`, which returns Status or Result; what LibTorch throws is a Status.
template <class F>
auto Guarded(F f) -> decltype(f()) {
  const at::NoGradGuard no_grad;
  try {
    return f();
  } catch (const c10::Error& error) {
    return ops::FromException(error);
  }
}

// What CUDA calls the stream. Older LibTorches tell only with CUDA's headers;
// there the default stream, which is 0 to both, has to do.
template <class Stream>
Result<void*> NativeHandle(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    if (stream.id() == 0) return nullptr;
    return Unimplemented(
        "with this version of LibTorch, collectives on a GPU "
        "need the default stream");
  }
}

// Where the communicator can work with `data`.
at::Device Home(const Communicator& communicator, const Tensor& data) {
  return communicator.on_device() ? data.device() : at::Device(at::kCPU);
}

// `data` as a collective can use it: itself if possible, or a copy.
Result<Tensor> Stage(const Communicator& communicator, const Tensor& data) {
  if (!data.defined() || data.layout() != at::kStrided) {
    return InvalidArgument("collectives take dense tensors only");
  }
  RETURN_IF_ERROR(ToDataType(data.scalar_type()).status());
  if (data.device().is_cpu() && data.is_contiguous()) return data;
  return data.to(Home(communicator, data)).contiguous();
}

// Like `data`, contiguous, where the communicator works; not initialised.
Tensor NewLike(const Communicator& communicator, const Tensor& data,
               int64_t count) {
  std::vector<int64_t> shape = {count};
  shape.insert(shape.end(), data.sizes().begin(), data.sizes().end());
  return at::empty(shape, data.options().device(Home(communicator, data)));
}

// After `staged` was changed by a collective: `data` has that too, and saved
// values of it are out of date.
void Unstage(const Tensor& staged, const Tensor& data) {
  if (!staged.is_same(data)) {
    data.detach().copy_(staged);
  } else if (!data.is_inference()) {
    data.unsafeGetTensorImpl()->bump_version();
  }
}

std::vector<Tensor> Parts(const Tensor& all, at::Device device) {
  return all.to(device).unbind(0);
}

Status CheckAlike(const std::vector<Tensor>& parts, const Tensor& like,
                  int size) {
  if (parts.size() != static_cast<size_t>(size)) {
    return InvalidArgument(parts.size(), " tensors for ", size, " ranks");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined() || parts[i].sizes() != like.sizes() ||
        parts[i].scalar_type() != like.scalar_type()) {
      return InvalidArgument("tensor ", i,
                             " of the list has another shape or type than the "
                             "others");
    }
  }
  return OkStatus();
}

// The parts behind each other, where the communicator works.
Tensor Join(const Communicator& communicator,
            const std::vector<Tensor>& parts) {
  Tensor all =
      NewLike(communicator, parts[0], static_cast<int64_t>(parts.size()));
  for (size_t i = 0; i < parts.size(); ++i) all[i].copy_(parts[i].detach());
  return all;
}

// `f(span)` on `data`, changed in place.
template <class F>
Status InPlace(Communicator& communicator, const Tensor& data, F f) {
  return Guarded([&]() -> Status {
    ASSIGN_OR_RETURN(Tensor staged, Stage(communicator, data));
    ASSIGN_OR_RETURN(Span span, SpanOf(staged));
    RETURN_IF_ERROR(f(span));
    Unstage(staged, data);
    return OkStatus();
  });
}

}  // namespace

Result<DataType> ToDataType(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return DataType::kBool;
    case at::kByte:
      return DataType::kUInt8;
    case at::kChar:
      return DataType::kInt8;
    case at::kShort:
      return DataType::kInt16;
    case at::kInt:
      return DataType::kInt32;
    case at::kLong:
      return DataType::kInt64;
    case at::kHalf:
      return DataType::kFloat16;
    case at::kBFloat16:
      return DataType::kBFloat16;
    case at::kFloat:
      return DataType::kFloat32;
    case at::kDouble:
      return DataType::kFloat64;
    default:
      return InvalidArgument("collectives do not know tensors of type ",
                             c10::toString(type));
  }
}

at::ScalarType ToScalarType(DataType type) {
  switch (type) {
    case DataType::kBool:
      return at::kBool;
    case DataType::kUInt8:
      return at::kByte;
    case DataType::kInt8:
      return at::kChar;
    case DataType::kInt16:
      return at::kShort;
    case DataType::kInt32:
      return at::kInt;
    case DataType::kInt64:
      return at::kLong;
    case DataType::kFloat16:
      return at::kHalf;
    case DataType::kBFloat16:
      return at::kBFloat16;
    case DataType::kFloat32:
      return at::kFloat;
    case DataType::kFloat64:
      return at::kDouble;
  }
  FLEET_CHECK(false, "no such DataType: ", static_cast<int>(type));
  return at::kByte;
}

Result<Span> SpanOf(const Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    return InvalidArgument("the tensor is not contiguous");
  }
  ASSIGN_OR_RETURN(DataType type, ToDataType(tensor.scalar_type()));
  Span span{static_cast<std::byte*>(tensor.data_ptr()),
            static_cast<size_t>(tensor.numel()), type};
  if (const at::Device device = tensor.device(); !device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    ASSIGN_OR_RETURN(span.stream, NativeHandle(guard.getStream(device)));
  }
  return span;
}

Result<Tensor> AllocateTensor(Communicator& communicator, size_t byte_count,
                              at::Device device, Deadline deadline) {
  return Guarded([&]() -> Result<Tensor> {
    const auto count = static_cast<int64_t>(byte_count);
    const auto options = at::TensorOptions(at::kByte);
    if (!device.is_cpu()) return at::zeros({count}, options.device(device));
    ASSIGN_OR_RETURN(comm::Buffer buffer,
                     communicator.Allocate(byte_count, deadline));
    return at::from_blob(
        buffer.bytes().data(), {count}, [owner = buffer.owner()](void*) {},
        options);
  });
}

Status AllReduce(Communicator& communicator, const Tensor& data, ReduceOp op,
                 Deadline deadline) {
  return InPlace(communicator, data, [&](Span span) {
    return communicator.AllReduce(span, op, deadline);
  });
}

Status Reduce(Communicator& communicator, const Tensor& data, ReduceOp op,
              int root, Deadline deadline) {
  return InPlace(communicator, data, [&](Span span) {
    return communicator.Reduce(span, op, root, deadline);
  });
}

Status Broadcast(Communicator& communicator, const Tensor& data, int root,
                 Deadline deadline) {
  return InPlace(communicator, data, [&](Span span) {
    return communicator.Broadcast(span, root, deadline);
  });
}

Result<std::vector<Tensor>> AllGather(Communicator& communicator,
                                      const Tensor& mine, Deadline deadline) {
  return Guarded([&]() -> Result<std::vector<Tensor>> {
    ASSIGN_OR_RETURN(Tensor staged, Stage(communicator, mine));
    Tensor all = NewLike(communicator, mine, communicator.size());
    ASSIGN_OR_RETURN(Span from, SpanOf(staged));
    ASSIGN_OR_RETURN(Span to, SpanOf(all));
    RETURN_IF_ERROR(communicator.AllGather(from, to, deadline));
    return Parts(all, mine.device());
  });
}

Result<std::vector<Tensor>> Gather(Communicator& communicator,
                                   const Tensor& mine, int root,
                                   Deadline deadline) {
  return Guarded([&]() -> Result<std::vector<Tensor>> {
    ASSIGN_OR_RETURN(Tensor staged, Stage(communicator, mine));
    ASSIGN_OR_RETURN(Span from, SpanOf(staged));
    if (communicator.rank() != root) {
      RETURN_IF_ERROR(communicator.Gather(
          from, Span{nullptr, 0, from.type, from.stream}, root, deadline));
      return std::vector<Tensor>();
    }
    Tensor all = NewLike(communicator, mine, communicator.size());
    ASSIGN_OR_RETURN(Span to, SpanOf(all));
    RETURN_IF_ERROR(communicator.Gather(from, to, root, deadline));
    return Parts(all, mine.device());
  });
}

Status Scatter(Communicator& communicator, const std::vector<Tensor>& parts,
               const Tensor& mine, int root, Deadline deadline) {
  return Guarded([&]() -> Status {
    ASSIGN_OR_RETURN(Tensor staged, Stage(communicator, mine));
    ASSIGN_OR_RETURN(Span to, SpanOf(staged));
    Tensor all;
    Span from{nullptr, 0, to.type, to.stream};
    if (communicator.rank() == root) {
      RETURN_IF_ERROR(
          CheckAlike(parts, mine, communicator.size()).WithContext("scatter"));
      all = Join(communicator, parts);
      ASSIGN_OR_RETURN(from, SpanOf(all));
    }
    RETURN_IF_ERROR(communicator.Scatter(from, to, root, deadline));
    Unstage(staged, mine);
    return OkStatus();
  });
}

Status ReduceScatter(Communicator& communicator,
                     const std::vector<Tensor>& parts, const Tensor& mine,
                     ReduceOp op, Deadline deadline) {
  return Guarded([&]() -> Status {
    RETURN_IF_ERROR(CheckAlike(parts, mine, communicator.size())
                        .WithContext("reduce_scatter"));
    ASSIGN_OR_RETURN(Tensor staged, Stage(communicator, mine));
    Tensor all = Join(communicator, parts);
    ASSIGN_OR_RETURN(Span from, SpanOf(all));
    ASSIGN_OR_RETURN(Span to, SpanOf(staged));
    RETURN_IF_ERROR(communicator.ReduceScatter(from, to, op, deadline));
    Unstage(staged, mine);
    return OkStatus();
  });
}

Result<std::vector<Tensor>> AllToAll(Communicator& communicator,
                                     const std::vector<Tensor>& parts,
                                     Deadline deadline) {
  return Guarded([&]() -> Result<std::vector<Tensor>> {
    if (parts.empty()) return InvalidArgument("all_to_all: no tensors");
    RETURN_IF_ERROR(CheckAlike(parts, parts[0], communicator.size())
                        .WithContext("all_to_all"));
    RETURN_IF_ERROR(ToDataType(parts[0].scalar_type()).status());
    Tensor all = Join(communicator, parts);
    Tensor received = NewLike(communicator, parts[0], communicator.size());
    ASSIGN_OR_RETURN(Span from, SpanOf(all));
    ASSIGN_OR_RETURN(Span to, SpanOf(received));
    RETURN_IF_ERROR(communicator.AllToAll(from, to, deadline));
    return Parts(received, parts[0].device());
  });
}

Status Send(Communicator& communicator, const Tensor& data, int to,
            Deadline deadline) {
  return Guarded([&]() -> Status {
    ASSIGN_OR_RETURN(Tensor staged, Stage(communicator, data));
    ASSIGN_OR_RETURN(Span span, SpanOf(staged));
    return communicator.Send(span, to, deadline);
  });
}

Status Recv(Communicator& communicator, const Tensor& data, int from,
            Deadline deadline) {
  return InPlace(communicator, data, [&](Span span) {
    return communicator.Recv(span, from, deadline);
  });
}

}  // namespace fleet::sync
