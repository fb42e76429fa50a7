// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/container.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/bytes.h"
#include "fleet/base/crc32c.h"
#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::saved {
namespace {

using program::DType;
using ::testing::HasSubstr;
using Kind = Blob::Kind;

Value Text(std::string text) { return Value{std::move(text)}; }
Value Integer(int64_t number) { return Value{number}; }

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A writer into `bytes`.
ContainerWriter WriterTo(std::string& bytes) {
  return ContainerWriter([&bytes](std::span<const std::byte> more) {
    bytes += base::TextOf(more);
    return OkStatus();
  });
}

Result<std::string> Write(const Value& root) {
  std::string bytes;
  ContainerWriter writer = WriterTo(bytes);
  RETURN_IF_ERROR(writer.Finish(root));
  return bytes;
}

// `bytes` outlive the reader.
Result<ContainerReader> Open(const std::string& bytes) {
  return ContainerReader::Open(ReadFromMemory(BytesOf(bytes)), bytes.size());
}

template <class T>
T Number(const std::string& bytes, size_t at) {
  return base::LoadAt<T>(BytesOf(bytes), at);
}

// A container of any header, with right checksums, whose blobs begin with
// eight zeros at byte 64.
std::string Forge(std::string_view header) {
  std::string bytes(kContainerMagic);
  base::Append<uint32_t>(bytes, 1);
  bytes.resize(72);
  const uint64_t offset = bytes.size();
  bytes += header;
  std::string trailer;
  base::Append<uint64_t>(trailer, offset);
  base::Append<uint64_t>(trailer, header.size());
  base::Append<uint32_t>(trailer, base::Crc32c(header));
  base::Append<uint64_t>(trailer, bytes.size() + 64);
  trailer.resize(52);
  base::Append<uint32_t>(trailer, base::Crc32c(trailer));
  trailer += kContainerMagic;
  return bytes + trailer;
}

// The blobs and the value of a container, written again.
Result<std::string> WriteAgain(const ContainerReader& reader,
                               uint32_t num_blobs) {
  std::string bytes;
  ContainerWriter writer = WriterTo(bytes);
  for (uint32_t i = 0; i < num_blobs; ++i) {
    const BlobId id{i};
    std::string content(reader.byte_size(id), '\0');
    RETURN_IF_ERROR(
        reader.Read(id, std::as_writable_bytes(std::span(content))));
    RETURN_IF_ERROR(writer.Add(reader.blob(id), BytesOf(content)).status());
  }
  RETURN_IF_ERROR(writer.Finish(reader.root()));
  return bytes;
}

// How many blobs stand in a value.
uint32_t CountBlobs(const Value& value) {
  uint32_t count = 0;
  const auto look = [&](const Value& item) {
    count = std::max(count, CountBlobs(item));
  };
  if (const auto* blob = std::get_if<BlobId>(&value.held)) {
    return static_cast<uint32_t>(*blob) + 1;
  }
  if (const auto* list = std::get_if<List>(&value.held)) {
    for (const Value& item : *list) look(item);
  } else if (const auto* tuple = std::get_if<Tuple>(&value.held)) {
    for (const Value& item : tuple->items) look(item);
  } else if (const auto* dict = std::get_if<Dict>(&value.held)) {
    for (const auto& [key, item] : dict->items) look(item);
  }
  return count;
}

// Part by part as docs/container_format.md describes the file.
TEST(Container, TheBytesOfTheFormat) {
  const float weights[] = {1.5F, -2.0F, 0.25F};
  const int64_t counts[] = {7};
  std::string bytes;
  ContainerWriter writer = WriterTo(bytes);
  ASSERT_OK_AND_ASSIGN(const BlobId w,
                       writer.Add(TensorBlob({DType::kFloat32, {3, 1}}, "w_0"),
                                  std::as_bytes(std::span(weights))));
  ASSERT_OK_AND_ASSIGN(
      const BlobId n,
      writer.Add({.kind = Kind::kArray, .element = "<i8", .shape = {}},
                 std::as_bytes(std::span(counts))));
  ASSERT_OK_AND_ASSIGN(const BlobId s,
                       writer.Add({.kind = Kind::kScalar, .element = "<i8"},
                                  std::as_bytes(std::span(counts))));
  ASSERT_OK_AND_ASSIGN(const BlobId raw, writer.Add({}, BytesOf("raw")));
  Dict dict;
  dict.items.emplace_back(Text("w"), Value{w});
  dict.items.emplace_back(Text("a \"b\"\n\u00e9"), Value{n});
  dict.items.emplace_back(Value{}, Value{List{Value{s}, Value{w}}});
  dict.items.emplace_back(Value{Tuple{{Integer(1), Text("x")}}}, Value{raw});
  ASSERT_OK(writer.Finish(Value{std::move(dict)}));

  EXPECT_EQ(bytes.substr(0, 8), kContainerMagic);
  EXPECT_EQ(Number<uint32_t>(bytes, 8), 1u);
  EXPECT_EQ(bytes.substr(12, 52), std::string(52, '\0'));
  EXPECT_EQ(std::memcmp(&bytes[64], weights, sizeof(weights)), 0);
  EXPECT_EQ(std::memcmp(&bytes[128], counts, sizeof(counts)), 0);
  EXPECT_EQ(bytes.substr(256, 3), "raw");
  const uint32_t of_counts = base::Crc32c(std::as_bytes(std::span(counts)));
  const std::string header = base::Concat(
      R"({"root":{"dict":[["w",{"tensor":0,"dtype":"float32","shape":[3,1],)"
      R"("name":"w_0"}],["a \"b\"\n\u00e9",)"
      R"({"array":1,"dtype":"<i8","shape":[]}],)"
      R"([null,[{"scalar":2,"dtype":"<i8"},)"
      R"({"tensor":0,"dtype":"float32","shape":[3,1],"name":"w_0"}]],)"
      R"([{"tuple":[1,"x"]},{"bytes":3}]]},"blobs":[[64,12,)",
      base::Crc32c(std::as_bytes(std::span(weights))), "],[128,8,", of_counts,
      "],[192,8,", of_counts, "],[256,3,", base::Crc32c("raw"), "]]}");
  EXPECT_EQ(bytes.substr(259, header.size()), header);
  const size_t trailer = 259 + header.size();
  ASSERT_EQ(bytes.size(), trailer + 64);
  EXPECT_EQ(Number<uint64_t>(bytes, trailer), 259u);
  EXPECT_EQ(Number<uint64_t>(bytes, trailer + 8), header.size());
  EXPECT_EQ(Number<uint32_t>(bytes, trailer + 16), base::Crc32c(header));
  EXPECT_EQ(Number<uint64_t>(bytes, trailer + 20), bytes.size());
  EXPECT_EQ(bytes.substr(trailer + 28, 24), std::string(24, '\0'));
  EXPECT_EQ(Number<uint32_t>(bytes, trailer + 52),
            base::Crc32c(std::string_view(bytes).substr(trailer, 52)));
  EXPECT_EQ(bytes.substr(trailer + 56), kContainerMagic);
}

