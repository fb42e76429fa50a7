// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/dense_table.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "fleet/base/exceptions.h"
#include "fleet/table/rows_file.h"

namespace fleet::table {

DensePart PartOfServer(uint64_t size, uint32_t server, uint32_t num_servers,
                       uint32_t spread) {
  const uint64_t num_blocks = (size + kDenseBlock - 1) / kDenseBlock;
  const uint64_t turned = (uint64_t{server} + spread) % num_servers;
  DensePart part;
  part.begin = std::min(size, num_blocks * turned / num_servers * kDenseBlock);
  part.end =
      std::min(size, num_blocks * (turned + 1) / num_servers * kDenseBlock);
  return part;
}

DenseTable::DenseTable(const DenseTableOptions& options)
    : options_(options),
      num_state_(optim::StateNames(options.update.rule).size()),
      num_powers_(optim::PowerNames(options.update.rule).size()),
      values_(options.part.size()),
      learning_rate_(options.update.learning_rate) {
  const optim::UpdateRule& rule = options.update.rule;
  layout_ = base::Concat("values ", kDenseBlock);
  for (std::string_view name : optim::StateNames(rule)) {
    state_.emplace_back(options.part.size(),
                        static_cast<float>(optim::InitialState(rule)));
    layout_ += base::Concat(", ", name, " ", kDenseBlock);
  }
  for (size_t i = 0; i < num_powers_; ++i) {
    powers_.push_back(static_cast<float>(optim::PowerBase(rule, i)));
    layout_ += base::Concat(", ", optim::PowerNames(rule)[i], " 1");
  }
}

Result<std::unique_ptr<DenseTable>> DenseTable::Make(
    const DenseTableOptions& options) {
  const DensePart& part = options.part;
  if (part.begin > part.end || part.end > options.size ||
      (part.size() > 0 && part.begin % kDenseBlock != 0) ||
      (part.end != options.size && part.end % kDenseBlock != 0)) {
    return InvalidArgument("table ", options.name, ": values [", part.begin,
                           ", ", part.end, ") of ", options.size,
                           " are no blocks of ", kDenseBlock);
  }
  RETURN_IF_ERROR(
      CheckOptions(options.update).WithContext("table " + options.name));
  return std::make_unique<DenseTable>(options);
}

Status DenseTable::CheckSize(size_t size, const char* what) const {
  if (size == part().size()) return OkStatus();
  return InvalidArgument("table ", name(), ": ", what, " of ", size,
                         " values, and there are ", part().size());
}

Status DenseTable::Pull(std::span<float> values) const {
  RETURN_IF_ERROR(CheckSize(values.size(), "pull"));
  base::MutexLock lock(mutex_);
  std::copy(values_.begin(), values_.end(), values.begin());
  return OkStatus();
}

Status DenseTable::PullFrom(uint64_t begin, std::span<float> values) const {
  if (begin > part().size() || values.size() > part().size() - begin) {
    return InvalidArgument("table ", name(), ": pull of values [", begin, ", ",
                           begin + values.size(), ") of ", part().size());
  }
  base::MutexLock lock(mutex_);
  std::copy_n(values_.begin() + static_cast<ptrdiff_t>(begin), values.size(),
              values.begin());
  return OkStatus();
}

void DenseTable::AddTurn(Turns* turns) {
  if (turns != nullptr) turns->push_back({0, 0, ++num_turns_, step_});
}

bool DenseTable::SetRate(const std::string& name, double rate, Turns* turns) {
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  return TellRate(learning_rate_, name, rate, step_, false);
}

Status DenseTable::Push(std::span<const float> gradient, Turns* turns) {
  RETURN_IF_ERROR(CheckSize(gradient.size(), "push"));
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  return PushLocked(gradient);
}

Status DenseTable::PushLocked(std::span<const float> gradient) {
  const UpdateOptions& options = options_.update;
  const bool finite = std::all_of(gradient.begin(), gradient.end(),
                                  [](float x) { return std::isfinite(x); });
  if (!finite) ++num_nonfinite_;
  if (!finite && options.drop_nonfinite) return OkStatus();
  BeforeChange();
  optim::Slice<float> slice{values_.data(),
                            gradient.data(),
                            {},
                            static_cast<int64_t>(values_.size())};
  optim::Update<float> update;
  for (size_t i = 0; i < num_state_; ++i) slice.state[i] = state_[i].data();
  for (size_t i = 0; i < num_powers_; ++i) update.powers[i] = &powers_[i];
  update.slices = std::span(&slice, 1);
  update.learning_rate = RateOfStep(learning_rate_, step_);
  update.decay = options.decay;
  update.transform = options.transform;
  optim::Apply(options.rule, std::span<const optim::Update<float>>(&update, 1));
  return OkStatus();
}

Status DenseTable::Add(std::span<const float> delta, Turns* turns) {
  RETURN_IF_ERROR(CheckSize(delta.size(), "add"));
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  BeforeChange();
  for (size_t i = 0; i < delta.size(); ++i) values_[i] += delta[i];
  return OkStatus();
}

Status DenseTable::Assign(std::span<const float> values, Turns* turns) {
  RETURN_IF_ERROR(CheckSize(values.size(), "assign"));
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  BeforeChange();
  std::copy(values.begin(), values.end(), values_.begin());
  initialized_ = true;
  return OkStatus();
}

Status DenseTable::Accumulate(int worker, std::span<const float> gradient,
                              Turns* turns) {
  RETURN_IF_ERROR(CheckSize(gradient.size(), "push"));
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  const auto index = static_cast<size_t>(worker);
  if (waiting_.size() <= index) waiting_.resize(index + 1);
  std::vector<float>& waiting = waiting_[index];
  if (waiting.empty()) {
    waiting.assign(gradient.begin(), gradient.end());
    return OkStatus();
  }
  for (size_t i = 0; i < gradient.size(); ++i) waiting[i] += gradient[i];
  return OkStatus();
}

Status DenseTable::ApplyAccumulated(double scale, const std::set<int>& later,
                                    Turns* turns) {
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  std::vector<float>* all = nullptr;
  for (size_t worker = 0; worker < waiting_.size(); ++worker) {
    std::vector<float>& each = waiting_[worker];
    if (each.empty() || later.contains(static_cast<int>(worker))) continue;
    if (all == nullptr) {
      all = &each;
      continue;
    }
    for (size_t i = 0; i < each.size(); ++i) (*all)[i] += each[i];
    each.clear();  // its memory is for the next step
  }
  if (all == nullptr) return OkStatus();
  const auto factor = static_cast<float>(scale);
  if (factor != 1.0f) {
    for (float& x : *all) x *= factor;
  }
  const Status pushed = PushLocked(*all);
  all->clear();
  return pushed;
}

void DenseTable::DropAccumulated(int worker, Turns* turns) {
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  const auto index = static_cast<size_t>(worker);
  if (index < waiting_.size()) waiting_[index].clear();
}

void DenseTable::EndStep(uint64_t count, Turns* turns) {
  base::MutexLock lock(mutex_);
  AddTurn(turns);
  step_ += count;
}

Result<SaveStats> DenseTable::Save(const base::Path& folder, const SaveId& id) {
  ASSIGN_OR_RETURN(const WrittenTable written, WriteSave(folder, id));
  RETURN_IF_ERROR(WriteSaveList(folder, written.list));
  return written.stats;
}

Result<WrittenTable> DenseTable::WriteSave(const base::Path& folder,
                                           const SaveId& id, TableCut* cut) {
  BeginSave(id, cut);
  return WriteRows(folder);
}

void DenseTable::BeginSave(const SaveId& id, TableCut* cut) {
  base::MutexLock lock(mutex_);
  if (cut != nullptr) {
    cut->turns.push_back({0, 0, num_turns_, 0});
    // Nobody sets values where there are none.
    cut->initialized = initialized_ || values_.empty();
  }
  cut_given_up_ = OkStatus();
  Cut begun;
  begun.number = ++num_cuts_;
  begun.id = id;
  begun.step = step_;
  begun.powers = powers_;
  cut_ = std::move(begun);
}

void DenseTable::EndSave() {
  base::MutexLock lock(mutex_);
  cut_.reset();
}

void DenseTable::BeforeChange() {
  if (!cut_.has_value() || cut_->aside) return;
  const auto from = static_cast<ptrdiff_t>(cut_->next);
  // Where there is no memory, training goes on without the save.
  const Status put = base::CatchExceptions([&]() -> Status {
    // NOLINTNEXTLINE: the lock is held.
    auto aside = [&]() FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
      cut_->values.assign(values_.begin() + from, values_.end());
      for (const std::vector<float>& state : state_) {
        cut_->state.emplace_back(state.begin() + from, state.end());
      }
    };
    aside();
    return OkStatus();
  });
  cut_->aside = true;
  cut_->next_aside = cut_->next;
  if (put.ok()) return;
  cut_.reset();
  cut_given_up_ = put;
}

