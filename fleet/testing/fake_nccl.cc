// SPDX-License-Identifier: Apache-2.0

// A libnccl.so.2 for tests on machines without a GPU: ranks are threads, memory
// is the host's, and the in-process communicator does the work. Like NCCL with
// a configuration that does not block, it answers that a call is in progress.

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/comm/in_process.h"
#include "fleet/comm/nccl_library.h"

namespace fleet::comm {

struct ncclComm {
  std::unique_ptr<Communicator> rank;
  int questions_until_done = 0;
};

namespace {

base::Mutex& RoomsMutex() {
  static base::Mutex mutex;
  return mutex;
}

// Ranks that have not been asked for yet, by unique id.
std::map<std::string, std::vector<std::unique_ptr<Communicator>>>& Rooms() {
  static std::map<std::string, std::vector<std::unique_ptr<Communicator>>>
      rooms;
  return rooms;
}

// Between GroupStart and GroupEnd, what waits is put off.
thread_local int group_depth = 0;
thread_local std::vector<std::function<Status()>> put_off;
// A message to oneself.
thread_local std::vector<std::byte> to_self;

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

NcclResult Answer(ncclComm* comm, const Status& status) {
  if (!status.ok()) return NcclResult{3};
  comm->questions_until_done = 2;
  return NcclResult::kInProgress;
}

DataType TypeOf(NcclType type) {
  switch (type) {
    case NcclType::kInt8:
      return DataType::kInt8;
    case NcclType::kUInt8:
      return DataType::kUInt8;
    case NcclType::kInt32:
      return DataType::kInt32;
    case NcclType::kInt64:
      return DataType::kInt64;
    case NcclType::kFloat16:
      return DataType::kFloat16;
    case NcclType::kFloat32:
      return DataType::kFloat32;
    case NcclType::kFloat64:
      return DataType::kFloat64;
    case NcclType::kBFloat16:
      return DataType::kBFloat16;
  }
  return DataType::kUInt8;
}

ReduceOp OpOf(NcclOp op) {
  switch (op) {
    case NcclOp::kSum:
      return ReduceOp::kSum;
    case NcclOp::kProd:
      return ReduceOp::kProduct;
    case NcclOp::kMax:
      return ReduceOp::kMax;
    case NcclOp::kMin:
      return ReduceOp::kMin;
    case NcclOp::kAvg:
      return ReduceOp::kMean;
  }
  return ReduceOp::kSum;
}

Span SpanOf(void* data, size_t count, NcclType type) {
  return {static_cast<std::byte*>(data), count, TypeOf(type)};
}
ConstSpan SpanOf(const void* data, size_t count, NcclType type) {
  return {static_cast<const std::byte*>(data), count, TypeOf(type)};
}

void CopyIfApart(void* to, const void* from, const Span& like) {
  if (to != from) std::memcpy(to, from, like.byte_size());
}

}  // namespace

extern "C" {

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  static int number = 0;
  base::MutexLock lock(RoomsMutex());
  std::memset(id->bytes, 0, sizeof(id->bytes));
  const std::string text = "room " + std::to_string(++number);
  std::memcpy(id->bytes, text.data(), text.size());
  return NcclResult::kSuccess;
}

NcclResult ncclCommInitRankConfig(ncclComm** comm, int size, NcclUniqueId id,
                                  int rank, NcclConfig* config) {
  if (config->byte_size != sizeof(*config) || config->blocking != 0) {
    return NcclResult{4};
  }
  base::MutexLock lock(RoomsMutex());
  auto& room = Rooms()[id.bytes];
  if (room.empty()) room = MakeInProcess(size);
  *comm = std::make_unique<ncclComm>().release();
  (*comm)->rank = std::move(room[rank]);
  return Answer(*comm, OkStatus());
}

NcclResult ncclCommFinalize(ncclComm* comm) { return Answer(comm, OkStatus()); }

NcclResult ncclCommDestroy(ncclComm* comm) {
  std::unique_ptr<ncclComm> owned(comm);
  return NcclResult::kSuccess;
}

NcclResult ncclCommAbort(ncclComm* comm) {
  std::unique_ptr<ncclComm> owned(comm);
  comm->rank->Abort(Internal("ncclCommAbort"));
  return NcclResult::kSuccess;
}

NcclResult ncclCommGetAsyncError(ncclComm* comm, NcclResult* state) {
  *state = --comm->questions_until_done > 0 ? NcclResult::kInProgress
                                            : NcclResult::kSuccess;
  return NcclResult::kSuccess;
}

const char* ncclGetErrorString(NcclResult) { return "failed"; }
const char* ncclGetLastError(ncclComm*) { return ""; }

NcclResult ncclAllReduce(const void* from, void* to, size_t count,
                         NcclType type, NcclOp op, ncclComm* comm, void*) {
  const Span data = SpanOf(to, count, type);
  CopyIfApart(to, from, data);
  return Answer(comm, comm->rank->AllReduce(data, OpOf(op), Soon()));
}

NcclResult ncclReduce(const void* from, void* to, size_t count, NcclType type,
                      NcclOp op, int root, ncclComm* comm, void*) {
  const Span data = SpanOf(to, count, type);
  CopyIfApart(to, from, data);
  return Answer(comm, comm->rank->Reduce(data, OpOf(op), root, Soon()));
}

NcclResult ncclBroadcast(const void* from, void* to, size_t count,
                         NcclType type, int root, ncclComm* comm, void*) {
  const Span data = SpanOf(to, count, type);
  if (comm->rank->rank() == root) CopyIfApart(to, from, data);
  return Answer(comm, comm->rank->Broadcast(data, root, Soon()));
}

NcclResult ncclAllGather(const void* from, void* to, size_t count,
                         NcclType type, ncclComm* comm, void*) {
  return Answer(
      comm, comm->rank->AllGather(SpanOf(from, count, type),
                                  SpanOf(to, count * comm->rank->size(), type),
                                  Soon()));
}

NcclResult ncclReduceScatter(const void* from, void* to, size_t count,
                             NcclType type, NcclOp op, ncclComm* comm, void*) {
  return Answer(comm, comm->rank->ReduceScatter(
                          SpanOf(from, count * comm->rank->size(), type),
                          SpanOf(to, count, type), OpOf(op), Soon()));
}

NcclResult ncclSend(const void* from, size_t count, NcclType type, int peer,
                    ncclComm* comm, void*) {
  const ConstSpan data = SpanOf(from, count, type);
  if (peer == comm->rank->rank()) {
    to_self.assign(data.data, data.data + data.byte_size());
    return NcclResult::kSuccess;
  }
  return Answer(comm, comm->rank->Send(data, peer, Soon()));
}

NcclResult ncclRecv(void* to, size_t count, NcclType type, int peer,
                    ncclComm* comm, void*) {
  auto receive = [=]() -> Status {
    if (peer == comm->rank->rank()) {
      std::memcpy(to, to_self.data(), to_self.size());
      return OkStatus();
    }
    return comm->rank->Recv(SpanOf(to, count, type), peer, Soon());
  };
  if (group_depth == 0) return Answer(comm, receive());
  put_off.push_back(receive);
  return NcclResult::kSuccess;
}

NcclResult ncclGroupStart() {
  ++group_depth;
  return NcclResult::kSuccess;
}

NcclResult ncclGroupEnd() {
  --group_depth;
  NcclResult result = NcclResult::kSuccess;
  for (const auto& receive : put_off) {
    if (!receive().ok()) result = NcclResult{3};
  }
  put_off.clear();
  return result;
}

}  // extern "C"

}  // namespace fleet::comm
