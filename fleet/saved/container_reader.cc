// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/crc32c.h"
#include "fleet/base/descriptor.h"
#include "fleet/saved/container.h"
#include "fleet/saved/container_layout.h"
#include "fleet/saved/json.h"

namespace fleet::saved {
namespace {

// A dict is three brackets of JSON, {"dict":[[; a key two more tuples of two.
constexpr int kMaxJsonDepth = 3 * kMaxContainerDepth + 16;

template <class... Parts>
Status NoSense(const Parts&... parts) {
  return DataLoss("its header makes no sense: ", parts...);
}

}  // namespace

// Makes values and blobs of a header.
class HeaderReader final {
 public:
  explicit HeaderReader(ContainerReader& container) : container_(container) {}

  Status ReadHeader(std::string_view text, uint64_t header_offset) {
    ASSIGN_OR_RETURN(const Json header, ParseJson(text, kMaxJsonDepth));
    const Json* root = header.Find("root");
    const Json* blobs = header.Find("blobs");
    if (root == nullptr || blobs == nullptr) {
      return NoSense("no root, or no blobs");
    }
    RETURN_IF_ERROR(ReadTable(*blobs, header_offset));
    ASSIGN_OR_RETURN(container_.root_, ReadValue(*root, 0));
    return OkStatus();
  }

 private:
  // Blobs lie one after the other, inside the file, and do not overlap.
  Status ReadTable(const Json& table, uint64_t end) {
    const auto* rows = std::get_if<JsonArray>(&table.held);
    if (rows == nullptr) return NoSense("no table of blobs");
    uint64_t begin = kPreambleSize;
    for (const Json& row : *rows) {
      const auto* numbers = std::get_if<JsonArray>(&row.held);
      if (numbers == nullptr || numbers->size() != 3) {
        return NoSense("a blob without numbers");
      }
      int64_t fields[3];
      for (int i = 0; i < 3; ++i) {
        const auto* number = std::get_if<int64_t>(&(*numbers)[i].held);
        if (number == nullptr || *number < 0) {
          return NoSense("a blob without numbers");
        }
        fields[i] = *number;
      }
      const auto offset = static_cast<uint64_t>(fields[0]);
      const auto byte_size = static_cast<uint64_t>(fields[1]);
      if (offset < begin || offset > end || byte_size > end - offset ||
          fields[2] > UINT32_MAX) {
        return NoSense("a blob outside of the file");
      }
      begin = offset + byte_size;
      container_.blobs_.push_back({.offset = offset,
                                   .byte_size = byte_size,
                                   .checksum = static_cast<uint32_t>(fields[2]),
                                   .blob = std::nullopt});
    }
    return OkStatus();
  }

  // What a key may be, too; nothing for a node.
  static std::optional<Value> ReadPlain(const Json& node) {
    return std::visit(
        [](const auto& held) -> std::optional<Value> {
          using Held = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<Held, JsonArray> ||
                        std::is_same_v<Held, JsonObject>) {
            return std::nullopt;
          } else {
            return Value{held};
          }
        },
        node.held);
  }

  Result<List> ReadItems(const Json& items, int depth) {
    const auto* array = std::get_if<JsonArray>(&items.held);
    if (array == nullptr) return NoSense("a tuple without items");
    List values;
    values.reserve(array->size());
    for (const Json& item : *array) {
      ASSIGN_OR_RETURN(Value value, ReadValue(item, depth));
      values.push_back(std::move(value));
    }
    return values;
  }

  Result<Value> ReadValue(const Json& node, int depth) {
    if (std::optional<Value> plain = ReadPlain(node)) return *std::move(plain);
    const auto* members = std::get_if<JsonObject>(&node.held);
    const bool is_container =
        members == nullptr ||
        (members->size() == 1 && (members->front().first == "tuple" ||
                                  members->front().first == "dict" ||
                                  members->front().first == "ordered"));
    if (is_container && depth >= kMaxContainerDepth) {
      return NoSense("nested too deeply");
    }
    if (members == nullptr) {
      ASSIGN_OR_RETURN(List items, ReadItems(node, depth + 1));
      return Value{std::move(items)};
    }
    if (members->size() != 1) return ReadBlob(node);
    const auto& [kind, content] = members->front();
    if (kind == "tuple") {
      ASSIGN_OR_RETURN(List items, ReadItems(content, depth + 1));
      return Value{Tuple{std::move(items)}};
    }
    if (kind == "complex") return ReadComplex(content);
    if (!is_container) return ReadBlob(node);
    return ReadDict(content, kind == "ordered", depth);
  }