Status DenseTable::TakeBlock(uint64_t number, uint64_t begin,
                             std::vector<float>& row) {
  base::MutexLock lock(mutex_);
  if (!cut_.has_value() || cut_->number != number) {
    RETURN_IF_ERROR(cut_given_up_);
    return FailedPrecondition("table ", name(),
                              ": the save has ended, or another one has begun");
  }
  Cut& cut = *cut_;
  const uint64_t n = std::min(kDenseBlock, part().size() - begin);
  const std::vector<float>& values = cut.aside ? cut.values : values_;
  const auto& state = cut.aside ? cut.state : state_;
  const uint64_t at = cut.aside ? begin - cut.next_aside : begin;
  row.assign(row_floats(), 0.0f);
  std::copy_n(&values[at], n, row.begin());
  for (size_t i = 0; i < num_state_; ++i) {
    std::copy_n(&state[i][at], n,
                row.begin() + static_cast<ptrdiff_t>((i + 1) * kDenseBlock));
  }
  std::copy(cut.powers.begin(), cut.powers.end(),
            row.end() - static_cast<ptrdiff_t>(num_powers_));
  cut.next = begin + n;
  return OkStatus();
}

Result<WrittenTable> DenseTable::WriteRows(const base::Path& folder) {
  uint64_t number = 0;
  {
    base::MutexLock lock(mutex_);
    number = num_cuts_;
  }
  Result<WrittenTable> written =
      base::CatchExceptions([&] { return WriteCut(folder, number); });
  base::MutexLock lock(mutex_);
  if (cut_.has_value() && cut_->number == number) cut_.reset();
  return written;
}

