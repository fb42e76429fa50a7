// SPDX-License-Identifier: Apache-2.0

// What workers and servers say to each other, as docs/wire.md describes it. A
// connection carries requests one way and their replies, in the same order, the
// other.

#ifndef FLEET_PS_WIRE_H_
#define FLEET_PS_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fleet/base/bytes.h"
#include "fleet/base/status.h"
#include "fleet/table/table_spec.h"

namespace fleet::ps {

using table::TableId;

enum class Op : uint32_t {
  kHello = 1,
  kDescribe = 2,
  kPull = 3,
  kPush = 4,        // apply the rule on arrival
  kAccumulate = 5,  // sum until the step ends
  kAdd = 6,         // add; others are told (geo)
  kAssign = 7,
  kTakeChanges = 8,
  // 9 is free: it was a call that nobody made.
  kFinishStep = 10,  // all workers: apply what was accumulated
  kBarrier = 11,
  kSave = 12,
  kLoad = 13,
  kShrink = 14,
  kStats = 15,
  kBye = 16,
  kCreate = 17,
  kGather = 18,  // all workers: what each gives, to all
  // At server 0, for saves that are one cut: see Roster.
  kBeginTurn = 19,
  kEndTurn = 20,
  kBeginCut = 21,
  kEndCut = 22,
  kSetRate = 23,
  // Saves and loads of all tables: kCutSave and kSave or kLoad, a table each,
  // are between.
  kBeginSave = 24,
  kCommitSave = 25,  // at server 0: the manifest, in parts
  kEndSave = 26,
  kBeginLoad = 27,
  kEndLoad = 28,
  kJoin = 29,     // a worker that is back: from which round of a barrier on
  kBeat = 30,     // a sign of life, and the answer is one
  kCutSave = 31,  // the moment of a save that has begun; writing begins
  // Only in logs (request_log.h): rows whose time is over are erased; the sums
  // of a worker are left out; a round of a barrier is over; an incarnation of a
  // worker is here; an update has failed.
  kExpire = 1000,
  kDrop = 1001,
  kRounds = 1002,
  kEnter = 1003,
  kFailed = 1004,
};

// Keys or values follow in the same message.
struct RequestHead {
  Op op{};
  TableId table{};
  uint64_t sequence = 0;  // of this worker on this lane, from 1
  uint64_t count = 0;     // keys, or sections of dense tables
  uint64_t round = 0;     // of a barrier (~0: the next), a turn or a cut
  uint32_t flags = 0;
  uint32_t timeout_ms = 0;  // for calls in which the server waits
  uint32_t end_steps = 0;   // kPush: so many steps are over after it
  // Updates: so many requests of the same call may follow to this server, none
  // of them larger than this one, or, of dense tables, than kChunkByteSize. The
  // server takes room for all in its log, so that a disk that is full fails the
  // first, when nothing is done yet.
  uint32_t num_following = 0;
};
static_assert(sizeof(RequestHead) == 48 && base::Plain<RequestHead>);

// What a request says of some values of one dense table. Pulls and updates of
// dense tables are sections, then, in updates, their values.
struct DenseSection {
  TableId table{};
  uint32_t flags = 0;
  uint64_t offset = 0;  // in the server's part
  uint64_t count = 0;   // values
};
static_assert(sizeof(DenseSection) == 24 && base::Plain<DenseSection>);
// Sections of one request.
inline constexpr size_t kMaxSections = 512;

inline constexpr uint32_t kFlagNotTraining = 1;  // kPull
inline constexpr uint32_t kFlagCounts = 2;       // kPull: u32 each behind keys
inline constexpr uint32_t kFlagShows = 8;        // f32 show, f32 click
inline constexpr uint32_t kFlagDense = 32;       // sections of dense tables
inline constexpr uint32_t kFlagIdle = 64;        // kFinishStep: no gradients
// Updates and kFinishStep: not the first request of its call. It is refused
// when one before it found no room in the log.
inline constexpr uint32_t kFlagContinues = 128;
// Flags of a section:
inline constexpr uint32_t kFlagLast = 4;    // the gradient is whole
inline constexpr uint32_t kFlagIfNew = 16;  // kAssign: unless it has values

// The barrier at which steps end.
inline constexpr char kStepBarrier[] = "step";

// The lane of a worker's first connection to a server, which carries signs of
// life alone: by it each sees that the other lives.
inline constexpr uint32_t kLifeLane = ~uint32_t{0};

struct ReplyHead {
  uint64_t sequence = 0;
  uint32_t code = 0;  // of fleet::StatusCode; if not 0, a text follows
  uint32_t flags = 0;
  uint64_t count = 0;  // bytes that follow
};
static_assert(sizeof(ReplyHead) == 24 && base::Plain<ReplyHead>);

inline constexpr uint32_t kReplyApart = 1;      // in a message of its own
inline constexpr uint32_t kReplyCutWanted = 2;  // turns should end

// What is larger comes apart, so that it can be received where it belongs.
inline constexpr size_t kMaxInline = 4096;

// The largest answer whose size the asker does not know: of what is no row. A
// part of the manifest of a save is the largest; it has 200 bytes for a file.
inline constexpr uint64_t kMaxAnswerByteSize = uint64_t{256} << 20;

// Parts of a large request: large enough that a head costs nothing, small
// enough that they stay in the second-level cache on both sides.
inline constexpr size_t kChunkByteSize = 128 << 10;
inline constexpr size_t kMaxChunkKeys = 4096;

// How many keys of rows with `dim` values go into a part.
inline size_t KeysOfChunk(size_t dim) {
  const size_t keys = kChunkByteSize / (dim * sizeof(float));
  return keys < 1 ? 1 : keys > kMaxChunkKeys ? kMaxChunkKeys : keys;
}
inline constexpr size_t kChunkValues = kChunkByteSize / sizeof(float);

// A table as kDescribe tells it.
struct TableInfo {
  TableId id{};
  std::string name;
  bool dense = false;
  uint64_t dim = 0;    // sparse: values of a row
  uint64_t size = 0;   // dense: of the whole parameter
  uint64_t begin = 0;  // dense: what this server has of it
  uint64_t end = 0;
  bool initialized = true;  // dense: somebody has assigned or loaded values
};

struct ServerInfo {
  uint32_t server = 0;
  uint32_t num_servers = 0;
  uint32_t num_workers = 0;
  uint64_t epoch = 0;
  // Server 0's is the job's: it ascends when the server or a worker is started
  // again.
  uint64_t view = 0;
  std::string local_name;  // for shared memory; empty: none
  std::vector<TableInfo> tables;
};

std::string Encode(const ServerInfo& info);
Result<ServerInfo> DecodeServerInfo(std::string_view bytes);

}  // namespace fleet::ps

#endif  // FLEET_PS_WIRE_H_
