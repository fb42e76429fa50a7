// SPDX-License-Identifier: Apache-2.0

// Sparse tables to disk, while requests go on.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "fleet/base/exceptions.h"
#include "fleet/base/pace.h"
#include "fleet/table/locked_shards.h"
#include "fleet/table/rows_file.h"
#include "fleet/table/sparse_table.h"

namespace fleet::table {
namespace {

// Rows that are copied under the lock of a shard at a time: some ten
// microseconds, about as long as a request of a worker is in there.
constexpr size_t kPiece = 512;

// Rows that change during a save may take a quarter of the table's memory, so
// that a server needs not much more memory than between saves, and at least so
// much that a save of a small table never holds anybody up.
constexpr uint64_t kLeastKeptByteSize = uint64_t{64} << 20;

bool ScoreWanted(const ShowClickOptions& options, const RowLayout& layout,
                 const float* row) {
  return Score(options, layout, row) >= options.base_threshold &&
         row[layout.delta_score] >= options.delta_threshold &&
         LoadInteger(row, layout.unseen_days) <= options.delta_keep_days;
}

// A mutex is not fair: who gives it back and takes it again has it before those
// that wait are awake.
void LetOthersGoFirst(const LockedShard& shard) {
  constexpr int kTimes = 100;
  for (int i = 0; i < kTimes; ++i) {
    if (shard.num_waiting.load(std::memory_order_relaxed) == 0) return;
    std::this_thread::yield();
  }
}

class TextFile final {
 public:
  TextFile(base::AtomicFile file, size_t dim)
      : file_(std::move(file)), dim_(dim) {}

  Status Add(Key key, const float* row) {
    text_ += std::to_string(key);
    char number[32];
    for (size_t k = 0; k < dim_; ++k) {
      const int size = std::snprintf(number, sizeof(number), "%c%.9g",
                                     k == 0 ? '\t' : ',', double{row[k]});
      text_.append(number, static_cast<size_t>(size));
    }
    text_ += '\n';
    if (text_.size() < (1 << 20)) return OkStatus();
    RETURN_IF_ERROR(file_.Append(text_));
    text_.clear();
    return OkStatus();
  }
  Status Commit() {
    RETURN_IF_ERROR(file_.Append(text_));
    return file_.Commit();
  }

 private:
  base::AtomicFile file_;
  const size_t dim_;
  std::string text_;
};

}  // namespace

// The file of a shard. Rows are listed under its lock, some thousand keys at a
// time, sorted without, and copied under it, some hundred at a time.
class SparseTable::ShardFile final {
 public:
  ShardFile(LockedShard& shard, const ShardSetting& setting,
            const Saving& saving, std::optional<TextFile>& text,
            std::function<uint64_t()> num_requests)
      : shard_(shard),
        setting_(setting),
        saving_(saving),
        text_(text),
        num_requests_(std::move(num_requests)),
        pace_(num_requests_) {}

  Status Write(const base::Path& path, RowsHeader& header) {
    RETURN_IF_ERROR(List());
    RETURN_IF_ERROR(Choose());
    header.num_rows = num_rows_;
    header.num_erased = erased_.size();
    // The thread that writes has a pace of its own.
    std::optional<base::Pace> pace;
    ASSIGN_OR_RETURN(RowsWriter writer,
                     RowsWriter::Create(path, header, [this, &pace] {
                       if (!pace.has_value()) pace.emplace(num_requests_);
                       return !hurries_ && pace->Rest();
                     }));
    writer_ = &writer;
    RETURN_IF_ERROR(
        ForEach([this](std::span<const KeyAndRow> pairs) { return Add(pairs); },
                [this](Key key, std::span<const float> record) {
                  return IsWanted(record) ? Add(key, record) : OkStatus();
                }));
    // What was kept goes back before the disk has all.
    RETURN_IF_ERROR(Locked([](ShardCut& cut, SparseShard& rows) {
      (void)cut;
      rows.EndCut();
      return OkStatus();
    }));
    for (const Key key : erased_) RETURN_IF_ERROR(writer.AddErased(key));
    RETURN_IF_ERROR(writer.Commit());
    byte_size_ = writer.byte_size();
    checksum_ = writer.checksum();
    return OkStatus();
  }

  const std::vector<std::pair<Key, uint64_t>>& candidates() const {
    return candidates_;
  }
  uint64_t byte_size() const { return byte_size_; }
  uint32_t checksum() const { return checksum_; }
  uint64_t num_put_aside() const { return num_put_aside_; }
  uint64_t most_kept() const { return most_kept_; }

 private:
  bool is_delta() const { return saving_.options.id.kind == SaveKind::kDelta; }
  bool by_score() const {
    return saving_.options.filter == SaveFilter::kByScore;
  }

