// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/wire.h"

#include <string>
#include <string_view>

#include "fleet/base/status_matchers.h"

namespace fleet::ps {
namespace {

ServerInfo TwoTables() {
  ServerInfo info{.server = 1, .num_servers = 2, .num_workers = 3};
  info.epoch = 4;
  info.view = 5;
  info.local_name = "here";
  info.tables = {
      {.id = TableId{4}, .name = "emb", .dim = 8},
      {.id = TableId{5}, .name = "w", .dense = true, .size = 9, .end = 5}};
  return info;
}

TEST(ServerInfo, CrossesTheWireWhole) {
  ASSERT_OK_AND_ASSIGN(const ServerInfo got,
                       DecodeServerInfo(Encode(TwoTables())));
  EXPECT_EQ(got.server, 1u);
  EXPECT_EQ(got.num_servers, 2u);
  EXPECT_EQ(got.num_workers, 3u);
  EXPECT_EQ(got.epoch, 4u);
  EXPECT_EQ(got.view, 5u);
  EXPECT_EQ(got.local_name, "here");
  ASSERT_EQ(got.tables.size(), 2u);
  EXPECT_EQ(got.tables[0].name, "emb");
  EXPECT_EQ(got.tables[0].dim, 8u);
  EXPECT_EQ(got.tables[1].id, TableId{5});
  EXPECT_TRUE(got.tables[1].dense);
  EXPECT_EQ(got.tables[1].end, 5u);
}

// Also where the cut lies between two tables.
TEST(ServerInfo, EveryPrefixIsDamage) {
  const std::string bytes = Encode(TwoTables());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string prefix = bytes.substr(0, size);
    EXPECT_THAT(DecodeServerInfo(prefix), HasCode(StatusCode::kDataLoss))
        << size;
  }
  EXPECT_THAT(DecodeServerInfo(bytes + '\0'), HasCode(StatusCode::kDataLoss));
}

TEST(ServerInfo, ACountBeyondItsEndIsDamageAtOnce) {
  ServerInfo none;
  std::string bytes = Encode(none);
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(DecodeServerInfo(bytes), HasCode(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace fleet::ps
