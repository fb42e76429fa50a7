// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "fleet/base/check.h"
#include "fleet/base/mutex.h"
#include "fleet/channel/socket.h"
#include "fleet/channel/tls_stream.h"

namespace fleet::channel {
namespace {

using base::Deadline;

// What a record of TLS holds at most.
constexpr size_t kRecord = 16 << 10;
// Encrypted and given to the socket by one call: as much as the kernel sends as
// one packet. A record each would be four times as many packets.
constexpr size_t kBatch = 4 * kRecord;
// What a record may be larger than its content.
constexpr size_t kRecordOverhead = 256;

// After so many records a writer takes a new key.
constexpr uint64_t kRecordsOfAKey = uint64_t{1} << 22;

// The name of the key in the handshake. There is one key for a connection.
constexpr char kKeyName[] = "fleet";

// AES-128 is the fastest on every CPU with AES instructions.
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

// The newest error of this thread, as text; forgets all of them.
std::string TakeError() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (error == 0) return "TLS failed";
  const char* reason = ERR_reason_error_string(error);
  return base::Concat("TLS: ", reason != nullptr ? reason : "failed");
}

// What OpenSSL reads from and writes to.
struct Wire {
  base::Descriptor fd;
  // Records are collected here in place of being sent, while a writer wants it.
  bool collects = false;
  std::vector<char> collected;
};

Wire& WireOf(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

// Bytes from and to a socket for OpenSSL, whose own way to a socket raises
// SIGPIPE.
int WriteToSocket(BIO* bio, const char* from, size_t byte_size, size_t* done) {
  BIO_clear_retry_flags(bio);
  Wire& wire = WireOf(bio);
  if (wire.collects) {
    wire.collected.insert(wire.collected.end(), from, from + byte_size);
    *done = byte_size;
    return 1;
  }
  const int fd = wire.fd.get();
  ssize_t count;
  do {
    count = send(fd, from, byte_size, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  *done = count > 0 ? static_cast<size_t>(count) : 0;
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    BIO_set_retry_write(bio);
  }
  return count > 0 ? 1 : 0;
}

int ReadFromSocket(BIO* bio, char* into, size_t byte_size, size_t* done) {
  BIO_clear_retry_flags(bio);
  const int fd = WireOf(bio).fd.get();
  ssize_t count;
  do {
    count = recv(fd, into, byte_size, 0);
  } while (count < 0 && errno == EINTR);
  *done = count > 0 ? static_cast<size_t>(count) : 0;
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    BIO_set_retry_read(bio);
  }
  return count > 0 ? 1 : 0;
}

long Control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    FLEET_CHECK(made != nullptr, "BIO_meth_new");
    BIO_meth_set_write_ex(made, WriteToSocket);
    BIO_meth_set_read_ex(made, ReadFromSocket);
    BIO_meth_set_ctrl(made, Control);
    return made;
  }();
  return method;
}

// The key as OpenSSL takes one that was agreed on beforehand: a session that
// never was. Null without memory.
SSL_SESSION* MakeSession(SSL* ssl, const Digest& key) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(
          session, reinterpret_cast<const unsigned char*>(key.data()),
          key.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

const Digest& KeyOf(SSL* ssl) {
  return *static_cast<const Digest*>(SSL_get_app_data(ssl));
}

int UseKey(SSL* ssl, const EVP_MD*, const unsigned char** name,
           size_t* name_byte_size, SSL_SESSION** session) {
  *session = MakeSession(ssl, KeyOf(ssl));
  *name = reinterpret_cast<const unsigned char*>(kKeyName);
  *name_byte_size = sizeof(kKeyName) - 1;
  return *session != nullptr;
}

int FindKey(SSL* ssl, const unsigned char* name, size_t name_byte_size,
            SSL_SESSION** session) {
  *session = nullptr;
  if (name_byte_size != sizeof(kKeyName) - 1 ||
      std::memcmp(name, kKeyName, name_byte_size) != 0) {
    return 1;  // no key: the handshake fails, since there is no certificate
  }
  *session = MakeSession(ssl, KeyOf(ssl));
  return *session != nullptr;
}

// What all connections of a side have in common. Null when OpenSSL is broken.
SSL_CTX* MakeContext(Side side) {
  SSL_CTX* context = SSL_CTX_new(side == Side::kCaller ? TLS_client_method()
                                                       : TLS_server_method());
  if (context == nullptr) return nullptr;
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
  // Nothing is resumed: every connection has a key of its own.
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Several records by one call of recv.
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, 8 * kRecord);
  if (side == Side::kCaller) {
    SSL_CTX_set_psk_use_session_callback(context, UseKey);
  } else {
    SSL_CTX_set_psk_find_session_callback(context, FindKey);
  }
  return context;
}

