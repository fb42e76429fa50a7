// SPDX-License-Identifier: Apache-2.0

// Runs every operation of the NCCL backend on every type, in memory of GPU 0,
// with the one rank that one GPU allows, and prints operation x type. Written
// without a test library: machines with a GPU may have none.
//
// usage: nccl_check        closing line: 'N passed, N failed'

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fleet/comm/in_process.h"
#include "fleet/comm/nccl.h"
#include "fleet/comm/nccl_library.h"

namespace fleet::comm {
namespace {

constexpr size_t kCount = 1000;
constexpr int kNumTypes = kNumDataTypes;

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

class Check final {
 public:
  Check(const NcclLibrary& library, Communicator& comm)
      : library_(library), comm_(comm) {}

  int Run() {
    for (int i = 0; i < kNumTypes; ++i) RunType(static_cast<DataType>(i));
    Note("allocated memory is zero", DataType::kUInt8, MemoryIsZero());
    Note("barrier", DataType::kUInt8, comm_.Barrier(Soon()));
    Note("objects", DataType::kUInt8, ObjectsTravel());
    Note("memory of the host", DataType::kFloat32, HostMemory());
    Note("asynchronous", DataType::kFloat32, Asynchronous());
    Note("abort", DataType::kFloat32, AbortEndsIt());
    Print();
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  // Elements are any bytes: one rank keeps what it brought.
  static std::vector<std::byte> Pattern(DataType type) {
    std::vector<std::byte> bytes(kCount * ByteSize(type));
    const size_t width = ByteSize(type);
    for (size_t i = 0; i < kCount; ++i) {
      // Small numbers in every type: the low byte of an integer, 0 or 1 for a
      // bool, and for floats the upper bytes of numbers around 1.
      auto* element = &bytes[i * width];
      if (type == DataType::kBool) {
        element[0] = std::byte(i % 2);
      } else if (type < DataType::kFloat16) {
        element[0] = std::byte(i % 100);
      } else {
        element[width - 1] = std::byte{0x3c};
        element[width - 2] = std::byte(i % 100);
      }
    }
    return bytes;
  }

  Status Write(const Buffer& to, const std::vector<std::byte>& bytes) {
    RETURN_IF_ERROR(
        library_.Check(library_.cuda.MemcpyHtoDAsync(
                           reinterpret_cast<CudaAddress>(to.bytes().data()),
                           bytes.data(), bytes.size(), nullptr),
                       "write"));
    return Wait();
  }

  Result<std::vector<std::byte>> Read(const Buffer& from) {
    std::vector<std::byte> bytes(from.bytes().size());
    RETURN_IF_ERROR(library_.Check(
        library_.cuda.MemcpyDtoHAsync(
            bytes.data(), reinterpret_cast<CudaAddress>(from.bytes().data()),
            bytes.size(), nullptr),
        "read"));
    RETURN_IF_ERROR(Wait());
    return bytes;
  }

  Status Wait() {
    const Deadline deadline = Soon();
    CudaResult state = CudaResult::kNotReady;
    while (state == CudaResult::kNotReady) {
      if (deadline.expired()) return DeadlineExceeded("the GPU is not done");
      state = library_.cuda.StreamQuery(nullptr);
    }
    return library_.Check(state, "wait");
  }

  // Runs `call(from, to)` and expects the pattern of `from` in `to`, or in
  // `from` where it is in place.
  Status Try(DataType type, bool in_place,
             const std::function<Status(Span from, Span to)>& call) {
    const std::vector<std::byte> pattern = Pattern(type);
    ASSIGN_OR_RETURN(Buffer from, comm_.Allocate(pattern.size(), Soon()));
    ASSIGN_OR_RETURN(Buffer to, comm_.Allocate(pattern.size(), Soon()));
    RETURN_IF_ERROR(Write(from, pattern));
    RETURN_IF_ERROR(call(from.As(type), to.As(type)));
    ASSIGN_OR_RETURN(std::vector<std::byte> got, Read(in_place ? from : to));
    if (got == pattern) return OkStatus();
    return Internal("other elements than expected");
  }

  void RunType(DataType type) {
    for (int i = 0; i < kNumReduceOps; ++i) {
      const auto op = static_cast<ReduceOp>(i);
      if (op == ReduceOp::kMean && type < DataType::kFloat16) continue;
      const std::string name(ToString(op));
      Note("all_reduce " + name, type, Try(type, true, [&](Span from, Span) {
             return comm_.AllReduce(from, op, Soon());
           }));
      Note("reduce " + name, type, Try(type, true, [&](Span from, Span) {
             return comm_.Reduce(from, op, 0, Soon());
           }));
      Note("reduce_scatter " + name, type,
           Try(type, false, [&](Span from, Span to) {
             return comm_.ReduceScatter(from, to, op, Soon());
           }));
    }
    Note("broadcast", type, Try(type, true, [&](Span from, Span) {
           return comm_.Broadcast(from, 0, Soon());
         }));
    Note("all_gather", type, Try(type, false, [&](Span from, Span to) {
           return comm_.AllGather(from, to, Soon());
         }));
    Note("scatter", type, Try(type, false, [&](Span from, Span to) {
           return comm_.Scatter(from, to, 0, Soon());
         }));
    Note("gather", type, Try(type, false, [&](Span from, Span to) {
           return comm_.Gather(from, to, 0, Soon());
         }));
    Note("all_to_all", type, Try(type, false, [&](Span from, Span to) {
           return comm_.AllToAll(from, to, Soon());
         }));
  }

  Status MemoryIsZero() {
    ASSIGN_OR_RETURN(Buffer buffer, comm_.Allocate(4096, Soon()));
    ASSIGN_OR_RETURN(std::vector<std::byte> bytes, Read(buffer));
    for (std::byte b : bytes) {
      if (b != std::byte{0}) return Internal("it is not");
    }
    return OkStatus();
  }

  Status ObjectsTravel() {
    const std::vector<std::byte> object = Pattern(DataType::kUInt8);
    ASSIGN_OR_RETURN(auto all, comm_.AllGatherBytes(object, Soon()));
    if (all.size() == 1 && all[0] == object) return OkStatus();
    return Internal("another object came back");
  }

  Status HostMemory() {
    float number = 3;
    RETURN_IF_ERROR(comm_.AllReduce(
        {reinterpret_cast<std::byte*>(&number), 1, DataType::kFloat32, nullptr},
        ReduceOp::kSum, Soon()));
    return number == 3 ? OkStatus() : Internal("it changed");
  }

  Status Asynchronous() {
    return Try(DataType::kFloat32, true, [&](Span from, Span) {
      return comm_
          .Start([from](Communicator& comm) {
            return comm.AllReduce(from, ReduceOp::kSum, Soon());
          })
          .Wait(Soon());
    });
  }

  Status AbortEndsIt() {
    comm_.Abort(Internal("enough"));
    const Status after = comm_.Barrier(Soon());
    if (after.code() == StatusCode::kInternal) return OkStatus();
    return Internal("a later call answered: ", after);
  }

  void Note(const std::string& operation, DataType type, const Status& status) {
    if (status.ok()) {
      ++passed_;
    } else {
      ++failed_;
      std::printf("%s of %s: %s\n", operation.c_str(),
                  std::string(ToString(type)).c_str(),
                  status.message().c_str());
    }
    table_[operation][type] = status.ok();
  }

  void Print() {
    std::printf("%-26s", "nccl, one rank");
    for (int i = 0; i < kNumTypes; ++i) {
      std::printf(" %8s",
                  std::string(ToString(static_cast<DataType>(i))).c_str());
    }
    for (const auto& [operation, row] : table_) {
      std::printf("\n%-26s", operation.c_str());
      for (int i = 0; i < kNumTypes; ++i) {
        const auto cell = row.find(static_cast<DataType>(i));
        std::printf(" %8s", cell == row.end() ? "-"
                            : cell->second    ? "yes"
                                              : "NO");
      }
    }
    std::printf("\n");
  }

  const NcclLibrary& library_;
  Communicator& comm_;
  std::map<std::string, std::map<DataType, bool>> table_;
  int passed_ = 0;
  int failed_ = 0;
};

Result<int> RunCheck() {
  ASSIGN_OR_RETURN(const NcclLibrary* library, NcclLibrary::Get());
  auto companion = std::move(MakeInProcess(1).front());
  ASSIGN_OR_RETURN(auto comm, ConnectNccl(std::move(companion), 0, {}, Soon()));
  CUctx_st* context = nullptr;
  RETURN_IF_ERROR(library->Check(
      library->cuda.DevicePrimaryCtxRetain(&context, 0), "context"));
  RETURN_IF_ERROR(
      library->Check(library->cuda.CtxPushCurrent(context), "context"));
  return Check(*library, *comm).Run();
}

}  // namespace
}  // namespace fleet::comm

int main() {
  fleet::Result<int> code = fleet::comm::RunCheck();
  if (!code.ok()) {
    std::fprintf(stderr, "nccl_check: %s\n", code.status().message().c_str());
    return 1;
  }
  return *code;
}
