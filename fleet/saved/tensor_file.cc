// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/tensor_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/crc32c.h"
#include "fleet/base/descriptor.h"
#include "fleet/program/wire.h"
#include "fleet/saved/checksum_field.h"

namespace fleet::saved {

using program::TensorType;

namespace {

// What a file can ask for before we know that it is one of ours.
constexpr uint64_t kMaxLevels = 64;
constexpr int32_t kMaxTypeSize = 1 << 16;

// All that stands before the data.
std::string Header(const TensorView& tensor) {
  std::string bytes;
  base::Append<uint32_t>(bytes, 0);
  base::Append<uint64_t>(bytes, tensor.lod.size());
  for (const std::vector<uint64_t>& level : tensor.lod) {
    base::Append<uint64_t>(bytes, level.size() * sizeof(uint64_t));
    for (uint64_t offset : level) base::Append(bytes, offset);
  }
  std::string type = program::Serialize(tensor.type);
  const uint32_t before = base::Crc32c(type, base::Crc32c(bytes));
  type += ChecksumField(base::Crc32c(tensor.data, before));
  base::Append<uint32_t>(bytes, 0);
  base::Append<int32_t>(bytes, static_cast<int32_t>(type.size()));
  return bytes + type;
}

// Where the bytes of tensors come from.
class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  // The next bytes, all of `into`; there are as many left.
  virtual Status Read(std::span<std::byte> into) = 0;

  uint64_t position = 0;
  uint64_t size = 0;
};

class MemorySource final : public Source {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {
    size = bytes.size();
  }
  Status Read(std::span<std::byte> into) override {
    if (into.empty()) return OkStatus();
    std::memcpy(into.data(), bytes_.data() + position, into.size());
    position += into.size();
    return OkStatus();
  }

 private:
  std::string_view bytes_;
};

// Reads straight into the memory of the tensors: a file is large.
class FileSource final : public Source {
 public:
  Status Open(const base::Path& path) {
    descriptor_ = base::Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts = {};
    if (!descriptor_.valid() || ::fstat(descriptor_.get(), &facts) != 0) {
      return ErrnoStatus(errno, "open " + path.string());
    }
    if (!S_ISREG(facts.st_mode)) {
      return InvalidArgument(path.string(), " is not a plain file");
    }
    size = static_cast<uint64_t>(facts.st_size);
    return OkStatus();
  }
  Status Read(std::span<std::byte> into) override {
    while (!into.empty()) {
      const ssize_t count = ::read(descriptor_.get(), into.data(), into.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(errno, "read");
      if (count == 0) return DataLoss("the file became shorter meanwhile");
      into = into.subspan(static_cast<size_t>(count));
      position += static_cast<uint64_t>(count);
    }
    return OkStatus();
  }

 private:
  base::Descriptor descriptor_;
};

class Reader {
 public:
  Reader(Source& source, const MakeRoom& make_room)
      : source_(source), make_room_(make_room) {}

  Status ReadAll(std::span<const std::string> names) {
    for (size_t i = 0; i < names.size(); ++i) {
      const uint64_t begin = source_.position;
      const Status read = ReadOne(names[i]);
      if (!read.ok()) {
        return read.WithContext(
            base::Concat("tensor ", i + 1, " of ", names.size(), " ('",
                         names[i], "'), which begins at byte ", begin));
      }
    }
    if (source_.position != source_.size) {
      return DataLoss("after the ", names.size(),
                      " tensors that belong to it, ",
                      source_.size - source_.position, " bytes are left over");
    }
    return OkStatus();
  }

 private:
  uint64_t left() const { return source_.size - source_.position; }

  Status Read(std::span<std::byte> into, std::string_view what) {
    if (into.size() > left()) {
      return DataLoss("it is cut off: ", what, " takes ", into.size(),
                      " bytes at byte ", source_.position, ", and ", left(),
                      " are left");
    }
    return source_.Read(into);
  }

  template <class T>
  Result<T> Number(std::string_view what) {
    T number;
    RETURN_IF_ERROR(Read(std::as_writable_bytes(std::span(&number, 1)), what));
    checksum_ = base::Crc32c(std::as_bytes(std::span(&number, 1)), checksum_);
    return number;
  }

  Status Version() {
    ASSIGN_OR_RETURN(const auto version, Number<uint32_t>("the version"));
    if (version == 0) return OkStatus();
    return DataLoss("at byte ", source_.position - sizeof(version),
                    " stands the version ", version,
                    ", and only 0 is known: it is damaged, or no tensor");
  }

