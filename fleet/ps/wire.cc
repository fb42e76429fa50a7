// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/wire.h"

#include <algorithm>

#include "fleet/channel/message.h"

namespace fleet::ps {

std::string Encode(const ServerInfo& info) {
  channel::MessageWriter out;
  out.U32(info.server)
      .U32(info.num_servers)
      .U32(info.num_workers)
      .U64(info.epoch)
      .U64(info.view)
      .Text(info.local_name)
      .U32(static_cast<uint32_t>(info.tables.size()));
  for (const TableInfo& table : info.tables) {
    out.U32(static_cast<uint32_t>(table.id))
        .Text(table.name)
        .U8(table.dense)
        .U64(table.dim)
        .U64(table.size)
        .U64(table.begin)
        .U64(table.end)
        .U8(table.initialized);
  }
  return out.Take();
}

Result<ServerInfo> DecodeServerInfo(std::string_view bytes) {
  channel::MessageReader in(bytes);
  ServerInfo info;
  info.server = in.U32();
  info.num_servers = in.U32();
  info.num_workers = in.U32();
  info.epoch = in.U64();
  info.view = in.U64();
  info.local_name = in.Text();
  const uint32_t count = in.U32();
  for (uint32_t i = 0; i < count && in.whole(); ++i) {
    TableInfo table;
    table.id = static_cast<TableId>(in.U32());
    table.name = in.Text();
    table.dense = in.U8() != 0;
    table.dim = in.U64();
    table.size = in.U64();
    table.begin = in.U64();
    table.end = in.U64();
    table.initialized = in.U8() != 0;
    info.tables.push_back(std::move(table));
  }
  RETURN_IF_ERROR(in.Finish());
  return info;
}

}  // namespace fleet::ps