// FLEET_RECORDED_CONTAINERS has a file of every kind of object, by the first
// writer of the format.
TEST(Container, RecordedFilesAreReadAndWrittenAgainByteForByte) {
  const base::Path folder = FLEET_RECORDED_CONTAINERS;
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names,
                       base::ListFolder(folder));
  EXPECT_GT(names.size(), 20u);
  for (const std::string& name : names) {
    ASSERT_OK_AND_ASSIGN(const std::string bytes,
                         base::ReadFile(folder / name));
    ASSERT_OK_AND_ASSIGN(const ContainerReader reader,
                         ContainerReader::Open(folder / name));
    ASSERT_OK_AND_ASSIGN(const std::string again,
                         WriteAgain(reader, CountBlobs(reader.root())));
    EXPECT_TRUE(again == bytes) << name;
  }
}

TEST(Container, ValuesComeBack) {
  List list{Value{},
            Value{true},
            Integer(-5),
            Value{BigInteger{"-12345678901234567890"}},
            Value{0.1},
            Value{std::complex<double>(1, -2)},
            Text("text"),
            Value{Tuple{{Integer(1)}}},
            Value{Dict{.items = {{Text("k"), Value{2.5}}}, .ordered = true}}};
  ASSERT_OK_AND_ASSIGN(const std::string bytes, Write(Value{std::move(list)}));
  ASSERT_OK_AND_ASSIGN(const ContainerReader reader, Open(bytes));
  const auto& back = std::get<List>(reader.root().held);
  ASSERT_EQ(back.size(), 9u);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(back[0].held));
  EXPECT_EQ(std::get<bool>(back[1].held), true);
  EXPECT_EQ(std::get<int64_t>(back[2].held), -5);
  EXPECT_EQ(std::get<BigInteger>(back[3].held).digits, "-12345678901234567890");
  EXPECT_EQ(std::get<double>(back[4].held), 0.1);
  EXPECT_EQ(std::get<std::complex<double>>(back[5].held).imag(), -2);
  EXPECT_EQ(std::get<std::string>(back[6].held), "text");
  EXPECT_EQ(std::get<Tuple>(back[7].held).items.size(), 1u);
  const auto& dict = std::get<Dict>(back[8].held);
  EXPECT_TRUE(dict.ordered);
  ASSERT_NE(dict.Find("k"), nullptr);
  EXPECT_EQ(std::get<double>(dict.Find("k")->held), 2.5);
  EXPECT_EQ(dict.Find("other"), nullptr);
}

