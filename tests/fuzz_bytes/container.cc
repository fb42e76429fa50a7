// SPDX-License-Identifier: Apache-2.0

// Containers of paddle.save. The first byte:
//
//   0  a file as it is
//   1  one whose checksums of header and last bytes are made right
//   2  a header (a part), with right checksums, behind the blobs' bytes
//
// What is read is written again, and read as the same.

#include "fleet/saved/container.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "fleet/saved/container_layout.h"

#include "tests/fuzz_bytes/bytes.h"

namespace {

using fleet::OkStatus;
using fleet::Result;
using fleet::Status;
using fleet::base::Crc32c;
namespace base = fleet::base;
namespace saved = fleet::saved;

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// `blobs` and `header`, as a file of which only these are not right.
std::string Forge(std::string_view blobs, std::string_view header) {
  std::string file(saved::kContainerMagic);
  base::Append(file, saved::kContainerVersion);
  file.resize(saved::kPreambleSize);
  file += blobs;
  std::string trailer;
  base::Append<uint64_t>(trailer, file.size());
  base::Append<uint64_t>(trailer, header.size());
  base::Append(trailer, Crc32c(header));
  base::Append<uint64_t>(trailer,
                         file.size() + header.size() + saved::kTrailerSize);
  trailer.resize(saved::kTrailerFields);
  base::Append(trailer, Crc32c(trailer));
  trailer += saved::kContainerMagic;
  return file + std::string(header) + trailer;
}

// The same bytes with a right end, behind a header from where they say.
std::string Mended(const std::string& file) {
  constexpr uint64_t kAround = saved::kPreambleSize + saved::kTrailerSize;
  if (file.size() < kAround) return file;
  const uint64_t end = file.size() - saved::kTrailerSize;
  const uint64_t header = std::clamp(base::LoadAt<uint64_t>(BytesOf(file), end),
                                     saved::kPreambleSize, end);
  const std::string_view text = file;
  return Forge(text.substr(saved::kPreambleSize, header - saved::kPreambleSize),
               text.substr(header, end - header));
}

// Writes a value of one container into another, with the blobs that it has.
class Copier final {
 public:
  explicit Copier(const saved::ContainerReader& from) : from_(from) {}

  // Nothing when the bytes of a blob are damaged.
  Result<std::string> Copy() {
    const saved::Value root = Moved(from_.root());
    RETURN_IF_ERROR(damaged_);
    const Status written = writer_.Finish(root);
    FLEET_CHECK(written.ok(), written);
    return bytes_;
  }

 private:
  saved::List MovedItems(const saved::List& items) {
    saved::List moved;
    for (const saved::Value& item : items) moved.push_back(Moved(item));
    return moved;
  }
  saved::Value Moved(const saved::Value& value) {
    if (const auto* list = std::get_if<saved::List>(&value.held)) {
      return {MovedItems(*list)};
    }
    if (const auto* tuple = std::get_if<saved::Tuple>(&value.held)) {
      return {saved::Tuple{MovedItems(tuple->items)}};
    }
    if (const auto* dict = std::get_if<saved::Dict>(&value.held)) {
      saved::Dict moved{.items = {}, .ordered = dict->ordered};
      for (const auto& [key, item] : dict->items) {
        moved.items.emplace_back(key, Moved(item));
      }
      return {std::move(moved)};
    }
    if (const auto* blob = std::get_if<saved::BlobId>(&value.held)) {
      return {MovedBlob(*blob)};
    }
    return value;
  }
  saved::BlobId MovedBlob(saved::BlobId id) {
    const auto known = moved_.find(id);
    if (known != moved_.end()) return known->second;
    std::string content(from_.byte_size(id), '\0');
    const Status read =
        from_.Read(id, std::as_writable_bytes(std::span(content)));
    if (!read.ok()) {
      damaged_ = read;
      return id;
    }
    const auto added = writer_.Add(from_.blob(id), BytesOf(content));
    FLEET_CHECK(added.ok(), added.status());
    moved_[id] = *added;
    return *added;
  }

  const saved::ContainerReader& from_;
  std::string bytes_;
  saved::ContainerWriter writer_{[this](std::span<const std::byte> more) {
    bytes_ += base::TextOf(more);
    return OkStatus();
  }};
  std::map<saved::BlobId, saved::BlobId> moved_;
  Status damaged_;
};

Result<saved::ContainerReader> Open(const std::string& file) {
  return saved::ContainerReader::Open(saved::ReadFromMemory(BytesOf(file)),
                                      file.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fleet::fuzz::Input input(data, size);
  const auto mode = static_cast<uint8_t>(input.TakeByte() % 3);
  std::string file;
  if (mode == 2) {
    const std::string header = input.TakePart();
    file = Forge(input.rest(), header);
  } else {
    file = mode == 1 ? Mended(input.rest()) : input.rest();
  }
  FLEET_CHECK(saved::FindContainerEnd(BytesOf(file)) <= file.size());
  const Result<saved::ContainerReader> opened = Open(file);
  if (!opened.ok()) return 0;
  const Result<std::string> copy = Copier(*opened).Copy();
  if (!copy.ok()) return 0;
  ++fleet::fuzz::num_taken;
  const Result<saved::ContainerReader> again = Open(*copy);
  FLEET_CHECK(again.ok(), again.status());
  const Result<std::string> same = Copier(*again).Copy();
  FLEET_CHECK(same.ok(), same.status());
  FLEET_CHECK(*same == *copy, "what was written is read as another value");
  return 0;
}
