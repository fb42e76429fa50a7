// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/container.h"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/crc32c.h"
#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::saved {
namespace {

using program::DType;

class ContainerTest : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const base::Path& folder_ = temporary_.path();
};

template <class T>
T Number(const std::string& bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

// Part by part as container.py describes the file.
TEST_F(ContainerTest, TheBytesOfTheFormat) {
  const float weights[] = {1.5F, -2.0F, 0.25F};
  const int64_t counts[] = {7};
  const base::Path path = folder_ / "net.pdparams";
  ASSERT_OK_AND_ASSIGN(ContainerFile file, ContainerFile::Create(path));
  ASSERT_OK(file.Add(
      "w", {{DType::kFloat32, {3, 1}}, std::as_bytes(std::span(weights))}));
  ASSERT_OK(file.Add("a \"b\"\n",
                     {{DType::kInt64, {}}, std::as_bytes(std::span(counts))}));
  EXPECT_FALSE(base::Exists(path));
  ASSERT_OK(file.Commit());

  ASSERT_OK_AND_ASSIGN(const std::string bytes, base::ReadFile(path));
  const std::string magic =
      "\x93"
      "FLEET\r\n";
  EXPECT_EQ(bytes.substr(0, 8), magic);
  EXPECT_EQ(Number<uint32_t>(bytes, 8), 1u);
  EXPECT_EQ(bytes.substr(12, 52), std::string(52, '\0'));
  EXPECT_EQ(std::memcmp(&bytes[64], weights, sizeof(weights)), 0);
  EXPECT_EQ(std::memcmp(&bytes[128], counts, sizeof(counts)), 0);
  const std::string header = base::Concat(
      R"({"root":{"dict":[["w",{"tensor":0,"dtype":"float32","shape":[3,1],)"
      R"("name":"w"}],["a \"b\"\u000a",{"tensor":1,"dtype":"int64","shape":[],)"
      R"("name":"a \"b\"\u000a"}]]},"blobs":[[64,12,)",
      base::Crc32c(std::as_bytes(std::span(weights))), "],[128,8,",
      base::Crc32c(std::as_bytes(std::span(counts))), "]]}");
  EXPECT_EQ(bytes.substr(136, header.size()), header);
  const size_t trailer = 136 + header.size();
  ASSERT_EQ(bytes.size(), trailer + 64);
  EXPECT_EQ(Number<uint64_t>(bytes, trailer), 136u);
  EXPECT_EQ(Number<uint64_t>(bytes, trailer + 8), header.size());
  EXPECT_EQ(Number<uint32_t>(bytes, trailer + 16), base::Crc32c(header));
  EXPECT_EQ(Number<uint64_t>(bytes, trailer + 20), bytes.size());
  EXPECT_EQ(bytes.substr(trailer + 28, 24), std::string(24, '\0'));
  EXPECT_EQ(Number<uint32_t>(bytes, trailer + 52),
            base::Crc32c(bytes.substr(trailer, 52)));
  EXPECT_EQ(bytes.substr(trailer + 56), magic);
}

TEST_F(ContainerTest, WithoutCommitThereIsNoFile) {
  const base::Path path = folder_ / "net.pdparams";
  {
    ASSERT_OK_AND_ASSIGN(ContainerFile file, ContainerFile::Create(path));
    const bool flag[] = {true};
    ASSERT_OK(
        file.Add("b", {{DType::kBool, {1}}, std::as_bytes(std::span(flag))}));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> files,
                       base::ListFolder(folder_));
  EXPECT_TRUE(files.empty());
}

}  // namespace
}  // namespace fleet::saved
