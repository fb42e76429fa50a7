// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/crc32c.h"
#include "fleet/saved/container.h"
#include "fleet/saved/container_layout.h"
#include "fleet/saved/json.h"

namespace fleet::saved {
namespace {

Status AppendText(std::string& out, std::string_view text) {
  if (AppendJsonText(out, text)) return OkStatus();
  return InvalidArgument("a text is not UTF-8");
}

// What a key and any other value may be. False for other values.
struct AppendPlain {
  std::string& out;

  Result<bool> operator()(std::monostate) const { return Put("null"); }
  Result<bool> operator()(bool flag) const {
    return Put(flag ? "true" : "false");
  }
  Result<bool> operator()(int64_t number) const {
    return Put(std::to_string(number));
  }
  Result<bool> operator()(const BigInteger& number) const {
    return Put(number.digits);
  }
  Result<bool> operator()(double number) const {
    AppendJsonNumber(out, number);
    return true;
  }
  Result<bool> operator()(const std::string& text) const {
    RETURN_IF_ERROR(AppendText(out, text));
    return true;
  }
  template <class T>
  Result<bool> operator()(const T&) const {
    return false;
  }

  Result<bool> Put(std::string_view text) const {
    out += text;
    return true;
  }
};

std::string_view NameOf(Blob::Kind kind) {
  switch (kind) {
    case Blob::Kind::kBytes:
      return "bytes";
    case Blob::Kind::kArray:
      return "array";
    case Blob::Kind::kScalar:
      return "scalar";
    case Blob::Kind::kTensor:
      return "tensor";
  }
  return "";
}

uint64_t ByteSizeOf(const Blob& blob) {
  uint64_t size = ElementSize(blob.kind, blob.element);
  for (const int64_t extent : blob.shape) size *= static_cast<uint64_t>(extent);
  return size;
}

// {"array":3,"dtype":"<f4","shape":[2,3]}
Result<std::string> NodeOf(const Blob& blob, size_t position) {
  using Kind = Blob::Kind;
  std::string node = base::Concat("{\"", NameOf(blob.kind), "\":", position);
  if (blob.kind != Kind::kBytes) {
    node += base::Concat(",\"dtype\":\"", blob.element, '"');
  }
  if (blob.kind == Kind::kArray || blob.kind == Kind::kTensor) {
    node += ",\"shape\":[";
    for (size_t i = 0; i < blob.shape.size(); ++i) {
      node += base::Concat(i == 0 ? "" : ",", blob.shape[i]);
    }
    node += ']';
  }
  if (blob.kind == Kind::kTensor) {
    node += ",\"name\":";
    RETURN_IF_ERROR(AppendText(node, blob.name));
  }
  return node + '}';
}

}  // namespace

Status ContainerWriter::Put(std::span<const std::byte> bytes) {
  position_ += bytes.size();
  return append_(bytes);
}

Status ContainerWriter::Begin() {
  std::string preamble(kContainerMagic);
  base::Append(preamble, kContainerVersion);
  preamble.resize(kPreambleSize);
  return Put(preamble);
}

Result<BlobId> ContainerWriter::Add(const Blob& blob,
                                    std::span<const std::byte> bytes) {
  if (blob.kind != Blob::Kind::kBytes) {
    FLEET_CHECK_EQ(bytes.size(), ByteSizeOf(blob));
  }
  const size_t position = nodes_.size();
  ASSIGN_OR_RETURN(std::string node, NodeOf(blob, position));
  nodes_.push_back(std::move(node));
  if (position_ == 0) RETURN_IF_ERROR(Begin());
  if (const uint64_t rest = position_ % kBlobAlignment; rest != 0) {
    RETURN_IF_ERROR(Put(std::string(kBlobAlignment - rest, '\0')));
  }
  table_ += base::Concat(table_.empty() ? "" : ",", '[', position_, ',',
                         bytes.size(), ',', base::Crc32c(bytes), ']');
  RETURN_IF_ERROR(Put(bytes));
  return static_cast<BlobId>(position);
}

Status ContainerWriter::AppendItems(const List& items, int depth,
                                    std::string& out) const {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    RETURN_IF_ERROR(AppendValue(items[i], depth, out));
  }
  out += ']';
  return OkStatus();
}

Status ContainerWriter::AppendKey(const Value& key, int depth,
                                  std::string& out) const {
  ASSIGN_OR_RETURN(const bool done, std::visit(AppendPlain{out}, key.held));
  if (done) return OkStatus();
  const auto* tuple = std::get_if<Tuple>(&key.held);
  if (tuple == nullptr || depth >= kMaxKeyDepth) {
    return InvalidArgument("a key of a kind that cannot be one");
  }
  out += "{\"tuple\":[";
  for (size_t i = 0; i < tuple->items.size(); ++i) {
    if (i > 0) out += ',';
    RETURN_IF_ERROR(AppendKey(tuple->items[i], depth + 1, out));
  }
  out += "]}";
  return OkStatus();
}

Status ContainerWriter::AppendValue(const Value& value, int depth,
                                    std::string& out) const {
  ASSIGN_OR_RETURN(const bool done, std::visit(AppendPlain{out}, value.held));
  if (done) return OkStatus();
  if (const auto* number = std::get_if<std::complex<double>>(&value.held)) {
    out += "{\"complex\":[";
    AppendJsonNumber(out, number->real());
    out += ',';
    AppendJsonNumber(out, number->imag());
    out += "]}";
    return OkStatus();
  }
  if (const auto* blob = std::get_if<BlobId>(&value.held)) {
    const auto position = static_cast<size_t>(*blob);
    FLEET_CHECK(position < nodes_.size(), "a blob of another container");
    out += nodes_[position];
    return OkStatus();
  }
  if (depth >= kMaxContainerDepth) {
    return InvalidArgument("the value is nested too deeply");
  }
  if (const auto* list = std::get_if<List>(&value.held)) {
    return AppendItems(*list, depth + 1, out);
  }
  if (const auto* tuple = std::get_if<Tuple>(&value.held)) {
    out += "{\"tuple\":";
    RETURN_IF_ERROR(AppendItems(tuple->items, depth + 1, out));
    out += '}';
    return OkStatus();
  }
  const auto& dict = std::get<Dict>(value.held);
  out += dict.ordered ? "{\"ordered\":[" : "{\"dict\":[";
  for (size_t i = 0; i < dict.items.size(); ++i) {
    out += i == 0 ? "[" : ",[";
    RETURN_IF_ERROR(AppendKey(dict.items[i].first, 0, out));
    out += ',';
    RETURN_IF_ERROR(AppendValue(dict.items[i].second, depth + 1, out));
    out += ']';
  }
  out += "]}";
  return OkStatus();
}

Status ContainerWriter::Finish(const Value& root) {
  if (position_ == 0) RETURN_IF_ERROR(Begin());
  std::string header = "{\"root\":";
  RETURN_IF_ERROR(AppendValue(root, 0, header));
  header += ",\"blobs\":[" + table_ + "]}";
  const uint64_t offset = position_;
  RETURN_IF_ERROR(Put(header));
  std::string trailer;
  base::Append<uint64_t>(trailer, offset);
  base::Append<uint64_t>(trailer, header.size());
  base::Append<uint32_t>(trailer, base::Crc32c(header));
  base::Append<uint64_t>(trailer, position_ + kTrailerSize);
  trailer.resize(kTrailerFields);
  base::Append<uint32_t>(trailer, base::Crc32c(trailer));
  trailer += kContainerMagic;
  return Put(trailer);
}

}  // namespace fleet::saved