TEST(Container, ValuesThatCannotBeWritten) {
  EXPECT_THAT(Write(Text("\xff")), HasCode(StatusCode::kInvalidArgument));
  const auto keyed = [](Value key) {
    Dict dict;
    dict.items.emplace_back(std::move(key), Value{});
    return Write(Value{std::move(dict)});
  };
  EXPECT_OK(keyed(Value{Tuple{{Value{Tuple{}}}}}).status());
  EXPECT_THAT(keyed(Value{Tuple{{Value{Tuple{{Value{Tuple{}}}}}}}}),
              HasCode(StatusCode::kInvalidArgument));
  EXPECT_THAT(keyed(Value{List{}}), HasCode(StatusCode::kInvalidArgument));
}

TEST(Container, DepthHasALimitForBothSides) {
  const auto nested = [](int depth, Value innermost) {
    Value value = std::move(innermost);
    for (int i = 0; i < depth; ++i) {
      Dict dict;
      dict.items.emplace_back(Text("k"), std::move(value));
      value = Value{std::move(dict)};
    }
    return Write(value);
  };
  EXPECT_THAT(nested(101, {}), StatusIs(StatusCode::kInvalidArgument,
                                        HasSubstr("nested too deeply")));
  ASSERT_OK_AND_ASSIGN(const std::string bytes, nested(100, Text("x")));
  EXPECT_OK(Open(bytes).status());

  // What is no container does not count, on either side.
  std::string with_blob;
  ContainerWriter writer = WriterTo(with_blob);
  ASSERT_OK_AND_ASSIGN(const BlobId blob, writer.Add({}, BytesOf("x")));
  Value value{blob};
  for (int i = 0; i < 100; ++i) value = Value{List{std::move(value)}};
  ASSERT_OK(writer.Finish(value));
  EXPECT_OK(Open(with_blob).status());

  std::string deep = "0";
  for (int i = 0; i < 101; ++i) deep = '[' + deep + ']';
  EXPECT_THAT(Open(Forge("{\"root\":" + deep + ",\"blobs\":[]}")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("nested too deeply")));
}

TEST(Container, EveryCutAndEveryFlippedBitIsNoticed) {
  std::string good;
  ContainerWriter writer = WriterTo(good);
  ASSERT_OK_AND_ASSIGN(const BlobId blob, writer.Add({}, BytesOf("content")));
  ASSERT_OK(writer.Finish(Value{List{Value{blob}, Text("text")}}));
  const auto read = [](const std::string& bytes) -> Status {
    ASSIGN_OR_RETURN(const ContainerReader reader, Open(bytes));
    std::string content(reader.byte_size(BlobId{0}), '\0');
    return reader.Read(BlobId{0}, std::as_writable_bytes(std::span(content)));
  };
  ASSERT_OK(read(good));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(read(good.substr(0, size)), HasCode(StatusCode::kDataLoss));
  }
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    const size_t at = bit / 8;
    if (at >= 12 && at < 64) continue;  // zeros that nobody looks at
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit % 8);
    EXPECT_THAT(read(damaged), HasCode(StatusCode::kDataLoss)) << bit;
  }
}

