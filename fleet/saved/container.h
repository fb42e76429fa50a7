// SPDX-License-Identifier: Apache-2.0

// The format of paddle.save (docs/container_format.md): one value with arrays,
// tensors and byte strings in it. It cannot name code, every part has a
// checksum, and every size is compared with that of the file before memory is
// asked for.
//
//   ContainerWriter writer(append);
//   ASSIGN_OR_RETURN(BlobId w, writer.Add(TensorBlob(type, "w"), bytes));
//   RETURN_IF_ERROR(writer.Finish(Value{Dict{{{Value{"w"}, Value{w}}}}}));
//
//   ASSIGN_OR_RETURN(auto reader, ContainerReader::Open("net.pdparams"));
//   const Value* w = std::get<Dict>(reader.root().held).Find("w");
//   reader.Read(std::get<BlobId>(w->held), memory);

#ifndef FLEET_SAVED_CONTAINER_H_
#define FLEET_SAVED_CONTAINER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/program/program.h"
#include "fleet/saved/tensor_file.h"
#include "fleet/saved/tensor_view.h"
#include "fleet/saved/value.h"

namespace fleet::saved {

// The first and the last bytes of a container.
inline constexpr std::string_view kContainerMagic =
    "\x93"
    "FLEET\r\n";

// Lists, tuples and dicts in each other: deeper is a mistake or an attack.
inline constexpr int kMaxContainerDepth = 100;

// What the bytes of a blob are.
struct Blob {
  enum class Kind {
    kBytes,
    kArray,   // numpy's
    kScalar,  // a number with one of numpy's types
    kTensor,
  };
  Kind kind = Kind::kBytes;
  // The element type: of arrays and scalars as numpy writes it ("<f4"), of
  // tensors a name ("float32").
  std::string element = {};
  std::vector<int64_t> shape = {};  // of arrays and tensors
  std::string name = {};            // of tensors

  bool operator==(const Blob&) const = default;
};

// A tensor of a type that files have.
Blob TensorBlob(const program::TensorType& type, std::string name);

// The type of a tensor or array; nothing for byte strings, scalars, and arrays
// of a type that tensors do not have, such as uint32.
std::optional<program::TensorType> TypeOf(const Blob& blob);

// Bytes of one element; 0 for a type that blobs of this kind do not have.
size_t ElementSize(Blob::Kind kind, std::string_view element);

// ---- writing

// Gives `append` a container piece by piece, the bytes of blobs as they come.
// One thread at a time; after a failure no other call may follow.
class ContainerWriter final {
 public:
  explicit ContainerWriter(Append append) : append_(std::move(append)) {}

  // `bytes` are of the size that `blob` says. Fails as `append` does, and with
  // InvalidArgument for a name that is no UTF-8.
  Result<BlobId> Add(const Blob& blob, std::span<const std::byte> bytes);

  // Ends the container. Blobs in `root` are of this writer; each may stand in
  // several places. InvalidArgument for a value that is nested too deeply, has
  // a key that cannot be one, or a text that is no UTF-8.
  Status Finish(const Value& root);

 private:
  Status Put(std::span<const std::byte> bytes);
  Status Put(std::string_view text) {
    return Put(std::as_bytes(std::span(text)));
  }
  Status Begin();
  Status AppendValue(const Value& value, int depth, std::string& out) const;
  Status AppendItems(const List& items, int depth, std::string& out) const;
  Status AppendKey(const Value& key, int depth, std::string& out) const;

  Append append_;
  uint64_t position_ = 0;
  std::vector<std::string> nodes_;  // of the blobs, as JSON
  std::string table_;               // where the blobs are, as JSON
};

// ---- reading

// Gives the bytes from `offset` on, all of `into`, which the file has.
using ReadAt =
    std::function<Status(uint64_t offset, std::span<std::byte> into)>;

// From memory that outlives it, and from a file. A descriptor stays open and
// belongs to the caller.
ReadAt ReadFromMemory(std::span<const std::byte> bytes);
ReadAt ReadFromDescriptor(int descriptor);

// A container that was opened: its value, and its blobs on request. A const one
// may be used by several threads where its ReadAt may.
class ContainerReader final {
 public:
  // Reads and checks all but the bytes of blobs. DataLoss, which says what is
  // wrong, for what is cut off, damaged, or makes no sense.
  static Result<ContainerReader> Open(ReadAt read_at, uint64_t byte_size);
  // The same of a file, which its errors name and those of Read do not.
  // InvalidArgument for a file of another kind.
  static Result<ContainerReader> Open(const base::Path& path);

  const Value& root() const { return root_; }

  // Of blobs that stand in root().
  const Blob& blob(BlobId id) const;
  uint64_t byte_size(BlobId id) const;
  // Fills `into`, of byte_size(id) bytes. DataLoss when they are damaged, and
  // what `into` holds then says nothing.
  Status Read(BlobId id, std::span<std::byte> into) const;

 private:
  friend class HeaderReader;
  struct Stored {
    uint64_t offset = 0;
    uint64_t byte_size = 0;
    uint32_t checksum = 0;
    std::optional<Blob> blob;  // none when no node has it
  };

  ContainerReader() = default;

  ReadAt read_at_;
  std::vector<Stored> blobs_;
  Value root_;
};

// Where the container at the beginning of `bytes` ends, when more may follow
// it. The end of `bytes` when none of it is an end.
size_t FindContainerEnd(std::span<const std::byte> bytes);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_CONTAINER_H_
