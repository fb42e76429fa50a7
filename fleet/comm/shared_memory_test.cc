// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/shared_memory.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fleet/channel/socket.h"
#include "fleet/cluster/store.h"
#include "fleet/comm/communicator_conformance.h"
#include "fleet/testing/forked_ranks.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::comm {
namespace {

// Every rank connects in a thread of its own.
std::vector<Result<std::unique_ptr<Communicator>>> ConnectAll(
    int size, int processes_on_host,
    const std::function<CommunicatorOptions(int)>& options,
    Deadline deadline = Soon()) {
  cluster::InProcessStore store;
  std::vector<Result<std::unique_ptr<Communicator>>> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(Internal("not connected"));
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      ranks[i] = ConnectSharedMemory({.store = &store,
                                      .prefix = "test/",
                                      .rank = i,
                                      .size = size,
                                      .processes_on_host = processes_on_host},
                                     options(i), deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

Ranks MakeRanks(int size, int processes_on_host,
                const std::function<CommunicatorOptions(int)>& options) {
  Ranks ranks;
  for (auto& rank : ConnectAll(size, processes_on_host, options)) {
    EXPECT_OK(rank.status());
    ranks.push_back(rank.ok() ? std::move(*rank) : nullptr);
  }
  return ranks;
}

// As if the host had a core for every rank, and as if it had not.
CommunicatorKind Spinning() {
  return {.name = "shared memory, spinning",
          .make = [](int size, const auto& options) {
            return MakeRanks(size, 1, options);
          }};
}
CommunicatorKind Sleeping() {
  return {.name = "shared memory, sleeping",
          .make = [](int size, const auto& options) {
            return MakeRanks(size, 1'000'000, options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Spinning, CommunicatorConformance,
                         testing::Values(Spinning()));
INSTANTIATE_TEST_SUITE_P(Spinning, CommunicatorFailures,
                         testing::Values(Spinning()));
INSTANTIATE_TEST_SUITE_P(Sleeping, CommunicatorConformance,
                         testing::Values(Sleeping()));
INSTANTIATE_TEST_SUITE_P(Sleeping, CommunicatorFailures,
                         testing::Values(Sleeping()));

std::function<CommunicatorOptions(int)> Defaults() {
  return [](int) { return CommunicatorOptions(); };
}

// Runs `body` for every rank of a group of `size`, each in a thread.
void OnRanks(int size, const std::function<void(Communicator&)>& body) {
  Ranks ranks = MakeRanks(size, 1, Defaults());
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    ASSERT_NE(rank, nullptr);
    threads.emplace_back([&] { body(*rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

Span Floats(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size(),
          DataType::kFloat32};
}

std::span<float> FloatsOf(const Buffer& buffer) {
  return {reinterpret_cast<float*>(buffer.bytes().data()),
          buffer.bytes().size() / sizeof(float)};
}

// Below and above every limit between two ways to go.
constexpr size_t kCounts[] = {1,      10,     11,     4'000,    16'384,
                              16'385, 33'000, 70'003, 1'000'003};

TEST(SharedMemory, ReducesInMemoryFromAllocate) {
  for (int size : {1, 2, 3, 4}) {
    OnRanks(size, [](Communicator& comm) {
      for (size_t count : kCounts) {
        ASSERT_OK_AND_ASSIGN(Buffer buffer,
                             comm.Allocate(count * sizeof(float), Soon()));
        std::span<float> values = FloatsOf(buffer);
        ASSERT_EQ(values.size(), count);
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(values[i], 0.0f);
          values[i] = static_cast<float>(i % 100) + comm.rank();
        }
        ASSERT_OK(comm.AllReduce(buffer.As(DataType::kFloat32), ReduceOp::kSum,
                                 Soon()));
        const float ranks = static_cast<float>(comm.size());
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(values[i], ranks * static_cast<float>(i % 100) +
                                   ranks * (ranks - 1) / 2)
              << i << " of " << count;
        }
      }
    });
  }
}

// Parts of a buffer, other buffers, and plain memory, all in one call.
TEST(SharedMemory, ReducesWhereRanksHaveTheirDataInDifferentPlaces) {
  for (int size : {2, 3}) {
    OnRanks(size, [](Communicator& comm) {
      constexpr size_t kCount = 50'000;
      constexpr size_t kBytes = kCount * sizeof(float);
      ASSERT_OK_AND_ASSIGN(Buffer first, comm.Allocate(2 * kBytes, Soon()));
      ASSERT_OK_AND_ASSIGN(Buffer second, comm.Allocate(kBytes, Soon()));
      std::vector<float> plain(kCount);
      // By rank: all in one place, in two buffers, some outside, all outside.
      for (int way = 0; way < 5; ++way) {
        Span data = first.As(DataType::kFloat32);
        data.count = kCount;
        const bool odd = comm.rank() % 2 == 1;
        if (way == 1) data.data += kBytes / 2;
        if (way == 2 && odd) data = second.As(DataType::kFloat32);
        if (way == 3 && odd) data = Floats(plain);
        if (way == 4) data = Floats(plain);
        auto* values = reinterpret_cast<float*>(data.data);
        std::fill_n(values, kCount, static_cast<float>(comm.rank() + 1));
        ASSERT_OK(comm.AllReduce(data, ReduceOp::kMean, Soon()));
        const float mean = static_cast<float>(comm.size() + 1) / 2;
        for (size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(values[i], mean) << "way " << way << ", " << i;
        }
      }
    });
  }
}

// No call writes where a slow rank still reads for the one before.
TEST(SharedMemory, CallsOfAllKindsFollowEachOther) {
  for (int size : {2, 3, 4}) {
    OnRanks(size, [](Communicator& comm) {
      const auto n = static_cast<float>(comm.size());
      const auto me = static_cast<float>(comm.rank());
      uint32_t random = 1;  // the same on all ranks
      for (int i = 0; i < 100; ++i) {
        random = random * 1664525 + 1013904223;
        const size_t count = size_t{1} << (random >> 24) % 19;
        const int root = static_cast<int>(random >> 16) % comm.size();
        std::vector<float> values(count, me + 1);
        switch ((random >> 8) % 4) {
          case 0:
            ASSERT_OK(comm.AllReduce(Floats(values), ReduceOp::kSum, Soon()));
            ASSERT_EQ(values, std::vector<float>(count, n * (n + 1) / 2)) << i;
            break;
          case 1:
            ASSERT_OK(
                comm.Reduce(Floats(values), ReduceOp::kMax, root, Soon()));
            ASSERT_EQ(values, std::vector<float>(
                                  count, comm.rank() == root ? n : me + 1))
                << i;
            break;
          case 2:
            ASSERT_OK(comm.Broadcast(Floats(values), root, Soon()));
            ASSERT_EQ(values,
                      std::vector<float>(count, static_cast<float>(root + 1)))
                << i;
            break;
          case 3: {
            std::vector<float> all(count * comm.size());
            ASSERT_OK(comm.AllGather(Floats(values), Floats(all), Soon()));
            for (size_t k = 0; k < all.size(); ++k) {
              ASSERT_EQ(all[k], static_cast<float>(k / count + 1)) << i;
            }
            break;
          }
        }
      }
    });
  }
}

TEST(SharedMemory, IsBitEqualOnAllRanks) {
  constexpr int kSize = 3;
  for (size_t count : kCounts) {
    std::vector<std::vector<float>> results(kSize);
    OnRanks(kSize, [&](Communicator& comm) {
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) {
        values[i] = 1.0f / static_cast<float>(i + 3 * comm.rank() + 1);
      }
      ASSERT_OK(comm.AllReduce(Floats(values), ReduceOp::kMean, Soon()));
      results[comm.rank()] = std::move(values);
    });
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(SharedMemory, ABufferOutlivesItsCommunicator) {
  OnRanks(2, [](Communicator&) {});  // so that the process has what it keeps
  std::vector<Buffer> buffers(2);
  {
    OnRanks(2, [&](Communicator& comm) {
      ASSERT_OK_AND_ASSIGN(buffers[comm.rank()],
                           comm.Allocate(1'000'000, Soon()));
    });
  }
  for (Buffer& buffer : buffers) {
    for (std::byte& byte : buffer.bytes()) byte = std::byte{1};
  }
}

int CountLines(const std::string& path, std::string_view text) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    count += line.find(text) != std::string::npos;
  }
  return count;
}

int NumMappings() { return CountLines("/proc/self/maps", "memfd:fleet"); }

TEST(SharedMemory, GivesMemoryBackThatNoRankUses) {
  OnRanks(2, [](Communicator& comm) {
    ASSERT_OK(comm.Barrier(Soon()));
    const int before = NumMappings();
    ASSERT_OK(comm.Barrier(Soon()));
    for (int i = 0; i < 100; ++i) {
      ASSERT_OK_AND_ASSIGN(Buffer buffer, comm.Allocate(100'000, Soon()));
      buffer.bytes()[0] = std::byte{1};
    }
    ASSERT_OK(comm.Barrier(Soon()));
    // The last one or two of each rank.
    EXPECT_LE(NumMappings(), before + 4);
    ASSERT_OK(comm.Barrier(Soon()));
  });
  EXPECT_EQ(NumMappings(), 0);
}

size_t NumDescriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                    std::filesystem::directory_iterator()));
}

TEST(SharedMemory, LeavesNothingBehind) {
  const size_t before = NumDescriptors();
  OnRanks(3, [](Communicator& comm) {
    ASSERT_OK(comm.Allocate(1000, Soon()).status());
    std::vector<float> values(1000);
    if (comm.rank() == 0) {
      ASSERT_OK(comm.Send(Floats(values), 1, Soon()));
    } else if (comm.rank() == 1) {
      ASSERT_OK(comm.Recv(Floats(values), 0, Soon()));
    }
  });
  EXPECT_EQ(NumDescriptors(), before);
  EXPECT_EQ(NumMappings(), 0);
}

TEST(SharedMemory, ALackOfMemoryInAllocateIsAnErrorOnAllRanks) {
  for (size_t byte_size : {size_t{1} << 44, size_t{1} << 60}) {
    OnRanks(3, [&](Communicator& comm) {
      const Status status = comm.Allocate(byte_size, Soon()).status();
      EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable,
                                   HasSubstr("shared memory of ")));
      EXPECT_EQ(comm.Barrier(Soon()), status);
    });
  }
}

// A limit on file sizes stands for a full memory.
class SmallFiles final {
 public:
  explicit SmallFiles(rlim_t byte_size) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit tight = before_;
    tight.rlim_cur = byte_size;
    handler_ = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tight);
  }
  ~SmallFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

TEST(SharedMemory, ALackOfMemoryAtTheStartIsAnErrorOnAllRanks) {
  const SmallFiles full(4096);
  for (const auto& rank : ConnectAll(3, 1, Defaults())) {
    EXPECT_THAT(rank.status(), StatusIs(StatusCode::kUnavailable,
                                        HasSubstr("shared memory of ")));
  }
}

Result<std::unique_ptr<Communicator>> ConnectAlone(cluster::Store& store,
                                                   int rank, int size,
                                                   Deadline deadline) {
  return ConnectSharedMemory(
      {.store = &store, .prefix = "test/", .rank = rank, .size = size}, {},
      deadline);
}

TEST(SharedMemory, RanksThatNeverComeAreNamed) {
  cluster::InProcessStore store;
  EXPECT_THAT(ConnectAlone(store, 0, 3, Deadline::After(50ms)).status(),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("world: rank 0"),
                             HasSubstr("no sign of ranks 1, 2"))));
  cluster::InProcessStore other;
  EXPECT_THAT(ConnectAlone(other, 1, 3, Deadline::After(50ms)).status(),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("world: rank 1"),
                             HasSubstr("no sign of rank 0"))));
}