SSL_CTX* ContextOf(Side side) {
  static const std::array contexts = {MakeContext(Side::kCaller),
                                      MakeContext(Side::kHost)};
  return contexts[static_cast<size_t>(side)];
}

struct Free {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

class OpenSslStream final : public TlsStream {
 public:
  OpenSslStream(base::Descriptor fd, const Digest& key) : key_(key) {
    wire_.fd = std::move(fd);
    TuneSocket(wire_.fd.get());
  }

  Status Begin(Side side) {
    SSL_CTX* context = ContextOf(side);
    base::MutexLock lock(mutex_);
    if (context != nullptr) ssl_.reset(SSL_new(context));
    BIO* bio = ssl_ != nullptr ? BIO_new(SocketMethod()) : nullptr;
    if (bio == nullptr) return Unavailable(TakeError());
    BIO_set_data(bio, &wire_);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_app_data(ssl_.get(), const_cast<Digest*>(&key_));
    if (side == Side::kCaller) {
      SSL_set_connect_state(ssl_.get());
    } else {
      SSL_set_accept_state(ssl_.get());
    }
    return OkStatus();
  }

  int fd() const override { return wire_.fd.get(); }

  Result<bool> Shake() override {
    base::MutexLock lock(mutex_);
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return true;
    RETURN_IF_ERROR(CheckLocked(result));
    return false;
  }

  // A batch of records after the other, so that a reader need not wait for a
  // large message to be encrypted.
  Result<size_t> TryWrite(std::span<const iovec> pieces) override {
    size_t total = 0;
    while (true) {
      // What is encrypted already comes again, and is passed over.
      ASSIGN_OR_RETURN(ahead_, Encrypt(pieces, total, ahead_));
      if (ahead_ == 0) return total;
      ASSIGN_OR_RETURN(const bool all, Send());
      if (!all) return total;
      total += std::exchange(ahead_, 0);
    }
  }

  Result<size_t> TryRead(std::span<const iovec> pieces) override {
    size_t total = 0;
    for (const iovec& piece : pieces) {
      auto* into = static_cast<std::byte*>(piece.iov_base);
      for (size_t got = 0; got < piece.iov_len;) {
        base::MutexLock lock(mutex_);
        ERR_clear_error();
        errno = 0;
        size_t done = 0;
        const int result =
            SSL_read_ex(ssl_.get(), into + got, piece.iov_len - got, &done);
        if (result != 1) {
          const Status outcome = CheckLocked(result);
          // Bytes that came before an end are read first.
          if (total > 0 || outcome.ok()) return total;
          return outcome;
        }
        got += done;
        total += done;
      }
    }
    return total;
  }

  void WaitWritable(Deadline deadline) override {
    WaitFor(wire_.fd.get(), POLLOUT, deadline);
  }
  void WaitReadable(Deadline deadline) override {
    WaitFor(wire_.fd.get(), POLLIN, deadline);
  }
  void Shut() override { (void)shutdown(wire_.fd.get(), SHUT_RDWR); }
  size_t read_ahead() const override { return kRecord; }

