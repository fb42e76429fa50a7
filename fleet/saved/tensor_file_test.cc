// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/tensor_file.h"

#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::saved {
namespace {

using program::Dims;
using program::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A tensor with memory of its own.
struct Owned {
  std::string name;
  program::TensorType type;
  std::vector<std::byte> data = {};
  Lod lod = {};

  bool operator==(const Owned& other) const {
    return name == other.name && type.dtype == other.type.dtype &&
           type.dims == other.type.dims && data == other.data &&
           lod == other.lod;
  }
};

// Bytes that differ from one place to the next.
Owned Make(const std::string& name, DType dtype, Dims dims, Lod lod = {}) {
  Owned made{.name = name, .type = {dtype, std::move(dims)}, .lod = lod};
  made.data.resize(*ByteSize(made.type));
  for (size_t i = 0; i < made.data.size(); ++i) {
    made.data[i] = static_cast<std::byte>(i * 7 + name.size());
  }
  return made;
}

class TensorFileTest : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const base::Path& folder_ = temporary_.path();
};

std::vector<std::string> NamesOf(const std::vector<Owned>& tensors) {
  std::vector<std::string> names;
  for (const Owned& tensor : tensors) names.push_back(tensor.name);
  return names;
}

Status Write(const std::vector<Owned>& tensors, const Append& append) {
  for (const Owned& tensor : tensors) {
    RETURN_IF_ERROR(
        WriteTensor({tensor.type, tensor.data, tensor.lod}, append));
  }
  return OkStatus();
}

std::string Serialize(const std::vector<Owned>& tensors) {
  std::string bytes;
  EXPECT_OK(Write(tensors, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return OkStatus();
  }));
  return bytes;
}

Status Save(const base::Path& path, const std::vector<Owned>& tensors) {
  ASSIGN_OR_RETURN(base::AtomicFile file, base::AtomicFile::Create(path));
  RETURN_IF_ERROR(Write(tensors, [&](std::span<const std::byte> part) {
    return file.Append(part);
  }));
  return file.Commit();
}

Result<std::span<std::byte>> Add(TensorHeader header,
                                 std::vector<Owned>& tensors) {
  Owned& added = tensors.emplace_back(
      Owned{.name = std::move(header.name), .type = std::move(header.type)});
  added.lod = std::move(header.lod);
  added.data.resize(*ByteSize(added.type));
  return std::span(added.data);
}

Result<std::vector<Owned>> Parse(std::string_view bytes,
                                 const std::vector<std::string>& names) {
  std::vector<Owned> tensors;
  RETURN_IF_ERROR(ParseTensors(bytes, names, "here", [&](TensorHeader header) {
    return Add(std::move(header), tensors);
  }));
  return tensors;
}

Result<std::vector<Owned>> Load(const base::Path& path,
                                const std::vector<std::string>& names) {
  std::vector<Owned> tensors;
  RETURN_IF_ERROR(LoadTensors(path, names, [&](TensorHeader header) {
    return Add(std::move(header), tensors);
  }));
  return tensors;
}

std::vector<Owned> Examples() {
  std::vector<Owned> tensors;
  for (DType dtype :
       {DType::kBool, DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt32,
        DType::kInt64, DType::kFloat16, DType::kBfloat16, DType::kFloat32,
        DType::kFloat64, DType::kComplex64, DType::kComplex128}) {
    tensors.push_back(Make(std::string(program::Name(dtype)), dtype, {2, 3}));
  }
  tensors.push_back(Make("none", DType::kFloat32, {0, 4}));
  tensors.push_back(Make("scalar", DType::kFloat32, {}));
  tensors.push_back(
      Make("rows", DType::kFloat32, {5, 2}, {{0, 2, 5}, {0, 1, 2, 3, 4, 5}}));
  return tensors;
}

TEST_F(TensorFileTest, TensorsComeBack) {
  const std::vector<Owned> tensors = Examples();
  const base::Path path = folder_ / "all";
  ASSERT_OK(Save(path, tensors));
  ASSERT_OK_AND_ASSIGN(const std::vector<Owned> back,
                       Load(path, NamesOf(tensors)));
  EXPECT_TRUE(back == tensors);
  ASSERT_OK_AND_ASSIGN(const std::string file, base::ReadFile(path));
  EXPECT_EQ(Serialize(tensors), file);
}

TEST_F(TensorFileTest, TheBytesThatPaddleReads) {
  const float values[] = {1.5F, -2.0F};
  std::string bytes;
  ASSERT_OK(WriteTensor(
      {{DType::kFloat32, {2}}, std::as_bytes(std::span(values)), Lod{{0, 2}}},
      [&](std::span<const std::byte> part) {
        bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
        return OkStatus();
      }));
  std::string wanted(4, '\0');                             // version
  wanted += std::string("\x01\0\0\0\0\0\0\0", 8);          // levels of LoD
  wanted += std::string("\x10\0\0\0\0\0\0\0", 8) +         // of 16 bytes
            std::string(8, '\0') +                         //
            std::string("\x02\0\0\0\0\0\0\0", 8);          //
  wanted += std::string(4, '\0');                          // version
  wanted += std::string("\x0B\0\0\0\x08\x05\x10\x02", 8);  // type and size
  wanted += "\xCD\xB5\x03";                                // field 7001
  ASSERT_GT(bytes.size(), wanted.size());
  EXPECT_EQ(bytes.substr(0, wanted.size()), wanted);
  wanted.append(bytes.substr(wanted.size(), 4));  // the checksum
  wanted.append(reinterpret_cast<const char*>(values), sizeof(values));
  EXPECT_EQ(bytes, wanted);
}