  Result<Value> ReadDict(const Json& content, bool ordered, int depth) {
    const auto* items = std::get_if<JsonArray>(&content.held);
    if (items == nullptr) return NoSense("a dict without items");
    Dict dict{.items = {}, .ordered = ordered};
    dict.items.reserve(items->size());
    for (const Json& item : *items) {
      const auto* pair = std::get_if<JsonArray>(&item.held);
      if (pair == nullptr || pair->size() != 2) {
        return NoSense("a dict without items");
      }
      ASSIGN_OR_RETURN(Value key, ReadKey((*pair)[0], 0));
      ASSIGN_OR_RETURN(Value value, ReadValue((*pair)[1], depth + 1));
      dict.items.emplace_back(std::move(key), std::move(value));
    }
    return Value{std::move(dict)};
  }

  static Result<Value> ReadKey(const Json& node, int depth) {
    if (std::optional<Value> plain = ReadPlain(node)) return *std::move(plain);
    const auto* members = std::get_if<JsonObject>(&node.held);
    if (members == nullptr || members->size() != 1 ||
        members->front().first != "tuple" || depth >= kMaxKeyDepth) {
      return NoSense("a key of a kind that cannot be one");
    }
    const auto* items = std::get_if<JsonArray>(&members->front().second.held);
    if (items == nullptr) return NoSense("a tuple without items");
    Tuple tuple;
    for (const Json& item : *items) {
      ASSIGN_OR_RETURN(Value value, ReadKey(item, depth + 1));
      tuple.items.push_back(std::move(value));
    }
    return Value{std::move(tuple)};
  }

  static Result<Value> ReadComplex(const Json& content) {
    const auto* parts = std::get_if<JsonArray>(&content.held);
    if (parts == nullptr || parts->size() != 2) {
      return NoSense("a complex number without its parts");
    }
    double numbers[2];
    for (int i = 0; i < 2; ++i) {
      if (const auto* real = std::get_if<double>(&(*parts)[i].held)) {
        numbers[i] = *real;
      } else if (const auto* whole = std::get_if<int64_t>(&(*parts)[i].held)) {
        numbers[i] = static_cast<double>(*whole);
      } else {
        return NoSense("a complex number without its parts");
      }
    }
    return Value{std::complex<double>(numbers[0], numbers[1])};
  }

  Result<Value> ReadBlob(const Json& node) {
    using Kind = Blob::Kind;
    constexpr std::pair<std::string_view, Kind> kKinds[] = {
        {"tensor", Kind::kTensor},
        {"array", Kind::kArray},
        {"scalar", Kind::kScalar},
        {"bytes", Kind::kBytes}};
    const Json* position = nullptr;
    Blob blob;
    for (const auto& [name, kind] : kKinds) {
      position = node.Find(name);
      blob.kind = kind;
      if (position != nullptr) break;
    }
    if (position == nullptr) return NoSense("a node of an unknown kind");
    const auto* number = std::get_if<int64_t>(&position->held);
    if (number == nullptr || *number < 0 ||
        static_cast<uint64_t>(*number) >= container_.blobs_.size()) {
      return NoSense("a node without its blob");
    }
    ContainerReader::Stored& stored = container_.blobs_[*number];
    RETURN_IF_ERROR(Describe(node, stored.byte_size, blob));
    // One blob is one object, so memory cannot exceed the size of the file.
    if (stored.blob.has_value() && *stored.blob != blob) {
      return NoSense("two nodes with one blob");
    }
    stored.blob = std::move(blob);
    return Value{static_cast<BlobId>(*number)};
  }

