// SPDX-License-Identifier: Apache-2.0

// Calls on sparse tables.

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "fleet/ps/client.h"

namespace fleet::ps {
namespace {

using channel::ConstBytes;

// Keys of one answer: half a megabyte.
constexpr size_t kMaxChanges = 65536;

}  // namespace

Result<const TableInfo*> PsClient::SparseInfo(const Servers& servers,
                                              TableId id, size_t num_keys,
                                              size_t num_values,
                                              const char* what) const {
  for (const TableInfo& table : servers[0].tables) {
    if (table.id != id) continue;
    if (table.dense) {
      return InvalidArgument("worker ", options_.worker, ": ", what, " ",
                             table.name, ": it is a dense table");
    }
    if (num_values != num_keys * table.dim) {
      return InvalidArgument("worker ", options_.worker, ": ", what, " ",
                             table.name, " (", num_keys, " keys): ", num_values,
                             " values, where a row has ", table.dim);
    }
    return &table;
  }
  return NotFound("worker ", options_.worker, ": ", what,
                  ": the servers have no table with id ",
                  static_cast<uint32_t>(id));
}

// Requests of some thousand keys, made while the servers are at those before.
class PsClient::PullCall final : public Call {
 public:
  PullCall(const CallName& name, const TableInfo& table,
           const PullOptions& options, Lane& lane)
      : Call(name),
        table_(table),
        options_(options),
        stream_(lane.stream),
        landing_(lane.rows),
        of_request_(KeysOfChunk(table.dim)) {
    if (options.count) stream_.Finish();
  }

  bool HasRequest(uint32_t server, size_t request) override {
    return stream_.Reach(server, (request + 1) * of_request_) >
           request * of_request_;
  }

  void Ask(uint32_t server, size_t request, RequestHead& head,
           std::vector<ConstBytes>& parts) override {
    const auto [begin, count] = Range(server, request);
    head.op = Op::kPull;
    head.table = table_.id;
    head.count = count;
    if (!options_.training) head.flags |= kFlagNotTraining;
    parts.push_back(std::as_bytes(stream_.keys(server, begin, count)));
    if (!options_.count) return;
    head.flags |= kFlagCounts;
    counts_.resize(count);
    stream_.Count(server, begin, counts_);
    parts.push_back(std::as_bytes(std::span(counts_)));
  }

  std::span<std::byte> Into(uint32_t server, size_t request, size_t) override {
    const auto [begin, count] = Range(server, request);
    const std::span<float> direct = stream_.Direct(server, begin, count);
    if (!direct.empty()) return std::as_writable_bytes(direct);
    const size_t size = count * table_.dim;
    if (landing_.size() < size) landing_.resize(size);
    return std::as_writable_bytes(std::span(landing_).first(size));
  }

  Status Take(uint32_t server, size_t request,
              std::span<const std::byte> answer) override {
    const auto [begin, count] = Range(server, request);
    const auto* rows = reinterpret_cast<const float*>(answer.data());
    if (rows == landing_.data()) stream_.Scatter(server, begin, count, rows);
    return OkStatus();
  }

 private:
  // The keys of a request: from which on, and how many.
  std::pair<size_t, size_t> Range(uint32_t server, size_t request) {
    const size_t begin = request * of_request_;
    const size_t end = stream_.Reach(server, begin + of_request_);
    return {begin, std::min(end - begin, of_request_)};
  }

  const TableInfo& table_;
  const PullOptions& options_;
  KeyStream& stream_;
  std::vector<float>& landing_;
  const size_t of_request_;
  std::vector<uint32_t> counts_;
};

Status PsClient::Pull(TableId table, std::span<const Key> keys,
                      std::span<float> rows, const PullOptions& options,
                      Deadline deadline) {
  const RowsOfKeys part{keys, rows};
  return PullParts(table, std::span(&part, 1), options, deadline);
}

Status PsClient::PullParts(TableId id, std::span<const RowsOfKeys> parts,
                           const PullOptions& options, Deadline deadline) {
  const std::shared_ptr<const Servers> servers = this->servers();
  const TableInfo* table = nullptr;
  size_t num_keys = 0;
  for (const RowsOfKeys& part : parts) {
    ASSIGN_OR_RETURN(table, SparseInfo(*servers, id, part.keys.size(),
                                       part.rows.size(), "pull"));
    num_keys += part.keys.size();
  }
  if (num_keys == 0) return OkStatus();
  Lanes::Lease lane(lanes_);
  lane->stream.Begin(parts, table->dim, num_servers());
  PullCall call({"pull", table->name, num_keys, "keys"}, *table, options,
                *lane);
  RETURN_IF_ERROR(lanes_.Run(*lane, call, deadline));
  lane->stream.CopyRepeats();
  return OkStatus();
}

// Requests of some thousand keys, as PullCall's; gradients of a key are merged.
class PsClient::UpdateCall final : public Call {
 public:
  UpdateCall(const CallName& name, Op op, const TableInfo& table, bool shown,
             uint32_t end_steps, Lane& lane)
      : Call(name),
        op_(op),
        table_(table),
        shown_(shown),
        end_steps_(end_steps),
        stream_(lane.sums),
        memory_(lane.rows),
        of_request_(KeysOfChunk(table.dim)) {}

