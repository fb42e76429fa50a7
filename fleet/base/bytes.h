// SPDX-License-Identifier: Apache-2.0

// Numbers as bytes: how they lie in messages and files, and how they are read
// back from bytes that may be too few, or anything.
//
//   std::string out;
//   base::Append(out, uint32_t{7});
//   ...
//   base::ByteReader in(out);
//   const auto number = in.Take<uint32_t>();
//   if (!in.finished()) return DataLoss(...);

#ifndef FLEET_BASE_BYTES_H_
#define FLEET_BASE_BYTES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "fleet/base/check.h"

namespace fleet::base {

static_assert(std::endian::native == std::endian::little,
              "messages and files are little-endian, as memory is");

// What may go into a message or a file as it lies in memory: numbers,
// enumerations, and structures of them without gaps.
template <typename T>
concept Plain = std::is_trivially_copyable_v<T> &&
                (std::has_unique_object_representations_v<T> ||
                 std::is_floating_point_v<T>);

template <Plain T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
inline std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <Plain T>
void Append(std::string& bytes, T value) {
  bytes += TextOf(BytesOf(value));
}

// At a known place. `bytes` must reach so far.
template <Plain T>
void StoreAt(std::span<std::byte> bytes, size_t at, T value) {
  FLEET_CHECK(at <= bytes.size() && sizeof(T) <= bytes.size() - at);
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}
template <Plain T>
T LoadAt(std::span<const std::byte> bytes, size_t at) {
  FLEET_CHECK(at <= bytes.size() && sizeof(T) <= bytes.size() - at);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// Takes what was written from the front of `bytes`, which outlive it. What is
// not there reads as zero or empty, nothing follows it, and finished() says so:
// one look at the end is enough.
class ByteReader final {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  explicit ByteReader(std::string_view bytes)
      : ByteReader(std::as_bytes(std::span(bytes))) {}

  template <Plain T>
  T Take() {
    const std::span<const std::byte> bytes = TakeBytes(sizeof(T));
    T value{};
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  // So many values where they lie, which must be aligned for them.
  template <Plain T>
  std::span<const T> TakeSpan(uint64_t count) {
    if (count > rest_.size() / sizeof(T)) {
      Spoil();
      return {};
    }
    if (count == 0) return {};
    const std::span<const std::byte> bytes = TakeBytes(count * sizeof(T));
    FLEET_CHECK_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T), 0u);
    return {reinterpret_cast<const T*>(bytes.data()),
            static_cast<size_t>(count)};
  }
  std::span<const std::byte> TakeBytes(uint64_t byte_size) {
    if (byte_size > rest_.size()) {
      Spoil();
      return {};
    }
    const std::span<const std::byte> taken = rest_.first(byte_size);
    rest_ = rest_.subspan(byte_size);
    return taken;
  }
  // Says that what was read makes no sense: as if something were missing.
  void Spoil() {
    whole_ = false;
    rest_ = {};
  }

  std::span<const std::byte> rest() const { return rest_; }
  // Nothing was missing so far.
  bool whole() const { return whole_; }
  // Nothing was missing, and nothing is left over.
  bool finished() const { return whole_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool whole_ = true;
};

}  // namespace fleet::base

#endif  // FLEET_BASE_BYTES_H_
