// SPDX-License-Identifier: Apache-2.0

#ifndef FLEET_BASE_NO_DESTRUCTOR_H_
#define FLEET_BASE_NO_DESTRUCTOR_H_

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace fleet::base {

// A value with static storage that is never destroyed, because threads, or what
// runs at exit, may use it until the process is gone:
//
//   Registry& TheRegistry() {
//     static base::NoDestructor<Registry> registry;
//     return *registry;
//   }
//
// Thread-safe as T is; its first use is, as that of every local static.
template <typename T>
class NoDestructor final {
  static_assert(!std::is_trivially_destructible_v<T>,
                "a static variable of this type is not destroyed anyway");

 public:
  template <typename... Args>
  explicit NoDestructor(Args&&... args) {
    std::construct_at(get(), std::forward<Args>(args)...);
  }
  NoDestructor(const NoDestructor&) = delete;
  NoDestructor& operator=(const NoDestructor&) = delete;

  T& operator*() { return *get(); }
  T* operator->() { return get(); }

 private:
  T* get() { return reinterpret_cast<T*>(storage_); }

  alignas(T) std::byte storage_[sizeof(T)];
};

}  // namespace fleet::base

#endif  // FLEET_BASE_NO_DESTRUCTOR_H_
