// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "fleet/comm/reduce.h"

namespace fleet::comm {
namespace {

// How long the end of a communicator waits for what its GPU still does.
constexpr std::chrono::seconds kEndPatience{10};
// Between two questions to a library that has no wait with an end.
constexpr std::chrono::microseconds kNap{20};

// What a receiver compares with what it asked for.
struct Letter {
  DataType type;
  bool on_host;
  uint64_t count;
};

// Moves elements as they are: NCCL counts in this type.
NcclType Raw() { return NcclType::kInt8; }

// The type in which NCCL reduces elements of `type`, if it can.
std::optional<NcclType> Native(DataType type) {
  switch (type) {
    case DataType::kBool:
    case DataType::kUInt8:
      return NcclType::kUInt8;
    case DataType::kInt8:
      return NcclType::kInt8;
    case DataType::kInt16:
      return std::nullopt;
    case DataType::kInt32:
      return NcclType::kInt32;
    case DataType::kInt64:
      return NcclType::kInt64;
    case DataType::kFloat16:
      return NcclType::kFloat16;
    case DataType::kBFloat16:
      return NcclType::kBFloat16;
    case DataType::kFloat32:
      return NcclType::kFloat32;
    case DataType::kFloat64:
      return NcclType::kFloat64;
  }
  return std::nullopt;
}

// Bools are 0 or 1: their sum is the larger, their product the smaller.
NcclOp Native(ReduceOp op, DataType type) {
  const bool is_bool = type == DataType::kBool;
  switch (op) {
    case ReduceOp::kSum:
      return is_bool ? NcclOp::kMax : NcclOp::kSum;
    case ReduceOp::kMean:
      return NcclOp::kAvg;
    case ReduceOp::kMax:
      return NcclOp::kMax;
    case ReduceOp::kMin:
      return NcclOp::kMin;
    case ReduceOp::kProduct:
      return is_bool ? NcclOp::kMin : NcclOp::kProd;
  }
  return NcclOp::kSum;
}

// The GPU's context is this thread's while it lives.
class CurrentContext final {
 public:
  CurrentContext(const NcclLibrary& library, CUctx_st* context)
      : library_(library) {
    library_.cuda.CtxPushCurrent(context);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext() {
    CUctx_st* popped = nullptr;
    library_.cuda.CtxPopCurrent(&popped);
  }

 private:
  const NcclLibrary& library_;
};

// One call of NCCL that is many; the first failure counts.
template <typename Calls>
NcclResult InGroup(const NcclFunctions& nccl, Calls calls) {
  NcclResult first = nccl.GroupStart();
  auto note = [&](NcclResult result) {
    if (first == NcclResult::kSuccess) first = result;
  };
  if (first != NcclResult::kSuccess) return first;
  calls(note);
  note(nccl.GroupEnd());
  return first;
}

CudaAddress Address(const void* data) {
  return reinterpret_cast<CudaAddress>(data);
}

}  // namespace

Result<std::unique_ptr<Communicator>> NcclCommunicator::Connect(
    std::unique_ptr<Communicator> companion, int device,
    CommunicatorOptions options, Deadline deadline) {
  ASSIGN_OR_RETURN(const NcclLibrary* library, NcclLibrary::Get());
  ASSIGN_OR_RETURN(const int handle, library->FindGpu(device));
  // Kept until the process ends, as torch does.
  CUctx_st* context = nullptr;
  RETURN_IF_ERROR(
      library->Check(library->cuda.DevicePrimaryCtxRetain(&context, handle),
                     base::Concat("GPU ", device)));
  auto made = std::make_unique<NcclCommunicator>(*library, std::move(companion),
                                                 context, std::move(options));
  if (const Status met = made->Meet(deadline); !met.ok()) {
    made->Abort(met);
    return made->status();
  }
  return made;
}

NcclCommunicator::NcclCommunicator(const NcclLibrary& library,
                                   std::unique_ptr<Communicator> companion,
                                   CUctx_st* context,
                                   CommunicatorOptions options)
    : Communicator(companion->rank(), companion->size(), std::move(options)),
      library_(library),
      companion_(std::move(companion)),
      context_(context) {}

NcclCommunicator::~NcclCommunicator() {
  Finish();
  const Deadline deadline = Deadline::After(kEndPatience);
  const Status finalized =
      Give("ncclCommFinalize", deadline,
           [&](ncclComm* comm) { return library_.nccl.CommFinalize(comm); });
  base::MutexLock lock(mutex_);
  if (comm_ == nullptr) return;
  const CurrentContext current(library_, context_);
  if (finalized.ok()) {
    library_.nccl.CommDestroy(comm_);
  } else {
    library_.nccl.CommAbort(comm_);
  }
}

Status NcclCommunicator::Meet(Deadline deadline) {
  NcclUniqueId id = {};
  const Span bytes{reinterpret_cast<std::byte*>(&id), sizeof(id),
                   DataType::kUInt8};
  if (rank() == 0) {
    RETURN_IF_ERROR(library_.Check(library_.nccl.GetUniqueId(&id), nullptr,
                                   "ncclGetUniqueId"));
    for (int i = 1; i < size(); ++i) {
      RETURN_IF_ERROR(companion_->Send(bytes, i, deadline));
    }
  } else {
    RETURN_IF_ERROR(companion_->Recv(bytes, 0, deadline));
  }
  {
    base::MutexLock lock(mutex_);
    const CurrentContext current(library_, context_);
    NcclConfig config;
    RETURN_IF_ERROR(library_.Check(
        library_.nccl.CommInitRankConfig(&comm_, size(), id, rank(), &config),
        nullptr, "ncclCommInitRankConfig"));
  }
  return WaitUntilTaken("ncclCommInitRankConfig", deadline);
}

bool NcclCommunicator::OnHost(ConstSpan data) const {
  if (data.count == 0) return false;  // on all ranks alike
  const CurrentContext current(library_, context_);
  unsigned int kind = 0;
  const CudaResult known = library_.cuda.PointerGetAttribute(
      &kind, kCudaMemoryTypeAttribute, Address(data.data));
  return known != CudaResult::kSuccess || kind != kCudaDeviceMemory;
}

Status NcclCommunicator::WaitUntilTaken(std::string_view what,
                                        Deadline deadline) {
  Patience patience(options(), deadline);
  Deadline slice = patience.slice();
  while (true) {
    {
      base::MutexLock lock(mutex_);
      if (comm_ == nullptr) return status();
      NcclResult state = NcclResult::kSuccess;
      RETURN_IF_ERROR(
          library_.Check(library_.nccl.CommGetAsyncError(comm_, &state), comm_,
                         "ncclCommGetAsyncError"));
      RETURN_IF_ERROR(library_.Check(state, comm_, what));
      if (state == NcclResult::kSuccess) return OkStatus();
    }
    if (slice.expired()) {
      RETURN_IF_ERROR(patience.Look(
          [&] { return base::Concat(what, ": NCCL is not done"); }));
      slice = patience.slice();
    }
    std::this_thread::sleep_for(kNap);
  }
}

template <typename Enqueue>
Status NcclCommunicator::Give(std::string_view what, Deadline deadline,
                              Enqueue enqueue) {
  {
    base::MutexLock lock(mutex_);
    if (comm_ == nullptr) return status();
    const CurrentContext current(library_, context_);
    RETURN_IF_ERROR(library_.Check(enqueue(comm_), comm_, what));
  }
  return WaitUntilTaken(what, deadline);
}

Result<std::shared_ptr<void>> NcclCommunicator::AllocateOnDevice(
    size_t byte_size) {
  const CurrentContext current(library_, context_);
  CudaAddress address = 0;
  RETURN_IF_ERROR(library_.Check(
      library_.cuda.MemAlloc(&address, std::max<size_t>(byte_size, 1)),
      base::Concat("no memory for a buffer of ", byte_size, " bytes")));
  // The library stays, so the memory may outlive the communicator.
  return std::shared_ptr<void>(
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's own type.
      reinterpret_cast<void*>(address),
      [library = &library_, context = context_](void* data) {
        const CurrentContext current(*library, context);
        library->cuda.MemFree(Address(data));
      });
}

Status NcclCommunicator::WaitForStream(void* stream, Deadline deadline) {
  Patience patience(options(), deadline);
  Deadline slice = patience.slice();
  while (true) {
    {
      const CurrentContext current(library_, context_);
      const CudaResult state = library_.cuda.StreamQuery(stream);
      if (state == CudaResult::kSuccess) return OkStatus();
      if (state != CudaResult::kNotReady) {
        return library_.Check(state, "cuStreamQuery");
      }
    }
    if (broken()) return status();
    if (slice.expired()) {
      RETURN_IF_ERROR(patience.Look([] { return "the GPU is not done"; }));
      slice = patience.slice();
    }
    std::this_thread::sleep_for(kNap);
  }
}

Result<Buffer> NcclCommunicator::DoAllocate(const Call& call, size_t byte_size,
                                            Deadline deadline) {
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  ASSIGN_OR_RETURN(std::shared_ptr<void> owner, AllocateOnDevice(byte_size));
  {
    const CurrentContext current(library_, context_);
    RETURN_IF_ERROR(
        library_.Check(library_.cuda.MemsetD8Async(Address(owner.get()), 0,
                                                   byte_size, nullptr),
                       "cuMemsetD8Async"));
  }
  RETURN_IF_ERROR(WaitForStream(nullptr, deadline));
  auto* data = static_cast<std::byte*>(owner.get());
  return Buffer(std::move(owner), {data, byte_size});
}

Status NcclCommunicator::CombineOnHost(const Call& call, ConstSpan data,
                                       std::byte* result, size_t begin,
                                       size_t count, Deadline deadline) {
  const auto ranks = static_cast<size_t>(size());
  const size_t width = ByteSize(call.type);
  const size_t byte_size = data.byte_size();
  ASSIGN_OR_RETURN(std::shared_ptr<void> gathered,
                   AllocateOnDevice(byte_size * ranks));
  RETURN_IF_ERROR(Give("ncclAllGather", deadline, [&](ncclComm* comm) {
    return library_.nccl.AllGather(data.data, gathered.get(), byte_size, Raw(),
                                   comm, data.stream);
  }));
  std::vector<std::byte> parts(byte_size * ranks);
  {
    const CurrentContext current(library_, context_);
    RETURN_IF_ERROR(library_.Check(
        library_.cuda.MemcpyDtoHAsync(parts.data(), Address(gathered.get()),
                                      parts.size(), data.stream),
        "cuMemcpyDtoHAsync"));
  }
  RETURN_IF_ERROR(WaitForStream(data.stream, deadline));
  if (result == nullptr) return OkStatus();
  std::vector<const std::byte*> inputs(ranks);
  for (size_t i = 0; i < ranks; ++i) {
    inputs[i] = parts.data() + i * byte_size + begin * width;
  }
  std::vector<std::byte> combined(count * width);
  std::byte* const output = combined.data();
  CombineAll(call.op, call.type, inputs, {&output, 1}, count);
  {
    const CurrentContext current(library_, context_);
    RETURN_IF_ERROR(library_.Check(
        library_.cuda.MemcpyHtoDAsync(Address(result), combined.data(),
                                      combined.size(), data.stream),
        "cuMemcpyHtoDAsync"));
  }
  return WaitForStream(data.stream, deadline);
}

Status NcclCommunicator::DoAllReduce(const Call& call, Span data,
                                     Deadline deadline) {
  if (OnHost(data)) return companion_->AllReduce(data, call.op, deadline);
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (data.count == 0) return OkStatus();
  const auto native = Native(call.type);
  if (!native) {
    return CombineOnHost(call, data, data.data, 0, data.count, deadline);
  }
  return Give("ncclAllReduce", deadline, [&](ncclComm* comm) {
    return library_.nccl.AllReduce(data.data, data.data, data.count, *native,
                                   Native(call.op, call.type), comm,
                                   data.stream);
  });
}

Status NcclCommunicator::DoReduce(const Call& call, Span data,
                                  Deadline deadline) {
  if (OnHost(data)) {
    return companion_->Reduce(data, call.op, call.root, deadline);
  }
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (data.count == 0) return OkStatus();
  const auto native = Native(call.type);
  if (!native) {
    return CombineOnHost(call, data, rank() == call.root ? data.data : nullptr,
                         0, data.count, deadline);
  }
  return Give("ncclReduce", deadline, [&](ncclComm* comm) {
    return library_.nccl.Reduce(data.data, data.data, data.count, *native,
                                Native(call.op, call.type), call.root, comm,
                                data.stream);
  });
}

Status NcclCommunicator::DoBroadcast(const Call& call, Span data,
                                     Deadline deadline) {
  if (OnHost(data)) return companion_->Broadcast(data, call.root, deadline);
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (data.count == 0) return OkStatus();
  return Give("ncclBroadcast", deadline, [&](ncclComm* comm) {
    return library_.nccl.Broadcast(data.data, data.data, data.byte_size(),
                                   Raw(), call.root, comm, data.stream);
  });
}

Status NcclCommunicator::DoAllGather(const Call& call, ConstSpan mine, Span all,
                                     Deadline deadline) {
  if (OnHost(mine)) return companion_->AllGather(mine, all, deadline);
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (mine.count == 0) return OkStatus();
  return Give("ncclAllGather", deadline, [&](ncclComm* comm) {
    return library_.nccl.AllGather(mine.data, all.data, mine.byte_size(), Raw(),
                                   comm, mine.stream);
  });
}

Status NcclCommunicator::DoReduceScatter(const Call& call, ConstSpan all,
                                         Span mine, Deadline deadline) {
  if (OnHost(mine)) {
    return companion_->ReduceScatter(all, mine, call.op, deadline);
  }
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (mine.count == 0) return OkStatus();
  const auto native = Native(call.type);
  if (!native) {
    return CombineOnHost(call, all, mine.data, mine.count * rank(), mine.count,
                         deadline);
  }
  return Give("ncclReduceScatter", deadline, [&](ncclComm* comm) {
    return library_.nccl.ReduceScatter(all.data, mine.data, mine.count, *native,
                                       Native(call.op, call.type), comm,
                                       mine.stream);
  });
}

Status NcclCommunicator::DoScatter(const Call& call, ConstSpan all, Span mine,
                                   Deadline deadline) {
  if (OnHost(mine)) {
    return companion_->Scatter(all, mine, call.root, deadline);
  }
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (mine.count == 0) return OkStatus();
  const size_t part = mine.byte_size();
  return Give("scatter", deadline, [&](ncclComm* comm) {
    return InGroup(library_.nccl, [&](auto note) {
      for (int i = 0; i < size() && rank() == call.root; ++i) {
        note(library_.nccl.Send(all.data + part * i, part, Raw(), i, comm,
                                mine.stream));
      }
      note(library_.nccl.Recv(mine.data, part, Raw(), call.root, comm,
                              mine.stream));
    });
  });
}

Status NcclCommunicator::DoGather(const Call& call, ConstSpan mine, Span all,
                                  Deadline deadline) {
  if (OnHost(mine)) {
    return companion_->Gather(mine, all, call.root, deadline);
  }
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (mine.count == 0) return OkStatus();
  const size_t part = mine.byte_size();
  return Give("gather", deadline, [&](ncclComm* comm) {
    return InGroup(library_.nccl, [&](auto note) {
      note(library_.nccl.Send(mine.data, part, Raw(), call.root, comm,
                              mine.stream));
      for (int i = 0; i < size() && rank() == call.root; ++i) {
        note(library_.nccl.Recv(all.data + part * i, part, Raw(), i, comm,
                                mine.stream));
      }
    });
  });
}

Status NcclCommunicator::DoAllToAll(const Call& call, ConstSpan from, Span to,
                                    Deadline deadline) {
  if (OnHost(from)) return companion_->AllToAll(from, to, deadline);
  RETURN_IF_ERROR(companion_->Agree(call, deadline));
  if (call.count == 0) return OkStatus();
  const size_t part = call.count * ByteSize(call.type);
  return Give("all_to_all", deadline, [&](ncclComm* comm) {
    return InGroup(library_.nccl, [&](auto note) {
      for (int i = 0; i < size(); ++i) {
        note(library_.nccl.Send(from.data + part * i, part, Raw(), i, comm,
                                from.stream));
        note(library_.nccl.Recv(to.data + part * i, part, Raw(), i, comm,
                                from.stream));
      }
    });
  });
}

Status NcclCommunicator::DoBarrier(const Call& call, Deadline deadline) {
  return companion_->Agree(call, deadline);
}

Status NcclCommunicator::DoSend(ConstSpan data, int to, Deadline deadline) {
  Letter letter{data.type, OnHost(data), data.count};
  RETURN_IF_ERROR(companion_->Send(
      {reinterpret_cast<std::byte*>(&letter), sizeof(letter), DataType::kUInt8},
      to, deadline));
  if (data.count == 0) return OkStatus();
  if (letter.on_host) return companion_->Send(data, to, deadline);
  return Give("ncclSend", deadline, [&](ncclComm* comm) {
    return library_.nccl.Send(data.data, data.byte_size(), Raw(), to, comm,
                              data.stream);
  });
}

Status NcclCommunicator::DoRecv(Span data, int from, Deadline deadline) {
  const std::string what =
      base::Concat("recv(", data.count, " x ", ToString(data.type), ")");
  Letter letter;
  const Status received = companion_->Recv(
      {reinterpret_cast<std::byte*>(&letter), sizeof(letter), DataType::kUInt8},
      from, deadline);
  if (!received.ok()) return received.WithContext(what);
  const bool on_host = OnHost(data);
  if (letter.type != data.type || letter.count != data.count ||
      letter.on_host != on_host) {
    return FailedPrecondition(
        "rank ", rank(), " called ", what, on_host ? " on the host" : "",
        " from rank ", from, ", which sent ", letter.count, " x ",
        ToString(letter.type), letter.on_host ? " on the host" : "");
  }
  if (data.count == 0) return OkStatus();
  if (on_host) return companion_->Recv(data, from, deadline);
  return Give("ncclRecv", deadline, [&](ncclComm* comm) {
    return library_.nccl.Recv(data.data, data.byte_size(), Raw(), from, comm,
                              data.stream);
  });
}

void NcclCommunicator::DoAbort() {
  companion_->Abort(status());
  base::MutexLock lock(mutex_);
  if (comm_ == nullptr) return;
  const CurrentContext current(library_, context_);
  library_.nccl.CommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace fleet::comm