  // Calls work(cut, rows) under the lock, while it is this save's.
  template <typename Work>
  Status Locked(const Work& work) {
    LetOthersGoFirst(shard_);
    base::MutexLock lock(shard_.mutex);
    ASSIGN_OR_RETURN(ShardCut* const cut, shard_.rows->CutOf(saving_.number));
    num_put_aside_ = cut->num_put_aside();
    most_kept_ = cut->most_kept();
    hurries_ = cut->num_kept() > cut->options().max_kept / 2;
    Status done = work(*cut, *shard_.rows);
    TellWhetherFull(shard_);
    return done;
  }

  Status List() {
    bool listed = false;
    while (!listed) {
      RETURN_IF_ERROR(Locked([&](ShardCut&, SparseShard& rows) {
        listed = rows.ListCut();
        return OkStatus();
      }));
      if (!hurries_) (void)pace_.Rest();
    }
    RETURN_IF_ERROR(Locked([&](ShardCut& cut, SparseShard& rows) {
      list_ = cut.TakeList();
      cold_ = cut.TakeCold();
      candidates_ = cut.TakeCandidates();
      if (is_delta()) erased_ = rows.erased_in_save();
      return OkStatus();
    }));
    std::sort(erased_.begin(), erased_.end());
    erased_.erase(std::unique(erased_.begin(), erased_.end()), erased_.end());
    return list_.Bucket();
  }

  // What of the cut is written, and how much that is.
  Status Choose() {
    num_rows_ = list_.size() + cold_.num_rows;
    const bool all_of_cold =
        cold_.rows == nullptr || (!is_delta() && !by_score());
    if (erased_.empty() && all_of_cold && !by_score()) return OkStatus();
    num_rows_ = 0;
    std::vector<Key> present;
    auto see = [&](Key key) {
      if (std::binary_search(erased_.begin(), erased_.end(), key)) {
        present.push_back(key);
      }
    };
    RETURN_IF_ERROR(ForEach(
        [&](std::span<const KeyAndRow> pairs) -> Status {
          for (const KeyAndRow& pair : pairs) see(pair.key);
          if (!by_score()) {
            num_rows_ += pairs.size();
            return OkStatus();
          }
          const size_t before = chosen_.size();
          RETURN_IF_ERROR(Locked([&](ShardCut&, SparseShard& rows) {
            std::copy_if(pairs.begin(), pairs.end(),
                         std::back_inserter(chosen_),
                         [&](const KeyAndRow& pair) {
                           return HasScore(rows.ContentInCut(pair.row));
                         });
            return OkStatus();
          }));
          num_rows_ += chosen_.size() - before;
          return OkStatus();
        },
        [&](Key key, std::span<const float> record) {
          if (IsChanged(record) || by_score()) see(key);
          if (IsWanted(record)) ++num_rows_;
          return OkStatus();
        }));
    is_chosen_ = by_score();
    // Keys that were erased and have a row again are no erased ones.
    std::vector<Key> absent;
    std::set_difference(erased_.begin(), erased_.end(), present.begin(),
                        present.end(), std::back_inserter(absent));
    erased_ = std::move(absent);
    return OkStatus();
  }

  bool HasScore(const float* row) const {
    return ScoreWanted(*setting_.options.show_click, setting_.layout, row);
  }
  // Whether a row on disk, which has its mark behind it, is new to the save.
  bool IsChanged(std::span<const float> record) const {
    return LoadInteger(record.data(), setting_.layout.stride) >=
           cold_.first_mark;
  }
  bool IsWanted(std::span<const float> record) const {
    if (by_score()) return HasScore(record.data());
    return !is_delta() || IsChanged(record);
  }

  // Calls memory(pairs), with at most kPiece at a time, and cold(key, record)
  // for the rows of the cut, in the order of their keys.
  template <typename Memory, typename Cold>
  Status ForEach(const Memory& memory, const Cold& cold) {
    Key key = 0;
    std::span<const float> record;
    bool more = false;
    auto next = [&]() -> Status {
      ASSIGN_OR_RETURN(more, cold_.rows->Next(&key, &record));
      return OkStatus();
    };
    if (cold_.rows != nullptr) {
      cold_.rows->Rewind();
      RETURN_IF_ERROR(next());
    }
    auto take = [&](std::span<const KeyAndRow> pairs) -> Status {
      while (!pairs.empty()) {
        while (more && key < pairs[0].key) {
          RETURN_IF_ERROR(cold(key, record));
          RETURN_IF_ERROR(next());
        }
        // The disk has an older state of a row that is in memory, too.
        if (more && key == pairs[0].key) RETURN_IF_ERROR(next());
        size_t n = std::min(kPiece, pairs.size());
        while (more && n > 1 && pairs[n - 1].key >= key) --n;
        RETURN_IF_ERROR(memory(pairs.first(n)));
        pairs = pairs.subspan(n);
      }
      return OkStatus();
    };
    if (is_chosen_) {
      RETURN_IF_ERROR(take(chosen_));
    } else {
      for (size_t i = 0; i < SortedKeys::num_buckets(); ++i) {
        RETURN_IF_ERROR(take(list_.bucket(i)));
      }
    }
    while (more) {
      RETURN_IF_ERROR(cold(key, record));
      RETURN_IF_ERROR(next());
    }
    return OkStatus();
  }

