// SPDX-License-Identifier: Apache-2.0
#include "fleet/save.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "fleet/base/crc32c.h"
#include "fleet/ops/aten_error.h"

namespace fleet {
namespace {

constexpr std::string_view kMagic =
    "\x93"
    "FLEET\r\n";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kTrailerSize = 64;

// Paddle's name of an element type; empty for those that the format lacks.
std::string_view TypeName(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return "bool";
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kComplexFloat:
      return "complex64";
    case at::kComplexDouble:
      return "complex128";
    default:
      return "";
  }
}

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Numbers as the format has them: little-endian, as this machine's are.
template <class T>
void Put(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// A dict of tensors, part by part.
class Writer {
 public:
  explicit Writer(base::AtomicFile& file) : file_(file) {}

  Status Begin() {
    std::string preamble(kMagic);
    Put(preamble, kVersion);
    preamble.resize(kAlignment);
    return file_.Append(preamble);
  }

  Status Add(const std::string& name, const at::Tensor& tensor) {
    const std::string_view type = TypeName(tensor.scalar_type());
    if (type.empty()) {
      return InvalidArgument("'", name, "' is of type ",
                             c10::toString(tensor.scalar_type()));
    }
    const at::Tensor plain = tensor.detach().cpu().contiguous();
    RETURN_IF_ERROR(
        file_.Append(std::string(-file_.byte_size() % kAlignment, '\0')));
    const std::span<const std::byte> bytes(
        static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
    const std::string comma = num_blobs_ == 0 ? "" : ",";
    blobs_ += base::Concat(comma, "[", file_.byte_size(), ",", bytes.size(),
                           ",", base::Crc32c(bytes), "]");
    std::string shape;
    for (int64_t extent : plain.sizes()) {
      shape += base::Concat(shape.empty() ? "" : ",", extent);
    }
    items_ +=
        base::Concat(comma, "[", JsonText(name), ",{\"tensor\":", num_blobs_,
                     ",\"dtype\":\"", type, "\",\"shape\":[", shape,
                     "],\"name\":", JsonText(name), "}]");
    ++num_blobs_;
    return file_.Append(bytes);
  }

  Status End() {
    const std::string header =
        "{\"root\":{\"dict\":[" + items_ + "]},\"blobs\":[" + blobs_ + "]}";
    const uint64_t offset = file_.byte_size();
    RETURN_IF_ERROR(file_.Append(header));
    std::string trailer;
    Put<uint64_t>(trailer, offset);
    Put<uint64_t>(trailer, header.size());
    Put<uint32_t>(trailer, base::Crc32c(header));
    Put<uint64_t>(trailer, file_.byte_size() + kTrailerSize);
    trailer.resize(kTrailerSize - sizeof(uint32_t) - kMagic.size());
    Put<uint32_t>(trailer, base::Crc32c(trailer));
    trailer += kMagic;
    return file_.Append(trailer);
  }

 private:
  base::AtomicFile& file_;
  int num_blobs_ = 0;
  std::string items_, blobs_;  // JSON, without the brackets around them
};

}  // namespace

Status SaveTensors(const base::Path& path,
                   const std::vector<sync::NamedTensor>& tensors) {
  const at::NoGradGuard no_grad;
  try {
    ASSIGN_OR_RETURN(base::AtomicFile file, base::AtomicFile::Create(path));
    Writer writer(file);
    RETURN_IF_ERROR(writer.Begin());
    for (const auto& [name, tensor, sparse] : tensors) {
      if (!tensor.defined() || tensor.layout() != at::kStrided) {
        return InvalidArgument("'", name, "' is not a dense tensor");
      }
      RETURN_IF_ERROR(writer.Add(name, tensor));
    }
    RETURN_IF_ERROR(writer.End());
    return file.Commit();
  } catch (const c10::Error& error) {
    return ops::FromException(error);
  }
}

}  // namespace fleet
