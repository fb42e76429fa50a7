// SPDX-License-Identifier: Apache-2.0

// What paddle.save and paddle.load need of base/: atomic files and checksums
// over the memory of any Python buffer, without copies and without the GIL.

#include <cstddef>
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

#include "fleet/base/crc32c.h"
#include "fleet/base/file_system.h"

#include "array.h"
#include "buffer.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

// Paths come as os.fsencode made them.
base::Path PathOf(const nb::bytes& path) {
  return base::Path(std::string(path.c_str(), path.size()));
}

// Runs `call`, which returns Status or Result, without the GIL.
template <typename Call>
auto WithoutGil(Call call) {
  nb::gil_scoped_release release;
  return call();
}

}  // namespace

void BindFile(nb::module_& m) {
  nb::class_<base::AtomicFile>(m, "AtomicFile",
                               "A file that appears whole or not at all.")
      .def("__init__",
           [](base::AtomicFile* self, const nb::bytes& path) {
             const base::Path target = PathOf(path);
             new (self) base::AtomicFile(ValueOrThrow(
                 WithoutGil([&] { return base::AtomicFile::Create(target); })));
           })
      .def("append",
           [](base::AtomicFile& self, nb::handle object) {
             const Buffer buffer(object);
             ThrowIfError(
                 WithoutGil([&] { return self.Append(buffer.bytes()); }));
           })
      .def("commit",
           [](base::AtomicFile& self) {
             ThrowIfError(WithoutGil([&] { return self.Commit(); }));
           })
      .def(
          "discard",
          [](base::AtomicFile& self) {
            const base::AtomicFile dropped = std::move(self);
          },
          "Removes what was written; the old file stays.");

  m.def("make_folders", [](const nb::bytes& path) {
    ThrowIfError(WithoutGil(
        [folder = PathOf(path)] { return base::MakeFolders(folder); }));
  });
  m.def(
      "crc32c",
      [](nb::handle object, uint32_t before) {
        const Buffer buffer(object);
        return WithoutGil([&] { return base::Crc32c(buffer.bytes(), before); });
      },
      nb::arg("buffer"), nb::arg("before") = 0);
  m.def(
      "bfloat16_from_bits",
      [](nb::handle bits) {
        const at::Tensor words =
            TensorFromObject(bits, DefaultContext().device);
        return Tensor{words.view(at::kBFloat16)};
      },
      "A bfloat16 tensor from an array of uint16.");
}

}  // namespace fleet::python
