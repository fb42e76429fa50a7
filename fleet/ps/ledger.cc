// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/ledger.h"

#include <utility>

#include "fleet/channel/message.h"

namespace fleet::ps {
namespace {

using channel::MessageReader;
using channel::MessageWriter;

void Write(MessageWriter& out, const std::vector<LaneRecord>& lanes) {
  out.U32(static_cast<uint32_t>(lanes.size()));
  for (const LaneRecord& lane : lanes) {
    out.U32(lane.lane).U64(lane.last_sequence);
    out.U32(static_cast<uint32_t>(lane.applied.size()));
    for (const auto& [table, count] : lane.applied) {
      out.U32(static_cast<uint32_t>(table)).U64(count);
    }
  }
}

std::vector<LaneRecord> ReadLanes(MessageReader& in) {
  std::vector<LaneRecord> lanes;
  const uint32_t num_lanes = in.U32();
  for (uint32_t i = 0; i < num_lanes && in.whole(); ++i) {
    LaneRecord& lane = lanes.emplace_back();
    lane.lane = in.U32();
    lane.last_sequence = in.U64();
    const uint32_t num_tables = in.U32();
    for (uint32_t t = 0; t < num_tables && in.whole(); ++t) {
      const auto table = static_cast<TableId>(in.U32());
      lane.applied[table] = in.U64();
    }
  }
  return lanes;
}

}  // namespace

std::string Encode(const Ledger& ledger) {
  MessageWriter out;
  out.U32(static_cast<uint32_t>(ledger.workers.size()));
  for (const WorkerRecord& worker : ledger.workers) {
    out.U32(worker.worker).U64(worker.incarnation);
    Write(out, worker.lanes);
  }
  return out.Take();
}

Result<Ledger> DecodeLedger(std::string_view bytes) {
  MessageReader in(bytes);
  Ledger ledger;
  const uint32_t num_workers = in.U32();
  for (uint32_t i = 0; i < num_workers && in.whole(); ++i) {
    WorkerRecord& worker = ledger.workers.emplace_back();
    worker.worker = in.U32();
    worker.incarnation = in.U64();
    worker.lanes = ReadLanes(in);
  }
  RETURN_IF_ERROR(in.Finish().WithContext("a ledger of updates"));
  return ledger;
}

std::string Encode(const std::vector<Goodbye>& goodbyes) {
  MessageWriter out;
  out.U32(static_cast<uint32_t>(goodbyes.size()));
  for (const Goodbye& goodbye : goodbyes) {
    out.U32(goodbye.worker).U64(goodbye.incarnation);
    out.U32(static_cast<uint32_t>(goodbye.updates.size()));
    for (const auto& [id, updates] : goodbye.updates) {
      out.U32(static_cast<uint32_t>(id)).Text(updates.table);
      out.U64(updates.count);
    }
  }
  return out.Take();
}

Result<std::vector<Goodbye>> DecodeGoodbyes(std::string_view bytes) {
  MessageReader in(bytes);
  std::vector<Goodbye> goodbyes;
  const uint32_t num_workers = in.U32();
  for (uint32_t i = 0; i < num_workers && in.whole(); ++i) {
    Goodbye& goodbye = goodbyes.emplace_back();
    goodbye.worker = in.U32();
    goodbye.incarnation = in.U64();
    const uint32_t num_tables = in.U32();
    for (uint32_t t = 0; t < num_tables && in.whole(); ++t) {
      const auto id = static_cast<TableId>(in.U32());
      Goodbye::Updates& updates = goodbye.updates[id];
      updates.table = in.Text();
      updates.count = in.U64();
    }
  }
  RETURN_IF_ERROR(in.Finish().WithContext("what workers left"));
  return goodbyes;
}

std::string Encode(const HelloAnswer& answer) {
  MessageWriter out;
  out.U64(answer.epoch).U64(answer.incarnation).U8(answer.is_back);
  Write(out, answer.lanes);
  out.Text(answer.lost_of_gone);
  return out.Take();
}

Result<HelloAnswer> DecodeHelloAnswer(std::string_view bytes) {
  MessageReader in(bytes);
  HelloAnswer answer;
  answer.epoch = in.U64();
  answer.incarnation = in.U64();
  answer.is_back = in.U8() != 0;
  answer.lanes = ReadLanes(in);
  answer.lost_of_gone = in.Text();
  RETURN_IF_ERROR(in.Finish().WithContext("the answer to a hello"));
  return answer;
}

}  // namespace fleet::ps