  bool HasRequest(uint32_t server, size_t request) override {
    if (!again_.empty()) return request < again_[server].size();
    const size_t size = stream_.Reach(server, (request + 1) * of_request_);
    // A server without keys is told that steps are over.
    if (size == 0) return request == 0 && end_steps_ > 0;
    return size > request * of_request_;
  }

  void Ask(uint32_t server, size_t request, RequestHead& head,
           std::vector<ConstBytes>& parts) override {
    // What is run again is not one call any more: each request is for itself.
    const bool again = !again_.empty();
    if (again) request = again_[server][request];
    const size_t begin = request * of_request_;
    // One more, to know whether it is the last.
    const size_t end = stream_.Reach(server, begin + of_request_ + 1);
    const size_t count = std::min(end - begin, of_request_);
    head.op = op_;
    head.table = table_.id;
    head.count = count;
    if (request > 0 && !again) head.flags |= kFlagContinues;
    if (begin + count == end) {
      head.end_steps = end_steps_;
    } else if (!again) {
      // How many keys are this server's is known when all were looked at.
      const size_t left = name().count - begin - count;
      head.num_following = static_cast<uint32_t>(
          std::min<size_t>((left + of_request_ - 1) / of_request_,
                           std::numeric_limits<uint32_t>::max()));
    }
    if (count == 0) return;
    parts.push_back(std::as_bytes(stream_.keys(server, begin, count)));
    parts.push_back(
        std::as_bytes(stream_.values(server, begin, count, memory_)));
    if (!shown_) return;
    head.flags |= kFlagShows;
    parts.push_back(std::as_bytes(stream_.shows(server, begin, count)));
    parts.push_back(std::as_bytes(stream_.clicks(server, begin, count)));
  }

  void BeginAgain(uint32_t server, size_t answered,
                  std::span<const size_t> refused) override {
    if (again_.size() <= server) again_.resize(server + 1);
    std::vector<size_t>& now = again_[server];
    std::vector<size_t> before = std::move(now);
    if (before.empty()) {
      const size_t size = stream_.Reach(server, SIZE_MAX);
      before.resize((size + of_request_ - 1) / of_request_);
      std::iota(before.begin(), before.end(), 0);
    }
    now.assign(before.begin() + static_cast<ptrdiff_t>(answered), before.end());
    for (const size_t request : refused) now.push_back(before[request]);
  }

  void CountUpdates(uint32_t, size_t, UpdateCounts& counts) override {
    ++counts[table_.id];
  }