  Status Add(std::span<const KeyAndRow> pairs) {
    return writer_->AddRows(
        pairs.size(), [&](std::span<Key> keys, std::span<float> rows) {
          const std::span<const KeyAndRow> now = pairs.first(keys.size());
          pairs = pairs.subspan(keys.size());
          RETURN_IF_ERROR(Locked([&](ShardCut&, SparseShard& shard) {
            shard.TakeFromCut(now, keys.data(), rows.data());
            return TakeScores(shard, keys, rows);
          }));
          if (!hurries_) (void)pace_.Rest();
          return AddText(keys, rows);
        });
  }
  Status Add(Key key, std::span<const float> record) {
    const std::span<const float> row = record.first(setting_.layout.stride);
    RETURN_IF_ERROR(writer_->AddRow(key, row));
    if (by_score() && is_delta()) {
      RETURN_IF_ERROR(Locked([&](ShardCut&, SparseShard& shard) {
        return TakeScores(shard, std::span(&key, 1), row);
      }));
    }
    return AddText(std::span(&key, 1), row);
  }

  // Scores count from here on, also where the save does not count in the end.
  Status TakeScores(SparseShard& shard, std::span<const Key> keys,
                    std::span<const float> rows) const {
    if (!by_score() || !is_delta()) return OkStatus();
    const RowLayout& layout = setting_.layout;
    for (size_t i = 0; i < keys.size(); ++i) {
      RETURN_IF_ERROR(shard.TakeScore(
          keys[i], rows[i * layout.stride + layout.delta_score]));
    }
    return OkStatus();
  }

  Status AddText(std::span<const Key> keys, std::span<const float> rows) {
    if (!text_.has_value()) return OkStatus();
    for (size_t i = 0; i < keys.size(); ++i) {
      RETURN_IF_ERROR(text_->Add(keys[i], &rows[i * setting_.layout.stride]));
    }
    return OkStatus();
  }

  LockedShard& shard_;
  const ShardSetting& setting_;
  const Saving& saving_;
  std::optional<TextFile>& text_;
  // The table's, of all shards.
  const std::function<uint64_t()> num_requests_;
  base::Pace pace_;
  // Half of what may be kept for the save is: rests would end with requests
  // that wait.
  std::atomic<bool> hurries_ = false;
  RowsWriter* writer_ = nullptr;

  SortedKeys list_;
  ColdCut cold_;
  std::vector<std::pair<Key, uint64_t>> candidates_;
  std::vector<Key> erased_;
  // Where scores decide: those of the list that are written.
  bool is_chosen_ = false;
  std::vector<KeyAndRow> chosen_;
  uint64_t num_rows_ = 0;

  uint64_t byte_size_ = 0;
  uint32_t checksum_ = 0;
  uint64_t num_put_aside_ = 0;
  uint64_t most_kept_ = 0;
};

Status SparseTable::BeginSave(const SaveOptions& options) {
  if (options.filter == SaveFilter::kByScore &&
      !setting_->options.show_click.has_value()) {
    return FailedPrecondition("table ", name(),
                              ": its rows have no shows and clicks");
  }
  const AllLocked all(shards_);
  Status begun = base::CatchExceptions([&] { return BeginSave(options, all); });
  if (begun.ok()) return begun;
  for (size_t i = 0; i < shards_.size(); ++i) {
    all[i].EndCut();
    all[i].EndSave(false);
  }
  return Named(begun, "save", 0);
}

Status SparseTable::BeginSave(const SaveOptions& options,
                              const AllLocked& all) {
  Saving begun;
  begun.options = options;
  begun.options.cut = nullptr;
  {
    base::MutexLock lock(saving_mutex_);
    begun.number = saving_.number + 1;
  }
  uint64_t byte_size = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    byte_size += all[i].counters().byte_size;
  }
  const uint64_t max_kept = options.max_kept_byte_size != 0
                                ? options.max_kept_byte_size
                                : std::max(kLeastKeptByteSize, byte_size / 4);
  CutOptions cut;
  cut.number = begun.number;
  cut.only_changed = options.id.kind == SaveKind::kDelta &&
                     options.filter == SaveFilter::kAllRows;
  cut.candidates = options.cut != nullptr;
  cut.max_kept = std::max<uint64_t>(
      1, max_kept / (setting_->layout.stride * sizeof(float)) / shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) {
    all[i].BeginSave();
    RETURN_IF_ERROR(all[i].BeginCut(cut));
  }
  {
    base::MutexLock lock(step_mutex_);
    begun.step = setting_->step;
    if (options.cut != nullptr) {
      Turns& turns = options.cut->turns;
      for (uint32_t i = 0; i < num_shards(); ++i) {
        turns.push_back({i, 0, all.num_turns(i), 0});
        all[i].AddTo(*options.cut);
      }
      turns.push_back({num_shards(), 0, num_step_turns_, 0});
    }
  }
  begun.time = setting_->now;
  waited_ns_ = 0;
  base::MutexLock lock(saving_mutex_);
  saving_ = std::move(begun);
  return OkStatus();
}

