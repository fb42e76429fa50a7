// SPDX-License-Identifier: Apache-2.0

// Batches of a loader's worker processes (fleet/data/batch_buffers.h), as numpy
// arrays of bytes over the shared memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include "fleet/data/batch_buffers.h"

#include "status.h"

namespace nb = nanobind;

namespace fleet::python {
namespace {

using base::Descriptor;
using data::BatchPart;
using data::BatchReader;
using data::BatchWriter;

using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>;

// What arrays over a buffer hold: they are the only ones who know how long the
// batch is used.
struct Loan {
  std::shared_ptr<const void> held;
};

// What an array of bytes keeps alive.
struct Owner {
  std::shared_ptr<const base::Mapping> mapping;
  std::shared_ptr<const void> loan;
};

Bytes ArrayOf(BatchPart part, size_t byte_size,
              std::shared_ptr<const void> loan) {
  auto owner =
      std::make_unique<Owner>(Owner{std::move(part.mapping), std::move(loan)});
  nb::capsule capsule(owner.get(), [](void* at) noexcept {
    std::unique_ptr<Owner>(static_cast<Owner*>(at)).reset();
  });
  (void)owner.release();
  return Bytes(part.data, {byte_size}, capsule);
}

}  // namespace

void BindBatchBuffers(nb::module_& m) {
  m.def(
      "make_batch_buffers",
      [](size_t num_buffers) {
        return ValueOrThrow(data::MakeBatchBuffers(num_buffers)).Release();
      },
      "A descriptor of shared memory for so many batches.");

  nb::class_<BatchWriter>(
      m, "BatchWriter", "A worker's side of its buffers; takes the descriptor.")
      .def("__init__",
           [](BatchWriter* self, int fd, size_t num_buffers) {
             new (self) BatchWriter(Descriptor(fd), num_buffers);
           })
      .def("start", &BatchWriter::Start,
           "Begins a batch in a buffer; what was in it is gone.")
      .def(
          "add",
          [](BatchWriter& self, size_t byte_size) {
            return ArrayOf(ValueOrThrow(self.Add(byte_size)), byte_size, {});
          },
          "Bytes behind what the batch has so far, with whatever content.")
      .def(
          "offset_of",
          [](const BatchWriter& self, uintptr_t address) {
            return self.OffsetOf(reinterpret_cast<const void*>(address));
          },
          "Where in the buffer bytes of `add` lie; None for other memory.");

  nb::class_<Loan>(m, "BatchLoan", "Keeps a buffer from being used again.");
  nb::class_<BatchReader>(
      m, "BatchReader",
      "The parent's side of one worker's buffers; takes the "
      "descriptor.")
      .def("__init__",
           [](BatchReader* self, int fd, size_t num_buffers, size_t max_lent) {
             new (self) BatchReader(Descriptor(fd), num_buffers, max_lent);
           })
      .def("close", &BatchReader::Close)
      .def(
          "take", [](BatchReader& self) { return ValueOrThrow(self.Take()); },
          "A free buffer for a batch to come.")
      .def("give_back", &BatchReader::GiveBack)
      .def(
          "lend",
          [](BatchReader& self, size_t buffer) -> std::optional<Loan> {
            std::shared_ptr<const void> loan = self.Lend(buffer);
            if (loan == nullptr) return std::nullopt;
            return Loan{std::move(loan)};
          },
          "A loan of a buffer, which is free when nothing has the loan any "
          "more; None where as many are lent as may be.")
      .def(
          "at",
          [](BatchReader& self, size_t buffer, uint64_t offset,
             size_t byte_size, const Loan* loan) {
            BatchPart part = ValueOrThrow(self.At(buffer, offset, byte_size));
            return ArrayOf(std::move(part), byte_size,
                           loan == nullptr ? nullptr : loan->held);
          },
          nb::arg("buffer"), nb::arg("offset"), nb::arg("byte_size"),
          nb::arg("loan").none() = nb::none(),
          "Bytes that the worker wrote, which keep the loan.");
}

}  // namespace fleet::python