TEST(SharedMemory, AnInterruptEndsTheStart) {
  cluster::InProcessStore store;
  CommunicatorOptions options;
  options.interrupt = [] { return Unavailable("^C"); };
  EXPECT_THAT(ConnectSharedMemory(
                  {.store = &store, .prefix = "test/", .rank = 0, .size = 2},
                  options, Soon())
                  .status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("^C")));
}

// One says nothing, one says something else, one goes away.
TEST(SharedMemory, StrangersNeitherGetInNorDisturb) {
  cluster::InProcessStore store;
  std::thread rank0([&] { EXPECT_OK(ConnectAlone(store, 0, 2, Soon())); });
  ASSERT_OK_AND_ASSIGN(auto found, store.Wait({"test/shared_memory"}, Soon()));
  channel::Address address;
  address.local_name = found[0].substr(0, 32);
  ASSERT_OK_AND_ASSIGN(auto resolved, channel::Resolve(address));
  auto connect_stranger = [&](std::string_view says) {
    auto fd = base::Descriptor::OfThisProcess(
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), resolved[0].get(), resolved[0].byte_size), 0);
    EXPECT_OK(channel::WriteAll(
        fd.get(), std::as_bytes(std::span(says.data(), says.size())), Soon()));
    return fd;
  };
  const base::Descriptor silent = connect_stranger("");
  const base::Descriptor wrong = connect_stranger(std::string(36, 'x'));
  const base::Descriptor rude = connect_stranger("GET / HTTP/1.1\r\n\r\n");
  connect_stranger("");
  EXPECT_OK(ConnectAlone(store, 1, 2, Soon()));
  rank0.join();
  // Refused without an answer.
  char byte;
  EXPECT_EQ(recv(wrong.get(), &byte, 1, 0), 0);
}