 private:
  // Encrypts what follows the first `sent` bytes, of which `done` are encrypted
  // already, until there is a batch. Returns how many are then.
  Result<size_t> Encrypt(std::span<const iovec> pieces, size_t sent,
                         size_t done) {
    base::MutexLock lock(mutex_);
    while (done < kBatch) {
      const std::span<const std::byte> record = NextRecord(pieces, sent + done);
      if (record.empty()) break;
      RETURN_IF_ERROR(failure_);
      wire_.collected.reserve(kBatch + 4 * kRecordOverhead);
      wire_.collects = true;
      Status renewed = RenewKeyLocked();
      ERR_clear_error();
      errno = 0;
      size_t count = 0;
      const int result =
          SSL_write_ex(ssl_.get(), record.data(), record.size(), &count);
      wire_.collects = false;
      RETURN_IF_ERROR(renewed);
      if (result != 1) {
        RETURN_IF_ERROR(CheckLocked(result));
        break;
      }
      ++records_;
      done += count;
    }
    return done;
  }

  // Whether all that was collected is with the socket.
  Result<bool> Send() {
    const std::vector<char>& bytes = wire_.collected;
    while (sent_ < bytes.size()) {
      const ssize_t count = send(wire_.fd.get(), bytes.data() + sent_,
                                 bytes.size() - sent_, MSG_NOSIGNAL);
      if (count >= 0) {
        sent_ += static_cast<size_t>(count);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return false;
      } else if (errno != EINTR) {
        return Unavailable(
            ErrnoStatus(errno, "the connection is lost").message());
      }
    }
    sent_ = 0;
    wire_.collected.clear();
    return true;
  }

  // What the next record holds: at most kRecord of the bytes behind the first
  // `at`.
  std::span<const std::byte> NextRecord(std::span<const iovec> pieces,
                                        size_t at) {
    size_t filled = 0;
    for (const iovec& piece : pieces) {
      if (at >= piece.iov_len) {
        at -= piece.iov_len;
        continue;
      }
      const auto* from = static_cast<const std::byte*>(piece.iov_base) + at;
      const size_t count = std::min(piece.iov_len - at, kRecord - filled);
      at = 0;
      if (filled == 0 && count == kRecord) return {from, count};
      std::memcpy(stage_.data() + filled, from, count);
      filled += count;
      if (filled == kRecord) break;
    }
    return std::span<const std::byte>(stage_).first(filled);
  }

  // A key of AES-GCM is good for 2^24.5 records (RFC 8446, 5.5). The peer's
  // reader follows by itself.
  Status RenewKeyLocked() REQUIRES(mutex_) {
    if (records_ < kRecordsOfAKey) return OkStatus();
    records_ = 0;
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
      return OkStatus();
    }
    return Internal(TakeError());
  }

  // Ok when a call has to be made again later.
  Status CheckLocked(int result) REQUIRES(mutex_) {
    if (!failure_.ok()) return failure_;
    const int error_number = errno;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return OkStatus();
      case SSL_ERROR_ZERO_RETURN:
        failure_ = Unavailable("the peer closed the connection");
        break;
      case SSL_ERROR_SYSCALL:
        failure_ = error_number == 0
                       ? Unavailable("the peer closed the connection")
                       : Unavailable(
                             ErrnoStatus(error_number, "the connection is lost")
                                 .message());
        break;
      default:
        failure_ = DataLoss(TakeError());
    }
    return failure_;
  }

  Wire wire_;
  const Digest key_;

  // Used by the writer alone.
  std::array<std::byte, kRecord> stage_;
  size_t ahead_ = 0;  // bytes that are encrypted, and not all with the socket
  size_t sent_ = 0;   // of what is collected
  uint64_t records_ = 0;

  base::Mutex mutex_;  // an SSL is used by one thread at a time
  std::unique_ptr<SSL, Free> ssl_ GUARDED_BY(mutex_);
  Status failure_ GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<TlsStream>> MakeTlsStream(base::Descriptor fd, Side side,
                                                 const Digest& key) {
  auto stream = std::make_unique<OpenSslStream>(std::move(fd), key);
  RETURN_IF_ERROR(stream->Begin(side));
  return stream;
}

}  // namespace fleet::channel
