// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/container.h"

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/crc32c.h"

namespace fleet::saved {
namespace {

constexpr std::string_view kMagic =
    "\x93"
    "FLEET\r\n";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kTrailerSize = 64;

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

}  // namespace

Result<ContainerFile> ContainerFile::Create(const base::Path& path) {
  ASSIGN_OR_RETURN(base::AtomicFile file, base::AtomicFile::Create(path));
  std::string preamble(kMagic);
  base::Append(preamble, kVersion);
  preamble.resize(kAlignment);
  RETURN_IF_ERROR(file.Append(preamble));
  return ContainerFile(std::move(file));
}

Status ContainerFile::Add(const std::string& name, const TensorView& tensor) {
  FLEET_CHECK(tensor.data.size() == ByteSize(tensor.type));
  RETURN_IF_ERROR(
      file_.Append(std::string(-file_.byte_size() % kAlignment, '\0')));
  const std::string comma = num_blobs_ == 0 ? "" : ",";
  blobs_ += base::Concat(comma, "[", file_.byte_size(), ",", tensor.data.size(),
                         ",", base::Crc32c(tensor.data), "]");
  std::string shape;
  for (int64_t extent : tensor.type.dims) {
    shape += base::Concat(shape.empty() ? "" : ",", extent);
  }
  items_ += base::Concat(comma, "[", JsonText(name),
                         ",{\"tensor\":", num_blobs_, ",\"dtype\":\"",
                         program::Name(tensor.type.dtype), "\",\"shape\":[",
                         shape, "],\"name\":", JsonText(name), "}]");
  ++num_blobs_;
  return file_.Append(tensor.data);
}

Status ContainerFile::Commit() {
  const std::string header =
      "{\"root\":{\"dict\":[" + items_ + "]},\"blobs\":[" + blobs_ + "]}";
  const uint64_t offset = file_.byte_size();
  RETURN_IF_ERROR(file_.Append(header));
  std::string trailer;
  base::Append<uint64_t>(trailer, offset);
  base::Append<uint64_t>(trailer, header.size());
  base::Append<uint32_t>(trailer, base::Crc32c(header));
  base::Append<uint64_t>(trailer, file_.byte_size() + kTrailerSize);
  trailer.resize(kTrailerSize - sizeof(uint32_t) - kMagic.size());
  base::Append<uint32_t>(trailer, base::Crc32c(trailer));
  trailer += kMagic;
  RETURN_IF_ERROR(file_.Append(trailer));
  return file_.Commit();
}

}  // namespace fleet::saved
