// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/hello.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/random.h>
#include <vector>

#include "fleet/base/bytes.h"

namespace fleet::channel {
namespace {

// Where things lie in a hello.
constexpr std::string_view kMagic = "FLEETHI\n";
constexpr size_t kVersionAt = 8;
constexpr size_t kFlagsAt = 12;
constexpr size_t kKindAt = 16;
constexpr size_t kRankAt = 20;
constexpr size_t kNonceAt = 32;  // 24 to 32 are zero

constexpr uint32_t kHasSecret = 1;
constexpr uint32_t kByUcx = 2;
constexpr uint32_t kEncrypts = 4;
constexpr uint32_t kByTls = 8;
constexpr uint32_t kSeals = 16;

// Bytes as people read them: printable ones as they are, others as \x1b.
std::string Readable(std::span<const std::byte> bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (std::byte b : bytes) {
    const auto c = std::to_integer<unsigned char>(b);
    if (c >= 0x20 && c < 0x7f && c != '\\') {
      out += static_cast<char>(c);
    } else {
      out += "\\x";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  return out;
}

Result<Digest> SignHellos(std::string_view secret, std::string_view label,
                          const HelloBytes& caller, const HelloBytes& host) {
  std::vector<std::byte> text;
  const auto label_bytes = std::as_bytes(std::span(label));
  text.insert(text.end(), label_bytes.begin(), label_bytes.end());
  text.insert(text.end(), caller.begin(), caller.end());
  text.insert(text.end(), host.begin(), host.end());
  return HmacSha256(secret, text);
}

Result<Digest> Sign(std::string_view secret, Side prover,
                    const HelloBytes& caller, const HelloBytes& host) {
  constexpr std::string_view kLabels[] = {"fleet hello: caller",
                                          "fleet hello: host"};
  return SignHellos(secret, kLabels[static_cast<uint32_t>(prover)], caller,
                    host);
}

}  // namespace

std::string Identity::Name() const {
  switch (kind) {
    case ProcessKind::kWorker:
      return "worker " + std::to_string(rank);
    case ProcessKind::kServer:
      return "server " + std::to_string(rank);
    case ProcessKind::kLauncher:
      return "launcher " + std::to_string(rank);
  }
  return "process " + std::to_string(rank);
}

Result<Hello> MakeHello(Identity self, bool has_secret) {
  Hello hello;
  hello.has_secret = has_secret;
  hello.sender = self;
  // Up to 256 bytes come whole or not at all.
  if (getrandom(hello.nonce.data(), hello.nonce.size(), 0) !=
      static_cast<ssize_t>(hello.nonce.size())) {
    return ErrnoStatus(errno, "random bytes for a hello");
  }
  return hello;
}

HelloBytes Encode(const Hello& hello) {
  HelloBytes bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  base::StoreAt<uint32_t>(bytes, kVersionAt, hello.version);
  base::StoreAt<uint32_t>(
      bytes, kFlagsAt,
      (hello.has_secret ? kHasSecret : 0) | (hello.by_ucx ? kByUcx : 0) |
          (hello.encrypts ? kEncrypts : 0) | (hello.by_tls ? kByTls : 0) |
          (hello.seals ? kSeals : 0));
  base::StoreAt<uint32_t>(bytes, kKindAt,
                          static_cast<uint32_t>(hello.sender.kind));
  base::StoreAt<uint32_t>(bytes, kRankAt,
                          static_cast<uint32_t>(hello.sender.rank));
  std::copy(hello.nonce.begin(), hello.nonce.end(), bytes.begin() + kNonceAt);
  return bytes;
}

Status CheckBegin(std::span<const std::byte> begin) {
  const size_t count = std::min(begin.size(), kMagic.size());
  if (std::memcmp(begin.data(), kMagic.data(), count) == 0) return OkStatus();
  return DataLoss("not a Fleet process: it began with \"",
                  Readable(begin.first(std::min<size_t>(begin.size(), 16))),
                  "\"");
}

Result<Hello> DecodeHello(const HelloBytes& bytes) {
  RETURN_IF_ERROR(CheckBegin(bytes));
  Hello hello;
  hello.version = base::LoadAt<uint32_t>(bytes, kVersionAt);
  const auto flags = base::LoadAt<uint32_t>(bytes, kFlagsAt);
  hello.has_secret = (flags & kHasSecret) != 0;
  hello.by_ucx = (flags & kByUcx) != 0;
  hello.encrypts = (flags & kEncrypts) != 0;
  hello.by_tls = (flags & kByTls) != 0;
  hello.seals = (flags & kSeals) != 0;
  hello.sender.kind =
      static_cast<ProcessKind>(base::LoadAt<uint32_t>(bytes, kKindAt));
  hello.sender.rank =
      static_cast<int32_t>(base::LoadAt<uint32_t>(bytes, kRankAt));
  std::copy(bytes.begin() + kNonceAt, bytes.end(), hello.nonce.begin());
  return hello;
}

Status CheckFit(const Hello& mine, const Hello& theirs) {
  if (mine.version != theirs.version) {
    return FailedPrecondition("speaks protocol version ", theirs.version,
                              ", and this process version ", mine.version,
                              ": all must run the same release");
  }
  if (mine.has_secret && !theirs.has_secret) {
    return FailedPrecondition(
        "has no job secret, and this process has one: give both the same");
  }
  if (!mine.has_secret && theirs.has_secret) {
    return FailedPrecondition(
        "has a job secret, and this process has none: give both the same");
  }
  if (mine.by_ucx != theirs.by_ucx) {
    return FailedPrecondition(
        "goes on by ", theirs.by_ucx ? "UCX" : "TCP", ", and this process by ",
        mine.by_ucx ? "UCX" : "TCP",
        ": give all processes of a job the same FLEET_CHANNEL");
  }
  if (mine.encrypts != theirs.encrypts) {
    return FailedPrecondition(
        theirs.encrypts ? "encrypts" : "does not encrypt",
        ", and this process ", mine.encrypts ? "does" : "does not",
        ": give all processes of a job the same FLEET_ENCRYPTION");
  }
  return OkStatus();
}

Result<ProofBytes> MakeProof(std::string_view secret, Side prover,
                             const HelloBytes& caller, const HelloBytes& host) {
  ProofBytes proof = MakeRefusal(Verdict::kAccepted);
  if (secret.empty()) return proof;
  ASSIGN_OR_RETURN(const Digest digest, Sign(secret, prover, caller, host));
  std::copy(digest.begin(), digest.end(), proof.begin() + sizeof(Verdict));
  return proof;
}

ProofBytes MakeRefusal(Verdict verdict) {
  ProofBytes proof{};
  base::StoreAt(proof, 0, verdict);
  return proof;
}

Result<Digest> MakeSessionKey(std::string_view secret, const HelloBytes& caller,
                              const HelloBytes& host) {
  return SignHellos(secret, "fleet session key", caller, host);
}

Status CheckProof(const ProofBytes& proof, std::string_view secret, Side prover,
                  const HelloBytes& caller, const HelloBytes& host) {
  const auto verdict = base::LoadAt<Verdict>(proof, 0);
  if (verdict == Verdict::kWrongSecret) {
    return FailedPrecondition(
        "refused this process, whose job secret is another than its own");
  }
  if (verdict != Verdict::kAccepted) {
    return DataLoss("answered the hello by verdict ",
                    static_cast<uint64_t>(verdict));
  }
  if (secret.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const Digest expected, Sign(secret, prover, caller, host));
  Digest digest;
  std::copy(proof.begin() + sizeof(Verdict), proof.end(), digest.begin());
  if (SameDigest(digest, expected)) return OkStatus();
  return FailedPrecondition(
      "does not know this job's secret: it has another one");
}

}  // namespace fleet::channel
