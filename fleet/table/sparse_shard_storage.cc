// SPDX-License-Identifier: Apache-2.0

// Rows of a shard to and from files and the cold store, and out of it.

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "fleet/base/exceptions.h"
#include "fleet/table/row_copy.h"
#include "fleet/table/sparse_shard.h"

namespace fleet::table {
namespace {

void SortUnique(std::vector<Key>& keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
}

}  // namespace

Status SparseShard::FetchFromDisk(const KeyBatch& batch, size_t begin,
                                  size_t n) {
  // First, since it may push out rows of this very batch.
  RETURN_IF_ERROR(MakeRoomInMemory(n));
  std::array<Key, kBatch> absent;
  size_t num_absent = 0;
  for (size_t i = 0; i < n; ++i) {
    const Key key = batch.keys[batch.place(begin + i)];
    if (index_.Find(key) == nullptr) absent[num_absent++] = key;
  }
  if (num_absent == 0 || num_cold_rows_ == 0) return OkStatus();
  std::sort(absent.begin(), absent.begin() + num_absent);
  num_absent = static_cast<size_t>(
      std::unique(absent.begin(), absent.begin() + num_absent) -
      absent.begin());

  const size_t record = layout_.stride + 1;
  std::vector<float> records(num_absent * record);
  std::array<float*, kBatch> into;
  std::array<bool, kBatch> found{};
  for (size_t i = 0; i < num_absent; ++i) into[i] = &records[i * record];
  RETURN_IF_ERROR(cold_->Get(std::span(absent.data(), num_absent),
                             std::span(into.data(), num_absent),
                             std::span(found.data(), num_absent)));
  RETURN_IF_ERROR(index_.Reserve(num_absent));
  RETURN_IF_ERROR(arena_.Reserve(num_absent));
  for (size_t i = 0; i < num_absent; ++i) {
    if (!found[i]) continue;
    const Key key = absent[i];
    const uint32_t row = MakeBlankRow(key);
    *index_.FindOrInsert(key, index_.Home(HashKey(key))) = row;
    std::memcpy(arena_.at(row), into[i], layout_.stride * sizeof(float));
    flags_[row] = kUsed;
    // MakeBlankRow has marked it.
    const uint32_t mark = LoadInteger(into[i], layout_.stride);
    const uint64_t bit = uint64_t{1} << (row % 64);
    const bool in_no_save = mark >= first_mark_;
    if (!in_no_save || (saving_ && mark != mark_)) changed_[row / 64] &= ~bit;
    if (saving_) {
      if (in_save_.size() < changed_.size()) in_save_.resize(changed_.size());
      const bool is_its = in_no_save && mark != mark_;
      in_save_[row / 64] = (in_save_[row / 64] & ~bit) | (is_its ? bit : 0);
    }
    --num_cold_rows_;
  }
  return OkStatus();
}

Status SparseShard::WriteToDisk(std::span<const uint32_t> rows) {
  const size_t record = layout_.stride + 1;
  std::vector<float> records(rows.size() * record);
  std::vector<Key> keys(rows.size());
  std::vector<const float*> from(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    float* to = &records[i * record];
    std::memcpy(to, arena_.at(rows[i]), layout_.stride * sizeof(float));
    StoreInteger(to, layout_.stride,
                 IsMarked(changed_, rows[i])   ? mark_
                 : IsMarked(in_save_, rows[i]) ? mark_ - 1
                                               : 0);
    keys[i] = keys_[rows[i]];
    from[i] = to;
  }
  RETURN_IF_ERROR(cold_->Put(keys, from));
  for (uint32_t row : rows) {
    flags_[row] &= static_cast<uint8_t>(~kNotOnDisk);
  }
  return OkStatus();
}

// A hand goes round over the rows: one that was used since it last came by gets
// another round, others leave. Many at a time, since a write costs about the
// same for one row and for a thousand.
Status SparseShard::MakeRoomInMemory(size_t n) {
  const uint64_t limit =
      setting_->options.disk->memory_byte_size / setting_->options.num_shards;
  const uint64_t row_byte_size = layout_.stride * sizeof(float) + 9 + 15;
  const uint64_t max_rows =
      std::max<uint64_t>(2 * kBatch, limit / row_byte_size);
  // Rows that left already and are kept for a cut are counted there.
  const size_t size =
      arena_.size() - (cut_ == nullptr ? 0 : cut_->num_numbers_kept());
  if (size + n <= max_rows) return OkStatus();
  const size_t num_to_leave =
      std::min<size_t>(size, n + std::min<size_t>(1024, max_rows / 4));
  std::vector<uint32_t> leaving;
  std::vector<uint32_t> unwritten;
  while (leaving.size() < num_to_leave) {
    if (clock_hand_ >= arena_.end()) clock_hand_ = 0;
    const uint32_t row = clock_hand_++;
    const uint32_t* value = index_.Find(keys_[row]);
    // A free row keeps the key that it had.
    if (value == nullptr || *value != row) continue;
    if ((flags_[row] & kLeaving) != 0) continue;
    if ((flags_[row] & kUsed) != 0) {
      flags_[row] &= static_cast<uint8_t>(~kUsed);
      continue;
    }
    if ((flags_[row] & kNotOnDisk) != 0) unwritten.push_back(row);
    leaving.push_back(row);
    flags_[row] |= kLeaving;
  }
  for (uint32_t row : leaving) {
    flags_[row] &= static_cast<uint8_t>(~kLeaving);
  }
  RETURN_IF_ERROR(WriteToDisk(unwritten));
  for (uint32_t row : leaving) EraseFromMemory(keys_[row], row);
  num_cold_rows_ += leaving.size();
  return OkStatus();
}

Status SparseShard::EraseKeys(const KeyBatch& batch) {
  std::vector<Key> keys;
  keys.reserve(batch.count);
  for (size_t i = 0; i < batch.count; ++i) {
    keys.push_back(batch.keys[batch.place(i)]);
  }
  SortUnique(keys);
  for (Key key : keys) {
    const uint32_t* value = index_.Find(key);
    if (value != nullptr && *value < kCandidate) {
      EraseFromMemory(key, *value);
    } else if (cold_ != nullptr) {
      ASSIGN_OR_RETURN(const bool found, IsOnDisk(key));
      if (found) --num_cold_rows_;
    }
  }
  return cold_ == nullptr ? OkStatus() : cold_->Erase(keys);
}

Result<bool> SparseShard::IsOnDisk(Key key) {
  std::vector<float> record(layout_.stride + 1);
  float* into = record.data();
  bool found = false;
  RETURN_IF_ERROR(cold_->Get(std::span(&key, 1), std::span(&into, 1),
                             std::span(&found, 1)));
  return found;
}

void SparseShard::RecordErased(std::span<const Key> keys) {
  if (!records_erased_) return;
  erased_.insert(erased_.end(), keys.begin(), keys.end());
  // A key may come and go many times between two saves.
  if (erased_.size() < 2 * num_distinct_erased_ + 4096) return;
  SortUnique(erased_);
  num_distinct_erased_ = erased_.size();
}

Status SparseShard::Sweep(SweepKind kind,
                          const std::function<bool(float* row)>& gone,
                          uint64_t* num_erased) {
  const bool changes = kind == SweepKind::kChanges;
  std::vector<std::pair<Key, uint32_t>> in_memory;
  index_.ForEach([&](Key key, uint32_t value) {
    if (value >= kCandidate) return;
    if (changes) BeforeChange(key, value);
    if (gone(arena_.at(value))) in_memory.emplace_back(key, value);
    if (changes && cold_ != nullptr) flags_[value] |= kNotOnDisk;
  });
  std::vector<Key> erased;
  if (cold_ != nullptr) {
    // A copy of a row that is in memory is older than that; leave it.
    std::vector<float> record;
    RETURN_IF_ERROR(
        cold_->ForEach([&](Key key, std::span<const float> stored) -> Status {
          if (index_.Find(key) != nullptr) return OkStatus();
          record.assign(stored.begin(), stored.end());
          if (gone(record.data())) {
            erased.push_back(key);
            return OkStatus();
          }
          if (!changes) return OkStatus();
          const float* row = record.data();
          return cold_->Put(std::span(&key, 1), std::span(&row, 1));
        }));
  }
  const size_t num_cold = erased.size();
  for (const auto& [key, row] : in_memory) erased.push_back(key);
  // First the disk, which may refuse: a row whose copy stayed there would be
  // back.
  if (cold_ != nullptr) RETURN_IF_ERROR(cold_->Erase(erased));
  num_cold_rows_ -= num_cold;
  for (const auto& [key, row] : in_memory) EraseFromMemory(key, row);
  *num_erased += erased.size();
  RecordErased(erased);
  return RecordChange({erased.data(), nullptr, erased.size()}, kNobody);
}

Status SparseShard::Clear() {
  if (cold_ != nullptr) {
    std::vector<Key> keys;
    RETURN_IF_ERROR(cold_->ForEach([&](Key key, std::span<const float>) {
      keys.push_back(key);
      return OkStatus();
    }));
    RETURN_IF_ERROR(cold_->Erase(keys));
  }
  GiveUpCut(FailedPrecondition(
      "the rows were replaced before all of them were written"));
  index_.Clear();
  arena_.Clear();
  num_candidates_ = 0;
  changed_ = {};
  in_save_ = {};
  saving_ = false;
  records_erased_ = false;
  erased_ = {};
  erased_in_save_ = {};
  num_distinct_erased_ = 0;
  trained_ = false;
  entering_.reset();
  keys_ = {};
  flags_ = {};
  clock_hand_ = 0;
  num_cold_rows_ = 0;
  waiting_.clear();
  for (KeySet& changes : changes_for_) changes.Clear();
  return OkStatus();
}

Status SparseShard::BeginCut(const CutOptions& options) {
  EndCut();
  cut_given_up_ = OkStatus();
  ColdCut cold;
  if (cold_ != nullptr) {
    cold = {cold_->Snapshot(), num_cold_rows_, first_mark_};
  }
  ASSIGN_OR_RETURN(
      cut_, ShardCut::Make(options, arena_, index_.size() - num_candidates_,
                           std::move(cold)));
  return OkStatus();
}

void SparseShard::EndCut() {
  if (cut_ != nullptr) cut_->End(arena_);
  cut_.reset();
}

void SparseShard::GiveUpCut(const Status& why) {
  if (cut_ == nullptr) return;
  EndCut();
  cut_given_up_ = why;
}

Result<ShardCut*> SparseShard::CutOf(uint64_t number) const {
  if (cut_ != nullptr && cut_->options().number == number) return cut_.get();
  RETURN_IF_ERROR(cut_given_up_);
  return FailedPrecondition("the save has ended, or another one has begun");
}

void SparseShard::PutAside(Key key, uint32_t row) {
  if (!cut_->Needs(key, row) || !IsInCut(row)) return;
  // Training goes on without the save rather than the other way round.
  const Status done = cut_->PutAside(row, arena_.at(row));
  if (!done.ok()) GiveUpCut(done);
}

void SparseShard::BeforeCandidateChanges(Key key,
                                         std::optional<uint64_t> count) {
  const Status listed =
      base::CatchExceptions([&] { return cut_->CandidateChanges(key, count); });
  if (!listed.ok()) GiveUpCut(listed);
}

bool SparseShard::ListCut() {
  // As many places of the index as a request of a worker has keys, or fewer.
  constexpr uint64_t kPlaces = 4096;
  if (cut_->listed()) return true;
  const uint64_t first = cut_->next_hash();
  const uint64_t capacity = std::max<uint64_t>(1, index_.capacity());
  const uint64_t hashes = UINT64_MAX / capacity * kPlaces;
  const bool last = capacity <= kPlaces || UINT64_MAX - first <= hashes;
  const uint64_t end = last ? UINT64_MAX : first + hashes;
  index_.ForEachOfHashes(first, end, [&](Key key, uint32_t value) {
    if (value >= kCandidate) {
      cut_->ListCandidate(key, value - kCandidate);
    } else if (IsInCut(value)) {
      cut_->List(key, value);
    }
  });
  if (last) {
    cut_->AllListed();
  } else {
    cut_->ListedBelow(end + 1);
  }
  return last;
}

Status SparseShard::TakeScore(Key key, float score) {
  const auto less = [&](float* row) {
    float& left = row[layout_.delta_score];
    left = std::max(0.0f, left - score);
  };
  const uint32_t* const value = index_.Find(key);
  if (value != nullptr) {
    if (*value >= kCandidate) return OkStatus();
    less(arena_.at(*value));
    if (cold_ != nullptr) flags_[*value] |= kNotOnDisk;
    return OkStatus();
  }
  if (cold_ == nullptr) return OkStatus();
  std::vector<float> record(layout_.stride + 1);
  float* const into = record.data();
  bool found = false;
  RETURN_IF_ERROR(cold_->Get(std::span(&key, 1), std::span(&into, 1),
                             std::span(&found, 1)));
  if (!found) return OkStatus();
  less(into);
  const float* const row = into;
  return cold_->Put(std::span(&key, 1), std::span(&row, 1));
}

void SparseShard::BeginSave() {
  if (saving_) EndSave(false);
  saving_ = true;
  in_save_.assign(changed_.size(), 0);
  std::swap(in_save_, changed_);
  records_erased_ = true;
  erased_in_save_ = std::exchange(erased_, {});
  num_distinct_erased_ = 0;
  ++mark_;
}

void SparseShard::EndSave(bool counts) {
  if (!saving_) return;
  saving_ = false;
  if (counts) {
    first_mark_ = mark_;
  } else {
    for (size_t i = 0; i < in_save_.size(); ++i) changed_[i] |= in_save_[i];
    erased_.insert(erased_.end(), erased_in_save_.begin(),
                   erased_in_save_.end());
  }
  in_save_ = {};
  erased_in_save_ = {};
}

void SparseShard::ClearMarks() {
  BeginSave();
  EndSave(true);
}

Result<std::vector<std::span<std::byte>>> SparseShard::ReserveRows(
    size_t count) {
  // With a cold store most of them leave memory again.
  if (cold_ != nullptr) return std::vector<std::span<std::byte>>();
  RETURN_IF_ERROR(arena_.Reserve(count));
  return arena_.Unused(count);
}

Status SparseShard::ReserveIndex(size_t count) {
  return cold_ != nullptr ? OkStatus() : index_.Reserve(count);
}

Status SparseShard::PutRows(const KeyBatch& batch, const float* rows) {
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(Locate(batch, begin, n, Missing::kBlank, nullptr, located));
    WithRowSize(layout_.stride, [&](auto copy) {
      for (size_t i = 0; i < n; ++i) {
        copy(arena_.at(located[i]),
             rows + batch.place(begin + i) * layout_.stride);
      }
    });
    for (size_t i = 0; i < n; ++i) {
      MarkChanged(located[i]);
      changed_[located[i] / 64] &= ~(uint64_t{1} << (located[i] % 64));
    }
  }
  return OkStatus();
}