// A thread takes part in saves: an exception must not leave a function that
// waits for it.
Result<WrittenTable> SparseTable::WriteRows(const base::Path& folder) {
  Saving saving;
  {
    base::MutexLock lock(saving_mutex_);
    saving = saving_;
  }
  Result<WrittenTable> written =
      base::CatchExceptions([&] { return WriteCut(folder, saving); });
  EndCuts(saving.number);
  RETURN_IF_ERROR(written.status().WithContext("save table " + name()));
  return written;
}

Result<WrittenTable> SparseTable::WriteSave(const base::Path& folder,
                                            const SaveOptions& options) {
  RETURN_IF_ERROR(BeginSave(options));
  return WriteRows(folder);
}

Result<WrittenTable> SparseTable::WriteCut(const base::Path& folder,
                                           const Saving& saving) {
  WrittenTable written;
  SaveList& list = written.list;
  list.table = name();
  list.id = saving.options.id;
  list.step = saving.step;
  list.time = saving.time;
  SaveStats& stats = written.stats;
  std::optional<TextFile> text;
  if (!saving.options.text_file.empty()) {
    ASSIGN_OR_RETURN(base::AtomicFile file,
                     base::AtomicFile::Create(saving.options.text_file));
    text.emplace(std::move(file), dim());
  }
  const auto num_requests = [this] {
    uint64_t sum = 0;
    for (const LockedShard& shard : shards_) {
      sum += shard.num_requests.load(std::memory_order_relaxed);
    }
    return sum;
  };
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    RowsHeader header;
    header.table = name();
    header.layout = setting_->layout.text;
    header.dim = static_cast<uint32_t>(dim());
    header.row_floats = static_cast<uint32_t>(setting_->layout.stride);
    const std::string name_of_file = RowsFileName(name(), list.id, i);
    ShardFile file(shards_[i], *setting_, saving, text, num_requests);
    RETURN_IF_ERROR(file.Write(folder / name_of_file, header));
    list.files.push_back({name_of_file, file.byte_size(), file.checksum()});
    written.candidates.insert(written.candidates.end(),
                              file.candidates().begin(),
                              file.candidates().end());
    stats.num_rows += header.num_rows;
    stats.num_erased += header.num_erased;
    stats.byte_size += file.byte_size();
    stats.num_put_aside += file.num_put_aside();
    stats.most_kept_byte_size +=
        file.most_kept() * setting_->layout.stride * sizeof(float);
  }
  if (text.has_value()) RETURN_IF_ERROR(text->Commit());
  stats.waited = std::chrono::nanoseconds(waited_ns_.load());
  return written;
}

Result<SaveStats> SparseTable::Save(const base::Path& folder,
                                    const SaveOptions& options) {
  Result<WrittenTable> written = WriteSave(folder, options);
  Status listed = written.status();
  if (listed.ok()) listed = WriteSaveList(folder, written->list);
  EndSave(listed.ok());
  RETURN_IF_ERROR(listed);
  return written->stats;
}

void SparseTable::EndCuts(uint64_t number) {
  for (LockedShard& shard : shards_) {
    base::MutexLock lock(shard.mutex);
    if (shard.rows->CutOf(number).ok()) shard.rows->EndCut();
    TellWhetherFull(shard);
  }
}

void SparseTable::EndSave(bool counts) {
  uint64_t number = 0;
  {
    base::MutexLock lock(saving_mutex_);
    number = saving_.number;
  }
  EndCuts(number);
  const AllLocked all(shards_);
  for (size_t i = 0; i < shards_.size(); ++i) all[i].EndSave(counts);
}

}  // namespace fleet::table