TEST(Container, HeadersThatMakeNoSenseAreRefused) {
  EXPECT_OK(Open(Forge(R"({"root":{"array":0,"dtype":"<f4","shape":[2]},)"
                       R"("blobs":[[64,8,0]]})"))
                .status());
  for (
      const char* header : {
          "",
          "[]",
          "{}",
          R"({"root":1})",
          R"({"root":1,"blobs":{}})",
          R"({"root":1,"blobs":[[64,8]]})",
          R"({"root":1,"blobs":[["64",8,0]]})",
          R"({"root":1,"blobs":[[64,8,-1]]})",
          R"({"root":1,"blobs":[[64,8,4294967296]]})",
          R"({"root":1,"blobs":[[0,8,0]]})",
          R"({"root":1,"blobs":[[64,9,0]]})",
          R"({"root":1,"blobs":[[9223372036854775807,1,0]]})",
          R"({"root":1,"blobs":[[64,9223372036854775807,0]]})",
          R"({"root":1,"blobs":[[64,18446744073709551616,0]]})",
          R"({"root":1,"blobs":[[64,8,0],[64,8,0]]})",
          R"({"root":{"bytes":1},"blobs":[[64,8,0]]})",
          R"({"root":{"bytes":-1},"blobs":[[64,8,0]]})",
          R"({"root":{"bytes":0.0},"blobs":[[64,8,0]]})",
          R"({"root":{"array":0,"dtype":"<f4","shape":[3]},"blobs":[[64,8,0]]})",
          R"({"root":{"array":0,"dtype":"O","shape":[1]},"blobs":[[64,8,0]]})",
          R"({"root":{"array":0,"dtype":"float32","shape":[2]},)"
          R"("blobs":[[64,8,0]]})",
          R"({"root":{"array":0,"dtype":"<f4","shape":[-2]},)"
          R"("blobs":[[64,8,0]]})",
          R"({"root":{"array":0,"dtype":"<f4","shape":[4294967296,4294967296]},)"
          R"("blobs":[[64,0,0]]})",
          R"({"root":{"array":0,"dtype":"<f4",)"
          R"("shape":[0,2305843009213693952,4]},"blobs":[[64,0,0]]})",
          R"({"root":{"tensor":0,"dtype":"float32","shape":[2]},)"
          R"("blobs":[[64,8,0]]})",
          R"({"root":{"tensor":0,"dtype":"float","shape":[2],"name":"w"},)"
          R"("blobs":[[64,8,0]]})",
          R"({"root":[{"array":0,"dtype":"<f4","shape":[2]},{"bytes":0}],)"
          R"("blobs":[[64,8,0]]})",
          R"({"root":{"dict":[[1]]},"blobs":[]})",
          R"({"root":{"dict":[[[],1]]},"blobs":[]})",
          R"({"root":{"tuple":1},"blobs":[]})",
          R"({"root":{"complex":[true,1]},"blobs":[]})",
          R"({"root":{"code":1},"blobs":[]})",
      }) {
    EXPECT_THAT(Open(Forge(header)), HasCode(StatusCode::kDataLoss)) << header;
  }
}

TEST(Container, AnEmptyArrayMayHaveAnyOtherExtents) {
  const std::string bytes =
      Forge(R"({"root":{"array":0,"dtype":"<f4","shape":[3,0,5]},)"
            R"("blobs":[[64,0,0]]})");
  ASSERT_OK_AND_ASSIGN(const ContainerReader reader, Open(bytes));
  EXPECT_OK(reader.Read(BlobId{0}, {}));
}

TEST(Container, AnotherVersionIsNamed) {
  ASSERT_OK_AND_ASSIGN(std::string bytes, Write(Integer(1)));
  bytes[8] = 2;
  EXPECT_THAT(Open(bytes),
              StatusIs(StatusCode::kDataLoss, HasSubstr("version 2")));
}

TEST(Container, OtherFilesAreNamed) {
  const testing::TemporaryFolder temporary;
  const base::Path path = temporary.path() / "net.pdparams";
  EXPECT_THAT(ContainerReader::Open(path), HasCode(StatusCode::kNotFound));
  EXPECT_THAT(ContainerReader::Open(temporary.path()),
              HasCode(StatusCode::kInvalidArgument));
  ASSERT_OK(base::AtomicWriteFile(path, "some text"));
  EXPECT_THAT(
      ContainerReader::Open(path),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("net.pdparams")));
  ASSERT_OK(base::AtomicWriteFile(path, ""));
  EXPECT_THAT(ContainerReader::Open(path),
              StatusIs(StatusCode::kDataLoss, HasSubstr("net.pdparams")));
}

TEST(Container, ItsEndIsFoundBeforeOtherBytes) {
  ASSERT_OK_AND_ASSIGN(const std::string bytes,
                       Write(Text(std::string(100, 'x'))));
  std::string with_tricks;
  ContainerWriter writer = WriterTo(with_tricks);
  const std::string trick(kContainerMagic);
  ASSERT_OK_AND_ASSIGN(
      const BlobId blob,
      writer.Add({}, BytesOf(trick + trick + std::string(99, 'x') + trick)));
  ASSERT_OK(writer.Finish(Value{blob}));
  for (const std::string& first : {bytes, with_tricks}) {
    EXPECT_EQ(FindContainerEnd(BytesOf(first)), first.size());
    EXPECT_EQ(FindContainerEnd(BytesOf(first + bytes)), first.size());
    EXPECT_EQ(FindContainerEnd(BytesOf(first + "more")), first.size());
  }
  EXPECT_EQ(FindContainerEnd(BytesOf(trick)), trick.size());
}

}  // namespace
}  // namespace fleet::saved
