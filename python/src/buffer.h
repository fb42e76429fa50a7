// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_BUFFER_H_
#define FLEET_PYTHON_SRC_BUFFER_H_

#include <cstddef>
#include <span>

#include <nanobind/nanobind.h>

namespace fleet::python {

// The memory of a contiguous Python buffer (bytes, memoryview, numpy array),
// held for as long as this lives.
class Buffer final {
 public:
  enum class Access { kRead, kWrite };

  // BufferError or TypeError when the object has no such memory.
  explicit Buffer(nanobind::handle object, Access access = Access::kRead) {
    const int flags = access == Access::kWrite ? PyBUF_CONTIG : PyBUF_CONTIG_RO;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
      throw nanobind::python_error();
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf),
            static_cast<size_t>(view_.len)};
  }
  // With Access::kWrite.
  std::span<std::byte> writable() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_ = {};
};

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_BUFFER_H_
