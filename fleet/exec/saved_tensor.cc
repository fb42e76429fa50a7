// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/saved_tensor.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "fleet/base/crc32c.h"
#include "fleet/ops/aten_error.h"
#include "fleet/ops/kernel.h"
#include "fleet/program/wire.h"

namespace fleet::exec {

using program::DType;
using program::TensorType;

namespace {

// Field 7001 with four bytes.
constexpr std::string_view kChecksumTag = "\xCD\xB5\x03";
constexpr size_t kChecksumSize = kChecksumTag.size() + sizeof(uint32_t);

// What a file can ask for before we know that it is one of ours.
constexpr uint64_t kMaxLevels = 64;
constexpr int32_t kMaxTypeSize = 1 << 16;

template <class T>
void Put(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::span<const std::byte> DataOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          tensor.nbytes()};
}

// The element type in a file; nothing for those that files do not have.
std::optional<at::ScalarType> ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBfloat16:
    case DType::kComplex64:
    case DType::kComplex128:
      return ops::ToScalarType(dtype);
    default:
      return std::nullopt;
  }
}

bool IsSavable(at::ScalarType type) {
  switch (type) {
    case at::kBool:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
    case at::kByte:
    case at::kChar:
    case at::kBFloat16:
    case at::kComplexFloat:
    case at::kComplexDouble:
      return true;
    default:
      return false;
  }
}

// All that stands before the data of `plain`, which is dense and on the CPU.
std::string Header(const at::Tensor& plain,
                   const std::vector<std::vector<uint64_t>>& lod) {
  std::string bytes;
  Put<uint32_t>(bytes, 0);
  Put<uint64_t>(bytes, lod.size());
  for (const std::vector<uint64_t>& level : lod) {
    Put<uint64_t>(bytes, level.size() * sizeof(uint64_t));
    for (uint64_t offset : level) Put(bytes, offset);
  }
  std::string type = program::Serialize(
      TensorType{ops::ToDType(plain.scalar_type()), plain.sizes().vec()});
  const uint32_t before = base::Crc32c(type, base::Crc32c(bytes));
  type += ChecksumField(base::Crc32c(DataOf(plain), before));
  Put<uint32_t>(bytes, 0);
  Put<int32_t>(bytes, static_cast<int32_t>(type.size()));
  return bytes + type;
}

// Gives `append` the bytes of every tensor in parts.
template <class Append>
Status Write(std::span<const SavedTensor> tensors, Append append) {
  const at::NoGradGuard no_grad;
  for (const SavedTensor& tensor : tensors) {
    if (!tensor.value.defined() || tensor.value.layout() != at::kStrided) {
      return InvalidArgument("'", tensor.name, "' is not a dense tensor");
    }
    if (!IsSavable(tensor.value.scalar_type())) {
      return InvalidArgument("'", tensor.name, "' is of type ",
                             c10::toString(tensor.value.scalar_type()));
    }
    try {
      const at::Tensor plain = tensor.value.detach().cpu().contiguous();
      RETURN_IF_ERROR(append(std::as_bytes(
          std::span(std::string_view(Header(plain, tensor.lod))))));
      RETURN_IF_ERROR(append(DataOf(plain)));
    } catch (const std::exception& error) {
      return ops::FromException(error).WithContext(tensor.name);
    }
  }
  return OkStatus();
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
  ~FileSource() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Status Open(const base::Path& path) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts = {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &facts) != 0) {
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
      const ssize_t count = ::read(descriptor_, into.data(), into.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(errno, "read");
      if (count == 0) return DataLoss("the file became shorter meanwhile");
      into = into.subspan(static_cast<size_t>(count));
      position += static_cast<uint64_t>(count);
    }
    return OkStatus();
  }

 private:
  int descriptor_ = -1;
};

class Reader {
 public:
  explicit Reader(Source& source) : source_(source) {}