  static Status Describe(const Json& node, uint64_t byte_size, Blob& blob) {
    using Kind = Blob::Kind;
    if (blob.kind == Kind::kBytes) return OkStatus();
    if (blob.kind == Kind::kTensor) {
      const Json* name = node.Find("name");
      const auto* text =
          name == nullptr ? nullptr : std::get_if<std::string>(&name->held);
      if (text == nullptr) return NoSense("a tensor whose name is no text");
      blob.name = *text;
    }
    const Json* dtype = node.Find("dtype");
    const auto* element =
        dtype == nullptr ? nullptr : std::get_if<std::string>(&dtype->held);
    if (element == nullptr || ElementSize(blob.kind, *element) == 0) {
      return NoSense("an array of an unknown type");
    }
    blob.element = *element;
    if (blob.kind != Kind::kScalar) {
      const Json* shape = node.Find("shape");
      const auto* extents =
          shape == nullptr ? nullptr : std::get_if<JsonArray>(&shape->held);
      if (extents == nullptr || extents->size() > kMaxRank) {
        return NoSense("an array with a shape that is none");
      }
      for (const Json& each : *extents) {
        const auto* extent = std::get_if<int64_t>(&each.held);
        if (extent == nullptr || *extent < 0) {
          return NoSense("an array with a shape that is none");
        }
        blob.shape.push_back(*extent);
      }
    }
    return CheckShape(blob, byte_size);
  }

  // The shape has as many bytes, and would not overflow with ones for zeros:
  // whoever makes an array of it multiplies in any order.
  static Status CheckShape(const Blob& blob, uint64_t byte_size) {
    bool empty = false;
    auto size = static_cast<int64_t>(ElementSize(blob.kind, blob.element));
    for (const int64_t extent : blob.shape) {
      empty |= extent == 0;
      if (__builtin_mul_overflow(size, std::max<int64_t>(extent, 1), &size)) {
        return NoSense("an array with a shape that is none");
      }
    }
    if (byte_size == (empty ? 0 : static_cast<uint64_t>(size))) {
      return OkStatus();
    }
    return NoSense("an array of shape ", program::ToString(blob.shape),
                   " and type ", blob.element, " with ", byte_size, " bytes");
  }

  ContainerReader& container_;
};

namespace {

// Where the header is, from the fields of a trailer.
struct HeaderPlace {
  uint64_t offset = 0;
  uint64_t byte_size = 0;
  uint32_t checksum = 0;
};

Status CheckPreamble(std::span<const std::byte> preamble) {
  if (!base::TextOf(preamble).starts_with(kContainerMagic)) {
    return DataLoss("its first bytes are damaged");
  }
  const auto version = base::LoadAt<uint32_t>(preamble, kContainerMagic.size());
  if (version == kContainerVersion) return OkStatus();
  return DataLoss("it has version ", version,
                  " of the format, and this program reads version ",
                  kContainerVersion);
}

Result<HeaderPlace> ReadTrailer(std::span<const std::byte> trailer,
                                uint64_t file_size) {
  if (!base::TextOf(trailer).ends_with(kContainerMagic)) {
    return DataLoss("it is cut off");
  }
  base::ByteReader in(trailer);
  HeaderPlace place;
  place.offset = in.Take<uint64_t>();
  place.byte_size = in.Take<uint64_t>();
  place.checksum = in.Take<uint32_t>();
  const auto whole_size = in.Take<uint64_t>();
  const auto checksum = base::LoadAt<uint32_t>(trailer, kTrailerFields);
  if (base::Crc32c(trailer.first(kTrailerFields)) != checksum) {
    return DataLoss("its last bytes are damaged");
  }
  if (whole_size != file_size) {
    return DataLoss("it has ", file_size, " bytes and should have ",
                    whole_size);
  }
  const uint64_t end = file_size - kTrailerSize;
  if (place.offset < kPreambleSize || place.offset > end ||
      place.byte_size != end - place.offset) {
    return DataLoss("its header is not where it should be");
  }
  return place;
}

}  // namespace

ReadAt ReadFromMemory(std::span<const std::byte> bytes) {
  return [bytes](uint64_t offset, std::span<std::byte> into) -> Status {
    FLEET_CHECK(offset <= bytes.size() && into.size() <= bytes.size() - offset);
    if (!into.empty()) {
      std::memcpy(into.data(), bytes.data() + offset, into.size());
    }
    return OkStatus();
  };
}