// Ranks as processes. The failures of a child are its exit code and are shown.
std::unique_ptr<Communicator> ConnectProcess(cluster::Store& store, int rank,
                                             int size, int processes_on_host) {
  Result<std::unique_ptr<Communicator>> comm =
      ConnectSharedMemory({.store = &store,
                           .prefix = "test/",
                           .rank = rank,
                           .size = size,
                           .processes_on_host = processes_on_host},
                          {}, Soon());
  EXPECT_OK(comm.status());
  return comm.ok() ? std::move(*comm) : nullptr;
}

TEST(SharedMemoryProcesses, ARankThatIsKilledIsNamed) {
  constexpr int kSize = 3;
  // Rank 0 sees all connections, the others that of rank 0; what one of them
  // sees, all are told.
  for (int victim : {0, 1}) {
    for (int processes : {1, 1'000'000}) {
      ForkedStore store;
      const std::vector<int> outcomes = RunProcesses(kSize, [&](int rank) {
        auto comm = ConnectProcess(store, rank, kSize, processes);
        std::vector<float> values(100'000);
        EXPECT_OK(comm->AllReduce(Floats(values), ReduceOp::kSum, Soon()));
        // Nobody is still in that call when one dies.
        EXPECT_OK(store.Set(base::Concat("done/", rank), "", Soon()));
        if (rank == victim) {
          EXPECT_OK(store.Wait({"done/0", "done/1", "done/2"}, Soon()));
          raise(SIGKILL);
        }
        const Status status =
            comm->AllReduce(Floats(values), ReduceOp::kSum, Soon());
        EXPECT_THAT(
            status,
            StatusIs(StatusCode::kUnavailable,
                     AllOf(HasSubstr("all_reduce(sum, 100000 x float32"),
                           HasSubstr(base::Concat("rank ", victim, " died")))));
        return testing::Test::HasFailure() ? 1 : 0;
      });
      for (int i = 0; i < kSize; ++i) {
        if (i == victim) {
          EXPECT_TRUE(WIFSIGNALED(outcomes[i]));
        } else {
          EXPECT_EQ(outcomes[i], 0) << "rank " << i;
        }
      }
    }
  }
}

TEST(SharedMemoryProcesses, ARankThatIsStoppedIsLateAndThenGoesOn) {
  ForkedStore store;
  ForkedStore* shared = &store;
  const std::vector<int> outcomes = RunProcesses(2, [&](int rank) {
    auto comm = ConnectProcess(*shared, rank, 2, 1);
    if (rank == 1) {
      EXPECT_OK(shared->Set("pid", std::to_string(getpid()), Soon()));
      for (int i = 0; i < 1000; ++i) EXPECT_OK(comm->Barrier(Soon()));
      return testing::Test::HasFailure() ? 1 : 0;
    }
    auto found = shared->Wait({"pid"}, Soon());
    EXPECT_OK(found.status());
    const pid_t other = std::stoi(found->front());
    EXPECT_EQ(kill(other, SIGSTOP), 0);
    testing::SleepingThreads waiters;
    waiters.Enter();
    std::thread later([&] {
      waiters.Await(1);
      EXPECT_EQ(kill(other, SIGCONT), 0);
    });
    for (int i = 0; i < 1000; ++i) EXPECT_OK(comm->Barrier(Soon()));
    later.join();
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_THAT(outcomes, testing::Each(0));
}

// A child that a rank forks, say to load data, neither keeps the connection
// alive nor says good-bye in its parent's name.
TEST(SharedMemoryProcesses, AKilledRankWithChildrenIsNamed) {
  ForkedStore store;
  const std::vector<int> outcomes = RunProcesses(2, [&](int rank) {
    auto comm = ConnectProcess(store, rank, 2, 1);
    if (rank == 1) {
      const pid_t child = fork();
      if (child == 0) {
        comm.reset();
        sleep(60);  // ended by rank 0
        _exit(0);
      }
      EXPECT_OK(store.Set("child", std::to_string(child), Soon()));
      EXPECT_OK(comm->Barrier(Soon()));
      EXPECT_OK(store.Wait({"passed"}, Soon()));
      raise(SIGKILL);
    }
    EXPECT_OK(comm->Barrier(Soon()));
    EXPECT_OK(store.Set("passed", "", Soon()));
    EXPECT_THAT(comm->Barrier(Soon()),
                StatusIs(StatusCode::kUnavailable, HasSubstr("rank 1 died")));
    auto child = store.Get("child", Soon());
    EXPECT_OK(child.status());
    EXPECT_EQ(kill(std::stoi(*child), SIGKILL), 0) << "it is no more";
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(outcomes[0], 0);
}

}  // namespace
}  // namespace fleet::comm