TEST_F(TensorFileTest, TheBytesThatPaddleWrites) {
  // By hand: a float32 [2] of Paddle, which has no checksum.
  std::string bytes(4, '\0');
  bytes += std::string(8, '\0');                          // no LoD
  bytes += std::string(4, '\0');                          // version
  bytes += std::string("\x04\0\0\0\x08\x05\x10\x02", 8);  // type and size
  const float values[] = {1.5F, -2.0F};
  bytes.append(reinterpret_cast<const char*>(values), sizeof(values));
  ASSERT_OK_AND_ASSIGN(const std::vector<Owned> back, Parse(bytes, {"w"}));
  EXPECT_EQ(back[0].type.dims, Dims{2});
  EXPECT_EQ(back[0].type.dtype, DType::kFloat32);
  EXPECT_EQ(std::memcmp(back[0].data.data(), values, sizeof(values)), 0);
}

TEST_F(TensorFileTest, EveryCutIsNoticed) {
  const std::vector<Owned> tensors = Examples();
  const std::string bytes = Serialize(tensors);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(Parse(bytes.substr(0, size), NamesOf(tensors)),
                HasCode(StatusCode::kDataLoss))
        << size;
  }
}

TEST_F(TensorFileTest, EveryChangedByteIsNoticed) {
  const std::vector<Owned> tensors = {
      Make("a", DType::kFloat32, {2, 3}),
      Make("b", DType::kInt64, {4}, {{0, 1, 4}})};
  const std::string bytes = Serialize(tensors);
  int unnoticed = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      const Result<std::vector<Owned>> back = Parse(changed, NamesOf(tensors));
      if (!back.ok()) continue;
      // Only a checksum that is no longer seen as one can go unnoticed.
      ++unnoticed;
      EXPECT_TRUE(*back == tensors) << at;
    }
  }
  EXPECT_LT(unnoticed, 2 * 3 * 8);
}

TEST_F(TensorFileTest, ErrorsSayWhere) {
  const std::vector<Owned> tensors = {Make("a", DType::kFloat32, {2, 3}),
                                      Make("fc.w", DType::kFloat32, {100})};
  const base::Path path = folder_ / "w";
  ASSERT_OK(Save(path, tensors));
  std::filesystem::resize_file(path, 400);
  EXPECT_THAT(
      Load(path, NamesOf(tensors)),
      StatusIs(StatusCode::kDataLoss,
               AllOf(HasSubstr(path.string()),
                     HasSubstr("tensor 2 of 2 ('fc.w'), which begins at byte"),
                     HasSubstr("cut off: float32 [100] takes 400 bytes"))));
  std::filesystem::remove(path);
  EXPECT_THAT(Load(path, NamesOf(tensors)),
              StatusIs(StatusCode::kNotFound, HasSubstr(path.string())));
  std::ofstream(path) << "This is a letter, and no tensor at all.";
  EXPECT_THAT(Load(path, NamesOf(tensors)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("no tensor")));
  EXPECT_THAT(Load(folder_, NamesOf(tensors)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("plain file")));
}

TEST_F(TensorFileTest, BytesLeftOver) {
  const std::vector<Owned> tensors = Examples();
  std::vector<std::string> names = NamesOf(tensors);
  names.pop_back();
  EXPECT_THAT(Parse(Serialize(tensors), names),
              StatusIs(StatusCode::kDataLoss, HasSubstr("left over")));
}

TEST_F(TensorFileTest, ASizeThatLiesAsksForNoMemory) {
  std::string bytes(16, '\0');
  // float64 [2^40].
  bytes +=
      std::string("\x09\0\0\0\x08\x06\x10\x80\x80\x80\x80\x80\x80\x20", 13);
  bytes += "data";
  const std::string name = "w";
  EXPECT_THAT(
      ParseTensors(bytes, {&name, 1}, "here",
                   [](const TensorHeader&) -> Result<std::span<std::byte>> {
                     ADD_FAILURE();
                     return std::span<std::byte>();
                   }),
      HasCode(StatusCode::kDataLoss));
}

// What gives the memory may refuse: its error is the answer.
TEST_F(TensorFileTest, NoRoom) {
  const std::string bytes = Serialize({Make("w", DType::kFloat32, {2})});
  const std::string name = "w";
  EXPECT_THAT(
      ParseTensors(bytes, {&name, 1}, "here",
                   [](const TensorHeader&) -> Result<std::span<std::byte>> {
                     return Unavailable("no memory");
                   }),
      StatusIs(StatusCode::kUnavailable,
               AllOf(HasSubstr("here"), HasSubstr("'w'"))));
}

// The disk is full in the middle of the second file: the first one stays.
TEST_F(TensorFileTest, FullDiskLeavesTheOldFile) {
  const std::vector<Owned> small = {Make("w", DType::kFloat32, {10})};
  const base::Path path = folder_ / "w";
  ASSERT_OK(Save(path, small));
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = 1 << 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
  const Status status = Save(path, {Make("w", DType::kFloat32, {1 << 20})});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(path.string()));
  ASSERT_OK_AND_ASSIGN(const std::vector<Owned> back, Load(path, {"w"}));
  EXPECT_TRUE(back == small);
  ASSERT_OK_AND_ASSIGN(std::vector<std::string> files,
                       base::ListFolder(folder_));
  EXPECT_EQ(files, std::vector<std::string>{"w"});
}

}  // namespace
}  // namespace fleet::saved