  Status ReadOne(const std::string& name) {
    TensorHeader header{.name = name};
    checksum_ = 0;
    RETURN_IF_ERROR(Version());
    ASSIGN_OR_RETURN(header.lod, ReadLod());
    // The second version and the size of the type are not in the checksum.
    const uint32_t before = checksum_;
    RETURN_IF_ERROR(Version());
    std::string type_bytes;
    ASSIGN_OR_RETURN(header.type, Type(type_bytes));
    ASSIGN_OR_RETURN(const std::span<const std::byte> data,
                     Data(std::move(header)));
    const CheckedMessage message = SplitChecksum(type_bytes);
    if (message.has_checksum) {
      const uint32_t sum =
          base::Crc32c(data, base::Crc32c(message.body, before));
      if (sum != message.checksum) {
        return DataLoss("its checksum is wrong: bytes were altered");
      }
    }
    return OkStatus();
  }

  Result<Lod> ReadLod() {
    ASSIGN_OR_RETURN(const auto levels,
                     Number<uint64_t>("the number of LoD levels"));
    if (levels > kMaxLevels) {
      return DataLoss("at byte ", source_.position - sizeof(levels), " stand ",
                      levels, " levels of LoD: it is damaged, or no tensor");
    }
    Lod lod;
    for (uint64_t i = 0; i < levels; ++i) {
      ASSIGN_OR_RETURN(const auto size,
                       Number<uint64_t>("the size of a LoD level"));
      if (size % sizeof(uint64_t) != 0 || size > left()) {
        return DataLoss("a level of LoD of ", size, " bytes at byte ",
                        source_.position, ", and ", left(), " are left");
      }
      std::vector<uint64_t> offsets(size / sizeof(uint64_t));
      RETURN_IF_ERROR(
          Read(std::as_writable_bytes(std::span(offsets)), "a level of LoD"));
      checksum_ = base::Crc32c(std::as_bytes(std::span(offsets)), checksum_);
      lod.push_back(std::move(offsets));
    }
    return lod;
  }

  Result<TensorType> Type(std::string& bytes) {
    ASSIGN_OR_RETURN(const auto size, Number<int32_t>("the size of the type"));
    if (size <= 0 || size > kMaxTypeSize) {
      return DataLoss("at byte ", source_.position - sizeof(size),
                      " stands a type of ", size,
                      " bytes: it is damaged, or no tensor");
    }
    bytes.resize(static_cast<size_t>(size));
    const uint64_t begin = source_.position;
    RETURN_IF_ERROR(Read(std::as_writable_bytes(std::span(bytes)), "the type"));
    Result<TensorType> type = program::ParseTensorType(bytes);
    if (!type.ok()) {
      return type.status().WithContext(base::Concat("at byte ", begin));
    }
    return type;
  }

  Result<std::span<const std::byte>> Data(TensorHeader header) {
    const TensorType type = header.type;
    if (ElementSize(type.dtype) == 0) {
      return DataLoss("its element type has the number ",
                      static_cast<int>(type.dtype), ", which is unknown");
    }
    const std::optional<uint64_t> size = ByteSize(type);
    if (!size) {
      return DataLoss("its shape ", program::ToString(type.dims),
                      " makes no sense");
    }
    // Before memory is asked for: the file may lie.
    if (*size > left()) {
      return DataLoss("it is cut off: ", program::ToString(type), " takes ",
                      *size, " bytes at byte ", source_.position, ", and ",
                      left(), " are left");
    }
    ASSIGN_OR_RETURN(const std::span<std::byte> room,
                     make_room_(std::move(header)));
    FLEET_CHECK(room.size() == *size);
    RETURN_IF_ERROR(source_.Read(room));
    return room;
  }

  Source& source_;
  const MakeRoom& make_room_;
  uint32_t checksum_ = 0;
};

}  // namespace

Status WriteTensor(const TensorView& tensor, const Append& append) {
  FLEET_CHECK(tensor.data.size() == ByteSize(tensor.type));
  RETURN_IF_ERROR(
      append(std::as_bytes(std::span(std::string_view(Header(tensor))))));
  return append(tensor.data);
}

Status ParseTensors(std::string_view bytes, std::span<const std::string> names,
                    std::string_view where, const MakeRoom& make_room) {
  MemorySource source(bytes);
  return Reader(source, make_room).ReadAll(names).WithContext(where);
}

Status LoadTensors(const base::Path& path, std::span<const std::string> names,
                   const MakeRoom& make_room) {
  FileSource source;
  RETURN_IF_ERROR(source.Open(path));
  return Reader(source, make_room).ReadAll(names).WithContext(path.string());
}

}  // namespace fleet::saved