  Result<std::vector<SavedTensor>> ReadAll(std::span<const std::string> names) {
    std::vector<SavedTensor> tensors;
    tensors.reserve(names.size());
    for (const std::string& name : names) {
      const uint64_t begin = source_.position;
      Result<SavedTensor> tensor = ReadOne();
      if (!tensor.ok()) {
        return tensor.status().WithContext(
            base::Concat("tensor ", tensors.size() + 1, " of ", names.size(),
                         " ('", name, "'), which begins at byte ", begin));
      }
      tensors.push_back(std::move(tensor).value());
      tensors.back().name = name;
    }
    if (source_.position != source_.size) {
      return DataLoss("after the ", names.size(),
                      " tensors that belong to it, ",
                      source_.size - source_.position, " bytes are left over");
    }
    return tensors;
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

  Result<SavedTensor> ReadOne() {
    SavedTensor tensor;
    checksum_ = 0;
    RETURN_IF_ERROR(Version());
    ASSIGN_OR_RETURN(tensor.lod, Lod());
    // The second version and the size of the type are not in the checksum.
    const uint32_t before = checksum_;
    RETURN_IF_ERROR(Version());
    std::string type_bytes;
    ASSIGN_OR_RETURN(const TensorType type, Type(type_bytes));
    ASSIGN_OR_RETURN(tensor.value, Data(type));
    const CheckedMessage message = SplitChecksum(type_bytes);
    if (message.has_checksum) {
      const uint32_t sum = base::Crc32c(DataOf(tensor.value),
                                        base::Crc32c(message.body, before));
      if (sum != message.checksum) {
        return DataLoss("its checksum is wrong: bytes were altered");
      }
    }
    return tensor;
  }

  Result<std::vector<std::vector<uint64_t>>> Lod() {
    ASSIGN_OR_RETURN(const auto levels,
                     Number<uint64_t>("the number of LoD levels"));
    if (levels > kMaxLevels) {
      return DataLoss("at byte ", source_.position - sizeof(levels), " stand ",
                      levels, " levels of LoD: it is damaged, or no tensor");
    }
    std::vector<std::vector<uint64_t>> lod;
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

  Result<at::Tensor> Data(const TensorType& type) {
    const std::optional<at::ScalarType> scalar = ScalarTypeOf(type.dtype);
    if (!scalar) {
      return DataLoss("its element type has the number ",
                      static_cast<int>(type.dtype), ", which is unknown");
    }
    uint64_t size = c10::elementSize(*scalar);
    for (int64_t dim : type.dims) {
      if (dim < 0 ||
          __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) {
        return DataLoss("its shape ", program::ToString(type.dims),
                        " makes no sense");
      }
    }
    // Before memory is asked for: the file may lie.
    if (size > left()) {
      return DataLoss("it is cut off: ", program::ToString(type), " takes ",
                      size, " bytes at byte ", source_.position, ", and ",
                      left(), " are left");
    }
    try {
      at::Tensor tensor = at::empty(type.dims, *scalar);
      RETURN_IF_ERROR(source_.Read(
          {static_cast<std::byte*>(tensor.mutable_data_ptr()), size}));
      return tensor;
    } catch (const std::exception& error) {
      return ops::FromException(error);
    }
  }

  Source& source_;
  uint32_t checksum_ = 0;
};

}  // namespace

std::string ChecksumField(uint32_t checksum) {
  std::string bytes(kChecksumTag);
  Put(bytes, checksum);
  return bytes;
}

CheckedMessage SplitChecksum(std::string_view message) {
  CheckedMessage result{.body = message};
  if (message.size() < kChecksumSize) return result;
  const std::string_view field = message.substr(message.size() - kChecksumSize);
  if (!field.starts_with(kChecksumTag)) return result;
  result.body = message.substr(0, message.size() - kChecksumSize);
  result.has_checksum = true;
  std::memcpy(&result.checksum, field.data() + kChecksumTag.size(),
              sizeof(result.checksum));
  return result;
}

Result<std::string> SerializeTensors(std::span<const SavedTensor> tensors) {
  std::string bytes;
  RETURN_IF_ERROR(Write(tensors, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return OkStatus();
  }));
  return bytes;
}

Status SaveTensors(const base::Path& path,
                   std::span<const SavedTensor> tensors) {
  ASSIGN_OR_RETURN(base::AtomicFile file, base::AtomicFile::Create(path));
  Status status = Write(tensors, [&](std::span<const std::byte> part) {
    return file.Append(part);
  });
  RETURN_IF_ERROR(status);
  return file.Commit();
}

Result<std::vector<SavedTensor>> ParseTensors(
    std::string_view bytes, std::span<const std::string> names,
    std::string_view where) {
  MemorySource source(bytes);
  Result<std::vector<SavedTensor>> tensors = Reader(source).ReadAll(names);
  if (!tensors.ok()) return tensors.status().WithContext(where);
  return tensors;
}

Result<std::vector<SavedTensor>> LoadTensors(
    const base::Path& path, std::span<const std::string> names) {
  FileSource source;
  RETURN_IF_ERROR(source.Open(path));
  Result<std::vector<SavedTensor>> tensors = Reader(source).ReadAll(names);
  if (!tensors.ok()) return tensors.status().WithContext(path.string());
  return tensors;
}

}  // namespace fleet::exec