Result<WrittenTable> DenseTable::WriteCut(const base::Path& folder,
                                          uint64_t number) {
  WrittenTable written;
  written.list.table = name();
  {
    base::MutexLock lock(mutex_);
    if (!cut_.has_value()) {
      return FailedPrecondition("table ", name(), ": no save has begun");
    }
    written.list.id = cut_->id;
    written.list.step = cut_->step;
  }
  RowsHeader header;
  header.table = name();
  header.layout = layout_;
  header.dim = kDenseBlock;
  header.row_floats = static_cast<uint32_t>(row_floats());
  header.num_rows = (part().size() + kDenseBlock - 1) / kDenseBlock;
  const std::string file = RowsFileName(name(), written.list.id, 0);
  ASSIGN_OR_RETURN(RowsWriter writer,
                   RowsWriter::Create(folder / file, header));
  std::vector<float> row;
  for (uint64_t begin = 0; begin < part().size(); begin += kDenseBlock) {
    RETURN_IF_ERROR(TakeBlock(number, begin, row));
    RETURN_IF_ERROR(writer.AddRow((part().begin + begin) / kDenseBlock, row));
  }
  RETURN_IF_ERROR(writer.Commit());
  written.list.files.push_back({file, writer.byte_size(), writer.checksum()});
  written.stats = {header.num_rows, 0, writer.byte_size()};
  return written;
}

void DenseTable::EndCutForLoad() {
  if (!cut_.has_value()) return;
  cut_.reset();
  cut_given_up_ = FailedPrecondition(
      "table ", name(),
      ": its values were replaced before all of them were written");
}

Result<LoadStats> DenseTable::Load(const base::Path& folder) {
  ASSIGN_OR_RETURN(const SavedModel model,
                   FindModel(folder, CheckFiles::kByChecksum));
  return Load(model);
}