ReadAt ReadFromDescriptor(int descriptor) {
  return [descriptor](uint64_t offset, std::span<std::byte> into) -> Status {
    while (!into.empty()) {
      const ssize_t count = ::pread(descriptor, into.data(), into.size(),
                                    static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoStatus(errno, "read");
      if (count == 0) return DataLoss("it is cut off");
      into = into.subspan(static_cast<size_t>(count));
      offset += static_cast<uint64_t>(count);
    }
    return OkStatus();
  };
}

Result<ContainerReader> ContainerReader::Open(ReadAt read_at,
                                              uint64_t byte_size) {
  if (byte_size < kPreambleSize + kTrailerSize) {
    return DataLoss("it is cut off");
  }
  std::array<std::byte, kPreambleSize> preamble;
  RETURN_IF_ERROR(read_at(0, preamble));
  RETURN_IF_ERROR(CheckPreamble(preamble));
  std::array<std::byte, kTrailerSize> trailer;
  RETURN_IF_ERROR(read_at(byte_size - kTrailerSize, trailer));
  ASSIGN_OR_RETURN(const HeaderPlace place, ReadTrailer(trailer, byte_size));
  std::string header(place.byte_size, '\0');
  RETURN_IF_ERROR(
      read_at(place.offset, std::as_writable_bytes(std::span(header))));
  if (base::Crc32c(header) != place.checksum) {
    return DataLoss("its header is damaged");
  }
  ContainerReader container;
  container.read_at_ = std::move(read_at);
  RETURN_IF_ERROR(HeaderReader(container).ReadHeader(header, place.offset));
  return container;
}

Result<ContainerReader> ContainerReader::Open(const base::Path& path) {
  auto file = std::make_shared<base::Descriptor>(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts = {};
  if (!file->valid() || ::fstat(file->get(), &facts) != 0) {
    return ErrnoStatus(errno, "open " + path.string());
  }
  if (!S_ISREG(facts.st_mode)) {
    return InvalidArgument(path.string(), " is not a plain file");
  }
  const auto byte_size = static_cast<uint64_t>(facts.st_size);
  ReadAt read = ReadFromDescriptor(file->get());
  // Without the beginning of the magic it is no damaged container but another
  // file.
  std::string first(std::min<uint64_t>(byte_size, 1), '\0');
  RETURN_IF_ERROR(read(0, std::as_writable_bytes(std::span(first)))
                      .WithContext(path.string()));
  if (!kContainerMagic.starts_with(first)) {
    return InvalidArgument(path.string(), " was not written by paddle.save");
  }
  Result<ContainerReader> opened = Open(
      [file, read](uint64_t offset, std::span<std::byte> into) {
        return read(offset, into);
      },
      byte_size);
  if (!opened.ok()) return opened.status().WithContext(path.string());
  return opened;
}

const Blob& ContainerReader::blob(BlobId id) const {
  return *blobs_.at(static_cast<size_t>(id)).blob;
}

uint64_t ContainerReader::byte_size(BlobId id) const {
  return blobs_.at(static_cast<size_t>(id)).byte_size;
}

Status ContainerReader::Read(BlobId id, std::span<std::byte> into) const {
  const Stored& stored = blobs_.at(static_cast<size_t>(id));
  FLEET_CHECK_EQ(into.size(), stored.byte_size);
  RETURN_IF_ERROR(read_at_(stored.offset, into));
  if (base::Crc32c(into) == stored.checksum) return OkStatus();
  return DataLoss("its bytes ", stored.offset, " to ",
                  stored.offset + stored.byte_size, " are damaged");
}

size_t FindContainerEnd(std::span<const std::byte> bytes) {
  const std::string_view text = base::TextOf(bytes);
  size_t at = text.find(kContainerMagic,
                        kPreambleSize + kTrailerSize - kContainerMagic.size());
  for (; at != std::string_view::npos;
       at = text.find(kContainerMagic, at + 1)) {
    const size_t end = at + kContainerMagic.size();
    if (ReadTrailer(bytes.subspan(end - kTrailerSize, kTrailerSize), end)
            .ok()) {
      return end;
    }
  }
  return bytes.size();
}

}  // namespace fleet::saved