Status SparseShard::AddRows(size_t count, const KeyBatch& batch,
                            const float* rows) {
  // With a cold store most rows leave memory at once, and keys with them.
  if (cold_ != nullptr) return PutRows(batch, rows);
  if (!entering_.has_value()) {
    ASSIGN_OR_RETURN(entering_, EnteringKeys::Make(count));
  }
  auto enter = [this](std::span<const EnteringKeys::Entry> entries) {
    return Enter(entries);
  };
  uint32_t added[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    if (!CheckRoom().ok()) {
      // Its message counts rows that can be found.
      RETURN_IF_ERROR(FinishAdding());
      return CheckRoom();
    }
    RETURN_IF_ERROR(arena_.Reserve(n));
    for (size_t i = 0; i < n; ++i) {
      added[i] = arena_.Add();
      if (changed_.size() * 64 <= added[i]) {
        changed_.resize(changed_.size() + 1024);
      }
    }
    WithRowSize(layout_.stride, [&](auto copy) {
      for (size_t i = 0; i < n; ++i) {
        copy(arena_.at(added[i]),
             rows + batch.place(begin + i) * layout_.stride);
      }
    });
    for (size_t i = 0; i < n; ++i) {
      RETURN_IF_ERROR(
          entering_->Add(batch.keys[batch.place(begin + i)], added[i], enter));
    }
  }
  return OkStatus();
}

Status SparseShard::FinishAdding() {
  if (!entering_.has_value()) return OkStatus();
  const Status entered =
      entering_->TakeAll([this](std::span<const EnteringKeys::Entry> entries) {
        return Enter(entries);
      });
  entering_.reset();
  return entered;
}

Status SparseShard::Enter(std::span<const EnteringKeys::Entry> entries) {
  constexpr size_t kAhead = 16;
  RETURN_IF_ERROR(index_.Reserve(entries.size()));
  auto home = [&](size_t i) { return index_.Home(HashKey(entries[i].key)); };
  for (size_t i = 0; i < std::min(kAhead, entries.size()); ++i) {
    index_.Prefetch(home(i));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i + kAhead < entries.size()) index_.Prefetch(home(i + kAhead));
    uint32_t* value = index_.FindOrInsert(entries[i].key, home(i));
    if (*value == KeyIndex::kNone) [[likely]] {
      *value = entries[i].row;
      continue;
    }
    // The key had a row, or only a count of pulls. The new row takes its place.
    if (*value < kCandidate) {
      arena_.Free(*value);
    } else {
      --num_candidates_;
    }
    *value = entries[i].row;
  }
  return OkStatus();
}

}  // namespace fleet::table