Result<LoadStats> DenseTable::Load(const SavedModel& model) {
  const base::Path& folder = model.folder;
  ASSIGN_OR_RETURN(const std::vector<SaveList> lists, model.ListsOf(name()));
  LoadStats stats;
  stats.number = lists.back().id.number;
  stats.step = lists.back().step;
  base::MutexLock lock(mutex_);
  EndCutForLoad();
  auto check = [&](const RowsHeader& header) -> Status {
    if (header.dim != kDenseBlock) {
      return InvalidArgument("table ", header.table, " is no dense table");
    }
    // A dense table keeps all of its blocks.
    if (header.num_erased > 0) {
      return DataLoss(header.num_erased, " erased keys of a dense table");
    }
    if (header.layout == layout_ && header.row_floats != row_floats()) {
      return DataLoss("blocks of ", header.row_floats, " numbers, and a block ",
                      "'", layout_, "' has ", row_floats());
    }
    return OkStatus();
  };
  // NOLINTNEXTLINE: the lock is held while the visitor runs.
  auto take = [&](const RowsHeader& header, std::span<const Key> keys,
                  std::span<const float> rows)
                  FLEET_THREAD_ATTRIBUTE(no_thread_safety_analysis) -> Status {
    const bool whole = header.layout == layout_;
    stats.values_only = stats.values_only || !whole;
    for (size_t k = 0; k < keys.size(); ++k) {
      if (keys[k] > UINT64_MAX / kDenseBlock) continue;
      const uint64_t at = keys[k] * kDenseBlock;
      if (at < part().begin || at >= part().end) continue;
      const uint64_t begin = at - part().begin;
      const uint64_t n = std::min(kDenseBlock, part().size() - begin);
      const float* row = &rows[k * header.row_floats];
      std::copy_n(row, n, &values_[begin]);
      stats.num_rows += 1;
      if (!whole) continue;
      for (size_t i = 0; i < num_state_; ++i) {
        std::copy_n(row + (i + 1) * kDenseBlock, n, &state_[i][begin]);
      }
      std::copy_n(row + kDenseBlock * (1 + num_state_), num_powers_,
                  powers_.begin());
    }
    return OkStatus();
  };
  for (const SaveList& list : lists) {
    for (const SaveList::File& file : list.files) {
      RETURN_IF_ERROR(ReadRows(folder / file.name, take, check)
                          .WithContext("load table " + name()));
    }
  }
  if (stats.num_rows < (part().size() + kDenseBlock - 1) / kDenseBlock) {
    return DataLoss("load table ", name(), ": ", stats.num_rows,
                    " of its blocks, and it has ",
                    (part().size() + kDenseBlock - 1) / kDenseBlock);
  }
  step_ = stats.step;
  initialized_ = true;
  return stats;
}

Result<std::unique_ptr<DenseTable>> DenseTable::LoadApart(
    const SavedModel& model) const {
  ASSIGN_OR_RETURN(std::unique_ptr<DenseTable> apart, Make(options_));
  RETURN_IF_ERROR(apart->Load(model).status());
  return apart;
}

void DenseTable::Take(DenseTable& loaded) {
  base::MutexLock theirs(loaded.mutex_);
  base::MutexLock lock(mutex_);
  EndCutForLoad();
  std::swap(values_, loaded.values_);
  std::swap(state_, loaded.state_);
  std::swap(powers_, loaded.powers_);
  initialized_ = loaded.initialized_;
  step_ = loaded.step_;
}

void DenseTable::TakeCut(const TableCut& cut) {
  base::MutexLock lock(mutex_);
  initialized_ = cut.initialized;
}

uint64_t DenseTable::save_byte_size() const {
  base::MutexLock lock(mutex_);
  if (!cut_.has_value() || !cut_->aside) return 0;
  return sizeof(float) * cut_->values.size() * (1 + num_state_);
}

bool DenseTable::initialized() const {
  base::MutexLock lock(mutex_);
  return initialized_;
}

uint64_t DenseTable::step() const {
  base::MutexLock lock(mutex_);
  return step_;
}

uint64_t DenseTable::num_nonfinite() const {
  base::MutexLock lock(mutex_);
  return num_nonfinite_;
}

uint64_t DenseTable::byte_size() const {
  base::MutexLock lock(mutex_);
  size_t num_waiting = 0;
  for (const std::vector<float>& each : waiting_) {
    num_waiting += each.capacity();
  }
  return sizeof(float) * (values_.capacity() * (1 + num_state_) + num_waiting);
}

}  // namespace fleet::table