 private:
  const Op op_;
  const TableInfo& table_;
  const bool shown_;
  const uint32_t end_steps_;
  SumStream& stream_;
  std::vector<float>& memory_;
  const size_t of_request_;
  // By server, the requests of a call that is run again, as they were first
  // numbered; empty: it is not.
  std::vector<std::vector<size_t>> again_;
};

Status PsClient::Update(Op op, const char* what, TableId id,
                        std::span<const ValuesOfKeys> parts,
                        std::span<const float> shows,
                        std::span<const float> clicks, uint32_t end_steps,
                        Deadline deadline) {
  const std::shared_ptr<const Servers> servers = this->servers();
  const TableInfo* table = nullptr;
  size_t num_keys = 0;
  for (const ValuesOfKeys& part : parts) {
    ASSIGN_OR_RETURN(table, SparseInfo(*servers, id, part.keys.size(),
                                       part.values.size(), what));
    num_keys += part.keys.size();
  }
  if (table == nullptr || (num_keys == 0 && end_steps == 0)) return OkStatus();
  Lanes::Lease lane(lanes_);
  lane->sums.Begin(parts, table->dim, num_servers(), shows, clicks);
  UpdateCall call({what, table->name, num_keys, "keys"}, op, *table,
                  !shows.empty(), end_steps, *lane);
  return lanes_.Run(*lane, call, deadline);
}

Status PsClient::Push(TableId table, std::span<const Key> keys,
                      std::span<const float> gradients, Deadline deadline,
                      uint32_t end_steps) {
  const ValuesOfKeys part{keys, gradients};
  return PushParts(table, std::span(&part, 1), deadline, end_steps);
}

Status PsClient::PushParts(TableId table, std::span<const ValuesOfKeys> parts,
                           Deadline deadline, uint32_t end_steps) {
  return Update(Op::kPush, "push", table, parts, {}, {}, end_steps, deadline);
}

Status PsClient::PushShown(TableId table, std::span<const Key> keys,
                           std::span<const float> gradients,
                           std::span<const float> shows,
                           std::span<const float> clicks, Deadline deadline,
                           uint32_t end_steps) {
  return UpdateShown(Op::kPush, table, keys, gradients, shows, clicks,
                     end_steps, deadline);
}

Status PsClient::AccumulateShown(TableId table, std::span<const Key> keys,
                                 std::span<const float> gradients,
                                 std::span<const float> shows,
                                 std::span<const float> clicks,
                                 Deadline deadline) {
  return UpdateShown(Op::kAccumulate, table, keys, gradients, shows, clicks, 0,
                     deadline);
}

Status PsClient::UpdateShown(Op op, TableId table, std::span<const Key> keys,
                             std::span<const float> gradients,
                             std::span<const float> shows,
                             std::span<const float> clicks, uint32_t end_steps,
                             Deadline deadline) {
  if (shows.size() != keys.size() || clicks.size() != keys.size()) {
    return InvalidArgument("worker ", options_.worker, ": push of ",
                           keys.size(), " keys with ", shows.size(),
                           " shows and ", clicks.size(), " clicks");
  }
  const ValuesOfKeys part{keys, gradients};
  return Update(op, "push", table, std::span(&part, 1), shows, clicks,
                end_steps, deadline);
}

Status PsClient::Accumulate(TableId table, std::span<const Key> keys,
                            std::span<const float> gradients,
                            Deadline deadline) {
  const ValuesOfKeys part{keys, gradients};
  return AccumulateParts(table, std::span(&part, 1), deadline);
}

Status PsClient::AccumulateParts(TableId table,
                                 std::span<const ValuesOfKeys> parts,
                                 Deadline deadline) {
  return Update(Op::kAccumulate, "push", table, parts, {}, {}, 0, deadline);
}

Status PsClient::Add(TableId id, std::span<const Key> keys,
                     std::span<const float> deltas, Deadline deadline,
                     Unfinished* unfinished) {
  const std::shared_ptr<const Servers> servers = this->servers();
  ASSIGN_OR_RETURN(const TableInfo* const table,
                   SparseInfo(*servers, id, keys.size(), deltas.size(), "add"));
  if (keys.empty()) return OkStatus();
  auto begun = std::make_unique<Unfinished::State>(lanes_);
  begun->rows = {keys, deltas};
  begun->servers = servers;
  Lane& lane = *begun->lane;
  lane.sums.Begin(std::span(&begun->rows, 1), table->dim, num_servers());
  begun->call = std::make_unique<UpdateCall>(
      CallName{"add", table->name, keys.size(), "keys"}, Op::kAdd, *table,
      /*shown=*/false, /*end_steps=*/0, lane);
  return RunAdd(std::move(begun), unfinished, deadline);
}

Status PsClient::RunAdd(std::unique_ptr<Unfinished::State> begun,
                        Unfinished* unfinished, Deadline deadline) {
  const Status status = lanes_.Run(*begun->lane, *begun->call, deadline);
  if (!status.ok() && unfinished != nullptr) {
    unfinished->state_ = std::move(begun);
  }
  return status;
}

Status PsClient::GoOn(Unfinished& unfinished, Deadline deadline) {
  if (!unfinished) return OkStatus();
  Unfinished::State& state = *unfinished.state_;
  RETURN_IF_ERROR(lanes_.RunAgain(*state.lane, *state.call, deadline));
  unfinished.Drop();
  return OkStatus();
}

Result<std::vector<Key>> PsClient::TakeChanges(TableId table,
                                               Deadline deadline) {
  std::vector<Key> keys;
  RequestHead head;
  head.op = Op::kTakeChanges;
  head.table = table;
  head.count = kMaxChanges;
  bool more = true;
  while (more) {
    more = false;
    RETURN_IF_ERROR(
        RunOnAll({"changes of", TableName(table)}, head, "", deadline,
                 [&](uint32_t, std::span<const std::byte> bytes) {
                   const size_t before = keys.size();
                   const size_t count = bytes.size() / sizeof(Key);
                   keys.resize(before + count);
                   if (count > 0) {
                     std::memcpy(&keys[before], bytes.data(), bytes.size());
                   }
                   more = more || count == kMaxChanges;
                   return OkStatus();
                 }));
  }
  return keys;
}

}  // namespace fleet::ps
