// SPDX-License-Identifier: Apache-2.0

// How fast two processes talk over the loopback: by TCP, by UCX where it is
// there, by shared memory. Asked for by its name:
// ninja -C build/release channel_benchmark

#include <csignal>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "fleet/channel/meet.h"

namespace fleet::channel {
namespace {

Deadline Soon() { return Deadline::After(std::chrono::seconds(60)); }

// A peer in a process of its own, which sends back eight bytes for every
// message, or the message itself.
class Peer final {
 public:
  Peer(const std::string& address, Carrier carrier, bool echo) {
    MeetOptions options{.carrier = carrier};
    auto listener =
        Listener::Bind(Address::Parse(address).value(), options).value();
    child_ = fork();
    if (child_ == 0) {
      options.self.rank = 1;
      Answer(*Connect(listener->address(), options, Soon()).value().channel,
             echo);
      _exit(0);
    }
    channel_ = std::move(listener->Accept(Soon()).value().channel);
  }
  ~Peer() {
    channel_.reset();
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  Channel& channel() { return *channel_; }

 private:
  static void Answer(Channel& channel, bool echo) {
    std::vector<std::byte> message;
    const uint64_t small = 0;
    while (true) {
      Result<uint64_t> size = channel.NextSize(Deadline::Infinite());
      if (!size.ok()) return;
      message.resize(*size);
      if (!channel.Recv(message, Soon()).ok()) return;
      const auto answer = echo ? std::span<const std::byte>(message)
                               : std::as_bytes(std::span(&small, 1));
      if (!channel.Send(answer, Soon()).ok()) return;
    }
  }

  pid_t child_ = -1;
  std::unique_ptr<Channel> channel_;
};

// There and back.
void RoundTrip(benchmark::State& state, const char* address, Carrier carrier) {
  Peer peer(address, carrier, true);
  std::vector<std::byte> message(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    if (!peer.channel().Send(message, Soon()).ok() ||
        !peer.channel().Recv(message, Soon()).ok()) {
      state.SkipWithError("the peer is gone");
      return;
    }
  }
}

// One way; a few bytes come back for each message.
void OneWay(benchmark::State& state, const char* address, Carrier carrier) {
  Peer peer(address, carrier, false);
  const std::vector<std::byte> message(static_cast<size_t>(state.range(0)));
  uint64_t answer = 0;
  for (auto _ : state) {
    if (!peer.channel().Send(message, Soon()).ok() ||
        !peer.channel()
             .Recv(std::as_writable_bytes(std::span(&answer, 1)), Soon())
             .ok()) {
      state.SkipWithError("the peer is gone");
      return;
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void Register(const std::string& name, const char* address, Carrier carrier) {
  benchmark::RegisterBenchmark(
      ("RoundTrip/" + name).c_str(),
      [=](benchmark::State& s) { RoundTrip(s, address, carrier); })
      ->Arg(64)
      ->Arg(4096)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark(
      ("OneWay/" + name).c_str(),
      [=](benchmark::State& s) { OneWay(s, address, carrier); })
      ->Arg(1 << 20)
      ->Arg(32 << 20)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace fleet::channel

int main(int argc, char** argv) {
  using namespace fleet::channel;
  benchmark::Initialize(&argc, argv);
  Register("tcp", "127.0.0.1:0", Carrier::kTcp);
  if (ParseCarrier("ucx").ok()) {
    Register("ucx", "127.0.0.1:0", Carrier::kUcx);
  }
  Register("shared_memory", "@fleet-channel-benchmark", Carrier::kTcp);
  benchmark::RunSpecifiedBenchmarks();
}
