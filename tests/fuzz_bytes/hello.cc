// SPDX-License-Identifier: Apache-2.0

// The first bytes of a connection: by themselves, and as a stranger sends them
// to a listener with and without a secret.

#include "fleet/channel/hello.h"

#include <memory>
#include <sys/socket.h>
#include <unistd.h>

#include "fleet/base/deadline.h"
#include "fleet/channel/meet.h"
#include "fleet/channel/socket.h"

#include "tests/fuzz_bytes/bytes.h"

namespace {

using fleet::base::Deadline;
using fleet::channel::HelloBytes;
using fleet::channel::Listener;

std::unique_ptr<Listener> MakeListener(const std::string& secret) {
  fleet::channel::Address address;
  address.local_name = fleet::base::Concat("fleet-fuzz-", ::getpid(), "-",
                                           secret.empty() ? "open" : "closed");
  fleet::channel::MeetOptions options;
  options.trust.secret = secret;
  options.on_refused = [](const fleet::Status&) {};
  auto listener = Listener::Bind(address, options);
  FLEET_CHECK(listener.ok(), listener.status());
  return std::move(listener).value();
}

// What a stranger says, who then closes.
void Say(Listener& listener, std::string_view bytes) {
  const auto resolved = fleet::channel::Resolve(listener.address());
  FLEET_CHECK(resolved.ok());
  const fleet::channel::SocketAddress& at = resolved->front();
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FLEET_CHECK(fd >= 0);
  if (::connect(fd, at.get(), at.byte_size) == 0) {
    (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    (void)::shutdown(fd, SHUT_WR);
    // Taken in, read, and refused or welcomed.
    for (int i = 0; i < 3; ++i) {
      (void)listener.Accept(Deadline::After({}));
    }
  }
  (void)::close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Listener> open = MakeListener("");
  static const std::unique_ptr<Listener> closed = MakeListener("secret");
  fleet::fuzz::Input input(data, size);
  const uint8_t mode = input.TakeByte();
  const std::string bytes = input.rest();
  HelloBytes hello_bytes{};
  std::memcpy(hello_bytes.data(), bytes.data(),
              std::min(bytes.size(), hello_bytes.size()));
  const auto hello = fleet::channel::DecodeHello(hello_bytes);
  if (hello.ok()) {
    ++fleet::fuzz::num_taken;
    const auto mine = fleet::channel::MakeHello({}, (mode & 1) != 0);
    (void)fleet::channel::CheckFit(*mine, *hello);
    (void)hello->sender.Name();
    // What is known of it comes back.
    FLEET_CHECK(
        fleet::channel::DecodeHello(fleet::channel::Encode(*hello))->nonce ==
        hello->nonce);
  }
  fleet::channel::ProofBytes proof{};
  const size_t behind = std::min(bytes.size(), hello_bytes.size());
  std::memcpy(proof.data(), bytes.data() + behind,
              std::min(bytes.size() - behind, proof.size()));
  // Nobody guesses a proof.
  FLEET_CHECK(!fleet::channel::CheckProof(proof, "secret",
                                          fleet::channel::Side::kCaller,
                                          hello_bytes, hello_bytes)
                   .ok());
  Say((mode & 1) == 0 ? *open : *closed, bytes);
  return 0;
}
