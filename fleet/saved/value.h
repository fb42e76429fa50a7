// SPDX-License-Identifier: Apache-2.0

// What a container holds (container.h): plain values in lists, tuples and
// dicts, as Python has them. Arrays, tensors and byte strings are in the tree
// by their number only; their bytes lie in the file, or wherever the writer has
// them.

#ifndef FLEET_SAVED_VALUE_H_
#define FLEET_SAVED_VALUE_H_

#include <complex>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fleet::saved {

struct Value;

// An integer that has no room in 64 bits: its decimal digits, with a sign when
// it is negative.
struct BigInteger {
  std::string digits;
  bool operator==(const BigInteger&) const = default;
};

// The number of a blob in its container.
enum class BlobId : uint32_t {};

using List = std::vector<Value>;
struct Tuple {
  std::vector<Value> items;
};
struct Dict {
  // In the order of the file. A key is None, a bool, a number, a text, or a
  // tuple of such, at most two deep.
  std::vector<std::pair<Value, Value>> items;
  bool ordered = false;  // Python's OrderedDict

  // The value of a text key; null when there is none.
  const Value* Find(const std::string& key) const;
};

// One value. Texts are UTF-8, in which half a surrogate pair may stand alone,
// as in Python. No value at all is Python's None.
struct Value {
  using Held = std::variant<std::monostate, bool, int64_t, BigInteger, double,
                            std::complex<double>, std::string, List, Tuple,
                            Dict, BlobId>;

  Value();
  Value(Held held);
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();

  Held held;
};

}  // namespace fleet::saved

#endif  // FLEET_SAVED_VALUE_H_
