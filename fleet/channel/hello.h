// SPDX-License-Identifier: Apache-2.0

// The first bytes of every connection, before anything else is believed:
//
//   caller -> host   Hello (64 bytes)
//   host -> caller   Hello
//   caller -> host   Proof (40 bytes)
//   host -> caller   Proof
//
// Sizes are fixed, so that nobody can make a process read more. Each proof is
// an HMAC by the job secret over both hellos, whose nonces are new each time;
// it differs by direction, so that sending one back proves nothing. Without a
// secret the proofs are empty and only magic, version and absence of a secret
// are checked. All numbers are little-endian.

#ifndef FLEET_CHANNEL_HELLO_H_
#define FLEET_CHANNEL_HELLO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fleet/base/status.h"
#include "fleet/channel/hmac.h"

namespace fleet::channel {

enum class ProcessKind : uint32_t { kWorker = 0, kServer = 1, kLauncher = 2 };

// Who a process says it is.
struct Identity {
  ProcessKind kind = ProcessKind::kWorker;
  int32_t rank = 0;

  // "worker 3"
  std::string Name() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

// 2: incarnations and epochs of parameter servers (docs/wire.md).
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr size_t kHelloByteSize = 64;
inline constexpr size_t kProofByteSize = 40;
inline constexpr size_t kMaxSealedByteSize = 4096;
using HelloBytes = std::array<std::byte, kHelloByteSize>;
using ProofBytes = std::array<std::byte, kProofByteSize>;

struct Hello {
  uint32_t version = kProtocolVersion;
  bool has_secret = false;
  bool by_ucx = false;    // what follows the hello goes by UCX
  bool encrypts = false;  // between hosts, if it has a secret
  bool by_tls = false;    // the caller's: what follows is encrypted
  // The caller's: it asks for the sealed secret and will say no more. The
  // host's: that follows, as a size in four bytes and so many bytes.
  bool seals = false;
  Identity sender;
  std::array<std::byte, 32> nonce{};
};

// A hello with a new nonce from the kernel.
Result<Hello> MakeHello(Identity self, bool has_secret);

HelloBytes Encode(const Hello& hello);

// Whether `begin`, the first bytes that came, can be the begin of a hello. If
// not, DataLoss, which shows them. Fewer bytes than a hello are fine.
Status CheckBegin(std::span<const std::byte> begin);

// DataLoss for what is no hello; the version is not judged here.
Result<Hello> DecodeHello(const HelloBytes& bytes);

// FailedPrecondition when two such processes cannot talk: another protocol
// version, or one has a secret, goes on by UCX or encrypts and the other does
// not.
Status CheckFit(const Hello& mine, const Hello& theirs);

enum class Side : uint32_t { kCaller = 0, kHost = 1 };
enum class Verdict : uint64_t { kAccepted = 0, kWrongSecret = 1 };

// The proof that `prover` knows `secret`. An empty secret gives an empty proof.
Result<ProofBytes> MakeProof(std::string_view secret, Side prover,
                             const HelloBytes& caller, const HelloBytes& host);
// The proof's place taken by the news that the other's proof was wrong.
ProofBytes MakeRefusal(Verdict verdict);

// A key that only two who know `secret` have after these hellos.
Result<Digest> MakeSessionKey(std::string_view secret, const HelloBytes& caller,
                              const HelloBytes& host);

// Ok when `proof` came from one who knows `secret`. FailedPrecondition when it
// did not, or says that ours was wrong.
Status CheckProof(const ProofBytes& proof, std::string_view secret, Side prover,
                  const HelloBytes& caller, const HelloBytes& host);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_HELLO_H_
