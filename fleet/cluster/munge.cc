// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/munge.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/check.h"

namespace fleet::cluster {
namespace {

using base::MutexLock;

// Error numbers in the ABI of libmunge.so.2 (munge.h).
constexpr int kSuccess = 0;
constexpr int kBadCredential = 8;  // from here to kExpired it makes no sense
constexpr int kExpired = 15;       // the next three: it was genuine, but ...
constexpr int kReplayed = 17;
constexpr int kUnauthorized = 18;
constexpr int kCipherType = 0;
constexpr int kSocket = 8;
constexpr int kOnlyUser = 9;
constexpr int kAes128 = 4;

// A credential is good for five minutes, if the cluster says nothing else.
constexpr auto kSealFor = std::chrono::minutes(1);

// Tells our credentials from those that other programs of the user make.
constexpr std::string_view kLabel = "fleet job secret: ";

}  // namespace

struct Munge::Library {
  void* (*create)() = nullptr;
  void (*destroy)(void*) = nullptr;
  int (*set)(void*, int, ...) = nullptr;
  int (*encode)(char**, void*, const void*, int) = nullptr;
  int (*decode)(const char*, void*, void**, int*, uid_t*, gid_t*) = nullptr;
  const char* (*describe)(int) = nullptr;

  template <typename Function>
  static void Find(void* from, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(from, name));
  }

  static Library Load() {
    Library library;
    void* file = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) return library;
    Find(file, "munge_ctx_create", library.create);
    Find(file, "munge_ctx_destroy", library.destroy);
    Find(file, "munge_ctx_set", library.set);
    Find(file, "munge_encode", library.encode);
    Find(file, "munge_decode", library.decode);
    Find(file, "munge_strerror", library.describe);
    return library;
  }

  bool whole() const {
    return create != nullptr && destroy != nullptr && set != nullptr &&
           encode != nullptr && decode != nullptr && describe != nullptr;
  }

  // How munged is to be asked: at `socket`, if that is not empty.
  using Context = std::unique_ptr<void, void (*)(void*)>;
  Context MakeContext(const std::string& socket) const {
    Context context(create(), destroy);
    if (context != nullptr && !socket.empty()) {
      (void)set(context.get(), kSocket, socket.c_str());
    }
    return context;
  }
};

Result<std::shared_ptr<Munge>> Munge::Open(const Environment& env) {
  static const Library library = Library::Load();
  if (!library.whole()) {
    return Unimplemented("libmunge.so.2 cannot be loaded");
  }
  auto munge = std::make_shared<Munge>(
      library, std::string(Find(env, "FLEET_MUNGE_SOCKET").value_or("")));
  RETURN_IF_ERROR(munge->Encode("").status());
  return munge;
}

Result<std::string> Munge::Encode(std::string_view text) const {
  const Library::Context context = library_.MakeContext(socket_);
  if (context == nullptr) return Unavailable("munge: out of memory");
  // A cluster may have chosen not to encrypt.
  (void)library_.set(context.get(), kCipherType, kAes128);
  if (library_.set(context.get(), kOnlyUser, geteuid()) != kSuccess) {
    return Internal("munge: a credential cannot be limited to one user");
  }
  char* credential = nullptr;
  const int code = library_.encode(&credential, context.get(), text.data(),
                                   static_cast<int>(text.size()));
  if (code != kSuccess) {
    return Unavailable("munge: ", library_.describe(code));
  }
  std::string sealed(credential);
  std::free(credential);
  return sealed;
}

Result<std::string> Munge::Seal(const channel::Secret& secret) {
  const auto now = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  if (!sealed_.empty() && now - sealed_at_ < kSealFor) return sealed_;
  std::string text = base::Concat(kLabel, secret.text());
  Result<std::string> sealed = Encode(text);
  explicit_bzero(text.data(), text.size());
  RETURN_IF_ERROR(sealed.status());
  sealed_ = *std::move(sealed);
  sealed_at_ = now;
  return sealed_;
}

Result<channel::Secret> Munge::Open(const std::string& credential) const {
  const Library::Context context = library_.MakeContext(socket_);
  if (context == nullptr) return Unavailable("munge: out of memory");
  void* payload = nullptr;
  int byte_size = 0;
  uid_t user = 0;
  gid_t group = 0;
  const int code = library_.decode(credential.c_str(), context.get(), &payload,
                                   &byte_size, &user, &group);
  const std::string_view text(static_cast<const char*>(payload),
                              payload == nullptr ? 0 : byte_size);
  // All ranks of a host open the same credential, and clocks of nodes differ:
  // one that is old or was opened before tells nobody else the secret.
  const bool genuine =
      code == kSuccess || (code >= kExpired && code <= kReplayed);
  Result<channel::Secret> secret =
      DataLoss("munge: the credential holds no secret of a job");
  if (code == kUnauthorized || (genuine && user != geteuid() && user != 0)) {
    secret = FailedPrecondition("munge: it belongs to another user");
  } else if (!genuine) {
    const bool nonsense = code >= kBadCredential && code < kExpired;
    secret = Status(nonsense ? StatusCode::kDataLoss : StatusCode::kUnavailable,
                    base::Concat("munge: ", library_.describe(code)));
  } else if (text.starts_with(kLabel) && text.size() > kLabel.size()) {
    secret = channel::Secret(text.substr(kLabel.size()));
  }
  if (payload != nullptr) {
    explicit_bzero(payload, text.size());
    std::free(payload);
  }
  return secret;
}

}  // namespace fleet::cluster
