// SPDX-License-Identifier: Apache-2.0

// Memory in which a process that was forked hands batches to its parent.
//
// Each child has one nameless file, made before the fork, so that nothing can
// be left behind in a file system. It is sparse and cut into buffers; a buffer
// holds one batch. Buffers are used again, so their pages are faulted in once
// and stay warm, and both sides map as much of a buffer as its batch needs.
//
// The parent decides which buffer a batch goes to. It may lend the buffer's
// memory to what it makes of the batch, and hands the buffer out again when
// that is gone.

#ifndef FLEET_DATA_BATCH_BUFFERS_H_
#define FLEET_DATA_BATCH_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fleet/base/descriptor.h"
#include "fleet/base/shared_memory.h"
#include "fleet/base/status.h"

namespace fleet::data {

// Addresses of a buffer in the sparse file; no memory until it is written.
inline constexpr uint64_t kBatchBufferByteSize = uint64_t{1} << 38;

// The file of `num_buffers` buffers. A forked child has it, too.
Result<base::Descriptor> MakeBatchBuffers(size_t num_buffers);

// Bytes in a buffer, which are there as long as `mapping` is.
struct BatchPart {
  uint64_t offset = 0;
  std::byte* data = nullptr;
  std::shared_ptr<const base::Mapping> mapping;
};

// The child's side; one batch at a time, one thread at a time.
class BatchWriter final {
 public:
  BatchWriter(base::Descriptor file, size_t num_buffers);

  // Begins a batch in a buffer; what was in it is gone.
  void Start(size_t buffer);
  // Memory behind what the batch has so far, with whatever content. A system
  // error ENOMEM for a batch beyond kBatchBufferByteSize, Unavailable without
  // memory.
  Result<BatchPart> Add(size_t byte_size);
  // Where in the buffer memory lies that Add gave since Start; nothing for
  // other memory.
  std::optional<uint64_t> OffsetOf(const void* address) const;

 private:
  using Window = std::shared_ptr<const base::Mapping>;

  const base::Descriptor file_;
  std::vector<Window> windows_;  // by buffer
  size_t buffer_ = 0;
  uint64_t end_ = 0;
  // Views of the present buffer that were too small. They are kept to the end
  // of the batch, so that no other memory gets their addresses.
  std::vector<Window> outgrown_;
};

// The parent's side of one child. One thread at a time; what was lent may be
// given back by any.
class BatchReader final {
 public:
  // At most `max_lent` buffers are lent at a time.
  BatchReader(base::Descriptor file, size_t num_buffers, size_t max_lent);

  // A free buffer for a batch to come, until GiveBack or the end of its loan.
  // FailedPrecondition when none is free.
  Result<size_t> Take();
  void GiveBack(size_t buffer);
  // A loan of a buffer that was taken: it is free when the last copy is gone,
  // which may be after the reader. Null, and nothing has changed, where as many
  // are lent as may be.
  std::shared_ptr<const void> Lend(size_t buffer);
  // What the child wrote there.
  Result<BatchPart> At(size_t buffer, uint64_t offset, size_t byte_size);

  // The file; the child's views, and loans, stay.
  void Close() { (void)file_.Close(); }

 private:
  struct FreeBuffers;

  base::Descriptor file_;
  const size_t max_lent_;
  size_t num_pending_ = 0;  // taken, and neither given back nor lent
  std::vector<std::shared_ptr<const base::Mapping>> windows_;  // by buffer
  std::shared_ptr<FreeBuffers> free_;
};

}  // namespace fleet::data

#endif  // FLEET_DATA_BATCH_BUFFERS_H_
