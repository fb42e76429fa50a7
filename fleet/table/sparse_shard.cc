// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/sparse_shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <variant>

#include "fleet/base/check.h"

namespace fleet::table {
namespace {

bool AllFinite(const float* values, size_t count) {
  // The largest exponent is that of infinity and NaN. On integers and without
  // branches, so that the loop becomes vector code.
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    found |= (bits & kExponent) == kExponent ? 1 : 0;
  }
  return found == 0;
}

struct KeyAndRow {
  Key key;
  uint32_t row;
};

// By digits of 11 bits from the lowest on, leaving out those that all keys
// share: a few passes over memory instead of twenty.
void SortByKey(std::vector<KeyAndRow>& rows) {
  constexpr int kBits = 11;
  constexpr size_t kDigits = size_t{1} << kBits;
  std::vector<KeyAndRow> other(rows.size());
  for (int shift = 0; shift < 64; shift += kBits) {
    std::array<size_t, kDigits> begin{};
    for (const KeyAndRow& each : rows) {
      ++begin[each.key >> shift & (kDigits - 1)];
    }
    if (rows.empty() ||
        begin[rows[0].key >> shift & (kDigits - 1)] == rows.size()) {
      continue;
    }
    size_t sum = 0;
    for (size_t& at : begin) sum += std::exchange(at, sum);
    for (const KeyAndRow& each : rows) {
      other[begin[each.key >> shift & (kDigits - 1)]++] = each;
    }
    rows.swap(other);
  }
}

bool RowByRow(const optim::UpdateRule& rule) {
  // Powers are a row's own, and so are the norms of Lamb and Lars.
  return !optim::PowerNames(rule).empty() ||
         std::holds_alternative<optim::Lars>(rule);
}

// What `count` more steps without a gradient do to the state, when they no
// longer change the values: it fades.
void FadeState(const optim::UpdateRule& rule, float* state, size_t dim,
               uint64_t count) {
  const auto n = static_cast<double>(count);
  auto fade = [&](size_t which, double by) {
    const auto factor = static_cast<float>(std::pow(by, n));
    for (size_t i = 0; i < dim; ++i) state[which * dim + i] *= factor;
  };
  if (const auto* r = std::get_if<optim::Momentum>(&rule)) fade(0, r->mu);
  if (const auto* r = std::get_if<optim::Lars>(&rule)) fade(0, r->mu);
  if (const auto* r = std::get_if<optim::Adam>(&rule)) {
    fade(0, r->beta1);
    fade(1, r->beta2);
  }
  if (const auto* r = std::get_if<optim::Lamb>(&rule)) {
    fade(0, r->beta1);
    fade(1, r->beta2);
  }
  if (const auto* r = std::get_if<optim::Adamax>(&rule)) {
    fade(0, r->beta1);
    // u becomes beta2 * u + epsilon, which tends to a fixed point.
    const double rest = r->epsilon / (1.0 - r->beta2);
    const double factor = std::pow(r->beta2, n);
    for (size_t i = 0; i < dim; ++i) {
      const double u = state[dim + i];
      state[dim + i] = static_cast<float>((u - rest) * factor + rest);
    }
  }
  if (const auto* r = std::get_if<optim::RmsProp>(&rule)) {
    fade(0, r->momentum);
    fade(1, r->rho);
    fade(2, r->rho);
  }
  if (const auto* r = std::get_if<optim::Adadelta>(&rule)) {
    fade(0, r->rho);
    fade(1, r->rho);
  }
}

}  // namespace

SparseShard::SparseShard(const ShardSetting& setting,
                         std::unique_ptr<ColdStore> cold)
    : setting_(setting),
      layout_(setting.layout),
      cold_(std::move(cold)),
      touches_(layout_.done_steps != RowLayout::kAbsent ||
               layout_.unseen_days != RowLayout::kAbsent ||
               layout_.last_seen != RowLayout::kAbsent),
      row_by_row_(RowByRow(setting.options.update.rule)),
      zeros_(layout_.dim, 0.0f),
      arena_(layout_.stride),
      changes_for_(static_cast<size_t>(setting.options.num_geo_workers)) {}

void SparseShard::FillNew(Key key, float* row) const {
  const SparseTableOptions& options = setting_.options;
  const size_t dim = layout_.dim;
  FillRow(options.initializer, options.seed, key, std::span(row, dim));
  if (layout_.extended != RowLayout::kAbsent) {
    const size_t from = std::min(options.show_click->extended_from, dim);
    if (from < dim) std::fill(row + from, row + dim, 0.0f);
  }
  std::fill(row + dim, row + dim * (1 + layout_.num_state),
            static_cast<float>(optim::InitialState(options.update.rule)));
  std::fill(row + dim * (1 + layout_.num_state), row + layout_.stride, 0.0f);
  for (size_t i = 0; i < layout_.num_powers; ++i) {
    row[layout_.powers + i] =
        static_cast<float>(optim::PowerBase(options.update.rule, i));
  }
  if (layout_.done_steps != RowLayout::kAbsent) {
    StoreInteger(row, layout_.done_steps, static_cast<uint32_t>(setting_.step));
  }
  Touch(row);
}

uint32_t SparseShard::MakeRow(Key key) {
  const uint32_t row = MakeBlankRow(key);
  FillNew(key, arena_.at(row));
  return row;
}

uint32_t SparseShard::MakeBlankRow(Key key) {
  const uint32_t row = arena_.Add();
  if (changed_.size() * 64 <= row) changed_.resize(changed_.size() + 1024);
  if (cold_ != nullptr) {
    if (keys_.size() <= row) {
      keys_.resize(row + 1);
      flags_.resize(row + 1);
    }
    keys_[row] = key;
    flags_[row] = kUsed;
  }
  MarkChanged(row);
  return row;
}

bool SparseShard::Admits(Key key, uint32_t before, uint32_t count) const {
  const EntryRule& entry = setting_.options.entry;
  if (const auto* by_count = std::get_if<AdmitByCount>(&entry)) {
    return uint64_t{before} + count >= by_count->count;
  }
  if (const auto* chance = std::get_if<AdmitByProbability>(&entry)) {
    const uint64_t lot =
        HashKey(setting_.options.seed ^ 0xa0761d6478bd642f) ^ HashKey(key);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t drawn = HashKey(lot + before + i);
      if (static_cast<double>(drawn >> 11) * 0x1p-53 < chance->probability) {
        return true;
      }
    }
    return false;
  }
  return true;
}

Status SparseShard::CheckRoom() const {
  const uint64_t limit = setting_.options.max_byte_size;
  if (limit == 0) return OkStatus();
  const ShardCounters now = counters();
  if (now.byte_size * setting_.options.num_shards < limit) return OkStatus();
  return Unavailable("no memory for more rows: ", now.num_rows,
                     " rows of one of ", setting_.options.num_shards,
                     " shards take ", now.byte_size, " bytes, and the table ",
                     "may take ", limit);
}

Status SparseShard::Locate(const KeyBatch& batch, size_t begin, size_t n,
                           Missing missing, const uint32_t* counts,
                           uint32_t* rows) {
  if (cold_ != nullptr) RETURN_IF_ERROR(FetchFromDisk(batch, begin, n));
  const bool admits_all =
      std::holds_alternative<AdmitAll>(setting_.options.entry);
  const bool creates = missing == Missing::kCreate ||
                       missing == Missing::kBlank ||
                       (admits_all && missing != Missing::kLeave);
  bool inserts = creates || missing == Missing::kAdmit;
  Status no_room;
  if (inserts) {
    no_room = CheckRoom();
    inserts = no_room.ok();
  }
  if (inserts) {
    // Nothing moves from here on.
    RETURN_IF_ERROR(index_.Reserve(n));
    RETURN_IF_ERROR(arena_.Reserve(n));
  }

  // Not earlier, while the batch before is copied: the cache has few places for
  // lines that are on their way, and its rows come first.
  size_t homes[kBatch];
  for (size_t i = 0; i < n; ++i) {
    homes[i] = index_.Home(HashKey(batch.keys[batch.place(begin + i)]));
    index_.Prefetch(homes[i]);
  }
  const bool updates = missing != Missing::kAdmit && missing != Missing::kLeave;
  const size_t touched_floats = updates ? layout_.stride : layout_.dim;
  for (size_t i = 0; i < n; ++i) {
    const size_t place = batch.place(begin + i);
    const Key key = batch.keys[place];
    uint32_t* value = inserts ? index_.FindOrInsert(key, homes[i])
                              : index_.Find(key, homes[i]);
    if (value != nullptr && *value < kCandidate) [[likely]] {
      rows[i] = *value;
      arena_.Prefetch(*value, touched_floats);
      if (updates) __builtin_prefetch(&changed_[*value / 64], 1);
      continue;
    }
    rows[i] = kNoRow;
    if (!inserts) {
      if (!no_room.ok() && (value == nullptr || creates)) return no_room;
      continue;
    }
    const bool is_new = *value == KeyIndex::kNone;
    const uint32_t before = is_new ? 0 : *value - kCandidate;
    const uint32_t count = counts == nullptr ? 1 : counts[place];
    if (creates || Admits(key, before, count)) {
      if (!is_new) --num_candidates_;
      rows[i] = *value =
          missing == Missing::kBlank ? MakeBlankRow(key) : MakeRow(key);
    } else {
      if (is_new) ++num_candidates_;
      const uint64_t seen =
          std::min<uint64_t>(uint64_t{before} + count, kCandidate - 2);
      *value = kCandidate + static_cast<uint32_t>(seen);
    }
  }
  if (cold_ != nullptr) {
    for (size_t i = 0; i < n; ++i) {
      if (rows[i] != kNoRow) flags_[rows[i]] |= kUsed;
    }
  }
  return OkStatus();
}

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
    if (LoadInteger(into[i], layout_.stride) != mark_) {
      changed_[row / 64] &= ~(uint64_t{1} << (row % 64));
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
    StoreInteger(to, layout_.stride, changed(rows[i]) ? mark_ : 0);
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
      setting_.options.disk->memory_byte_size / setting_.options.num_shards;
  const uint64_t row_byte_size = layout_.stride * sizeof(float) + 9 + 15;
  const uint64_t max_rows =
      std::max<uint64_t>(2 * kBatch, limit / row_byte_size);
  if (arena_.size() + n <= max_rows) return OkStatus();
  const size_t num_to_leave =
      std::min<size_t>(arena_.size(), n + std::min<size_t>(1024, max_rows / 4));
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

void SparseShard::EraseFromMemory(Key key, uint32_t row) {
  index_.Erase(key);
  arena_.Free(row);
}

void SparseShard::MarkChanged(uint32_t row) {
  changed_[row / 64] |= uint64_t{1} << (row % 64);
  if (cold_ != nullptr) flags_[row] |= kNotOnDisk;
}

void SparseShard::Touch(float* row) const {
  if (layout_.unseen_days != RowLayout::kAbsent) {
    StoreInteger(row, layout_.unseen_days, 0);
  }
  if (layout_.last_seen != RowLayout::kAbsent) {
    StoreInteger(row, layout_.last_seen, setting_.now);
  }
}

void SparseShard::SetPowers(
    uint64_t step, std::array<float, optim::kMaxPowers>& powers) const {
  const optim::UpdateRule& rule = setting_.options.update.rule;
  for (size_t i = 0; i < optim::PowerNames(rule).size(); ++i) {
    powers[i] = static_cast<float>(
        std::pow(optim::PowerBase(rule, i), static_cast<double>(step + 1)));
  }
}

optim::Slice<float> SparseShard::SliceOf(float* row, const float* gradient,
                                         size_t columns) const {
  optim::Slice<float> slice{row, gradient, {}, static_cast<int64_t>(columns)};
  for (size_t i = 0; i < layout_.num_state; ++i) {
    slice.state[i] = row + (i + 1) * layout_.dim;
  }
  return slice;
}

void SparseShard::CatchUp(float* row) const {
  if (layout_.done_steps == RowLayout::kAbsent) return;
  const UpdateOptions& options = setting_.options.update;
  const uint64_t done = LoadInteger(row, layout_.done_steps);
  if (done >= setting_.step) return;
  StoreInteger(row, layout_.done_steps, static_cast<uint32_t>(setting_.step));
  if (optim::UpdatesOnlyGivenRows(options.rule)) return;

  // Values that did not move for so many steps never will: what moves them only
  // fades.
  constexpr uint64_t kStill = 64;
  const size_t dim = layout_.dim;
  std::vector<float> before(row, row + dim);
  const optim::Slice<float> slice = SliceOf(row, zeros_.data(), dim);
  for (uint64_t step = done; step < setting_.step; ++step) {
    std::array<float, optim::kMaxPowers> powers;
    SetPowers(step, powers);
    optim::Update<float> update;
    update.slices = std::span(&slice, 1);
    update.powers = {&powers[0], &powers[1]};
    update.learning_rate = RateOfStep(options.learning_rate, step);
    update.decay.decoupled = options.decay.decoupled;
    optim::Apply(options.rule,
                 std::span<const optim::Update<float>>(&update, 1));
    if ((step - done + 1) % kStill != 0) continue;
    if (std::memcmp(before.data(), row, dim * sizeof(float)) == 0) {
      return FadeState(options.rule, row + dim, dim, setting_.step - step - 1);
    }
    before.assign(row, row + dim);
  }
}

Status SparseShard::Pull(const KeyBatch& batch, bool training,
                         const uint32_t* counts, float* rows) {
  // A size that is known makes the copy of a row a few instructions.
  switch (layout_.dim) {
    case 8:
      return PullRows<8>(batch, training, counts, rows);
    case 16:
      return PullRows<16>(batch, training, counts, rows);
    case 32:
      return PullRows<32>(batch, training, counts, rows);
    case 64:
      return PullRows<64>(batch, training, counts, rows);
    default:
      return PullRows<0>(batch, training, counts, rows);
  }
}

template <size_t kDim>
Status SparseShard::PullRows(const KeyBatch& batch, bool training,
                             const uint32_t* counts, float* rows) {
  const size_t dim = kDim == 0 ? layout_.dim : kDim;
  const bool admits_all =
      std::holds_alternative<AdmitAll>(setting_.options.entry);
  std::vector<float> initial;
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(Locate(batch, begin, n,
                           training ? Missing::kAdmit : Missing::kLeave, counts,
                           located));
    for (size_t i = 0; i < n; ++i) {
      const size_t place = batch.place(begin + i);
      float* out = rows + place * dim;
      if (located[i] == kNoRow) {
        if (admits_all) {
          initial.resize(layout_.stride);
          FillNew(batch.keys[place], initial.data());
          std::memcpy(out, initial.data(), dim * sizeof(float));
        } else {
          std::fill(out, out + dim, 0.0f);
        }
        continue;
      }
      float* row = arena_.at(located[i]);
      if (touches_) {
        CatchUp(row);
        if (training) Touch(row);
        if (cold_ != nullptr) flags_[located[i]] |= kNotOnDisk;
      }
      std::memcpy(out, row, dim * sizeof(float));
    }
  }
  return OkStatus();
}

void SparseShard::CountShows(float* row, Key key, float show,
                             float click) const {
  const ShowClickOptions& options = *setting_.options.show_click;
  row[layout_.show] += show;
  row[layout_.click] += click;
  auto score = [&](double shows, double clicks) {
    return (shows - clicks) * options.nonclick_coefficient +
           clicks * options.click_coefficient;
  };
  row[layout_.delta_score] += static_cast<float>(score(show, click));
  if (LoadInteger(row, layout_.extended) != 0) return;
  if (score(row[layout_.show], row[layout_.click]) < options.extend_threshold) {
    return;
  }
  StoreInteger(row, layout_.extended, 1);
  if (options.extended_from >= layout_.dim) return;
  std::vector<float> initial(layout_.dim);
  FillRow(setting_.options.initializer, setting_.options.seed, key, initial);
  std::copy(initial.begin() + static_cast<ptrdiff_t>(options.extended_from),
            initial.end(), row + options.extended_from);
}

size_t SparseShard::updated_columns(const float* row) const {
  if (layout_.extended == RowLayout::kAbsent) return layout_.dim;
  if (LoadInteger(row, layout_.extended) != 0) return layout_.dim;
  return std::min(setting_.options.show_click->extended_from, layout_.dim);
}

void SparseShard::Update(const uint32_t* rows, const float* const* gradients,
                         size_t n) {
  const UpdateOptions& options = setting_.options.update;
  std::array<optim::Slice<float>, kBatch> slices;
  for (size_t i = 0; i < n; ++i) {
    float* row = arena_.at(rows[i]);
    slices[i] = SliceOf(row, gradients[i], updated_columns(row));
  }
  optim::Update<float> update;
  update.learning_rate = setting_.learning_rate;
  update.decay = options.decay;
  update.transform = options.transform;
  if (!row_by_row_) {
    update.slices = std::span(slices.data(), n);
    optim::Apply(options.rule,
                 std::span<const optim::Update<float>>(&update, 1));
    return;
  }
  std::array<optim::Update<float>, kBatch> updates;
  std::array<std::array<float, optim::kMaxPowers>, kBatch> powers;
  std::array<float, optim::kMaxPowers> of_step{};
  if (layout_.num_powers == 0) SetPowers(setting_.step, of_step);
  for (size_t i = 0; i < n; ++i) {
    updates[i] = update;
    updates[i].slices = std::span(&slices[i], 1);
    powers[i] = of_step;
    float* own = layout_.num_powers == 0 ? powers[i].data()
                                         : arena_.at(rows[i]) + layout_.powers;
    updates[i].powers = {own, own + 1};
  }
  optim::Apply(options.rule,
               std::span<const optim::Update<float>>(updates.data(), n));
}

Status SparseShard::Push(const KeyBatch& batch, const float* gradients,
                         const float* shows, const float* clicks) {
  const size_t dim = layout_.dim;
  uint32_t located[kBatch];
  const float* from[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(Locate(batch, begin, n, Missing::kSkip, nullptr, located));
    // All at once where the gradients are neighbours, which is faster.
    const bool finite =
        batch.order == nullptr && AllFinite(gradients + begin * dim, n * dim);
    size_t num_updates = 0;
    for (size_t i = 0; i < n; ++i) {
      if (located[i] == kNoRow) continue;
      const size_t place = batch.place(begin + i);
      const float* gradient = gradients + place * dim;
      float* row = arena_.at(located[i]);
      if (touches_) {
        CatchUp(row);
        Touch(row);
        if (shows != nullptr && layout_.show != RowLayout::kAbsent) {
          CountShows(row, batch.keys[place], shows[place],
                     clicks == nullptr ? 0.0f : clicks[place]);
        }
        if (layout_.done_steps != RowLayout::kAbsent) {
          StoreInteger(row, layout_.done_steps,
                       static_cast<uint32_t>(setting_.step + 1));
        }
      }
      MarkChanged(located[i]);
      if (!finite && !AllFinite(gradient, dim)) {
        ++num_nonfinite_;
        if (setting_.options.update.drop_nonfinite) continue;
      }
      located[num_updates] = located[i];
      from[num_updates++] = gradient;
    }
    if (num_updates > 0) Update(located, from, num_updates);
  }
  return OkStatus();
}

Status SparseShard::Add(const KeyBatch& batch, const float* deltas) {
  const size_t dim = layout_.dim;
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(
        Locate(batch, begin, n, Missing::kCreate, nullptr, located));
    for (size_t i = 0; i < n; ++i) {
      const float* delta = deltas + batch.place(begin + i) * dim;
      float* row = arena_.at(located[i]);
      Touch(row);
      MarkChanged(located[i]);
      if (!AllFinite(delta, dim)) {
        ++num_nonfinite_;
        if (setting_.options.update.drop_nonfinite) continue;
      }
      for (size_t k = 0; k < dim; ++k) row[k] += delta[k];
    }
  }
  return OkStatus();
}

Status SparseShard::Assign(const KeyBatch& batch, const float* rows) {
  const size_t dim = layout_.dim;
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(
        Locate(batch, begin, n, Missing::kCreate, nullptr, located));
    for (size_t i = 0; i < n; ++i) {
      float* row = arena_.at(located[i]);
      CatchUp(row);
      Touch(row);
      MarkChanged(located[i]);
      std::memcpy(row, rows + batch.place(begin + i) * dim,
                  dim * sizeof(float));
    }
  }
  return OkStatus();
}

Status SparseShard::PutRows(const KeyBatch& batch, const float* rows,
                            bool changed) {
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(Locate(batch, begin, n, Missing::kBlank, nullptr, located));
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(arena_.at(located[i]),
                  rows + batch.place(begin + i) * layout_.stride,
                  layout_.stride * sizeof(float));
      MarkChanged(located[i]);
      if (!changed) {
        changed_[located[i] / 64] &= ~(uint64_t{1} << (located[i] % 64));
      }
    }
  }
  return OkStatus();
}

Status SparseShard::EraseKeys(const KeyBatch& batch) {
  std::vector<Key> on_disk;
  for (size_t i = 0; i < batch.count; ++i) {
    const Key key = batch.keys[batch.place(i)];
    const uint32_t* value = index_.Find(key);
    if (value != nullptr && *value < kCandidate) EraseFromMemory(key, *value);
    on_disk.push_back(key);
  }
  if (cold_ == nullptr) return OkStatus();
  std::vector<float> record(layout_.stride + 1);
  for (Key key : on_disk) {
    bool found = false;
    float* into = record.data();
    RETURN_IF_ERROR(cold_->Get(std::span(&key, 1), std::span(&into, 1),
                               std::span(&found, 1)));
    if (found && num_cold_rows_ > 0) --num_cold_rows_;
  }
  return cold_->Erase(on_disk);
}

Status SparseShard::Accumulate(const KeyBatch& batch, const float* gradients) {
  const size_t dim = layout_.dim;
  size_t homes[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(waiting_.Reserve(n));
    for (size_t i = 0; i < n; ++i) {
      homes[i] = waiting_.Home(batch.keys[batch.place(begin + i)]);
      waiting_.Prefetch(homes[i]);
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t place = batch.place(begin + i);
      const size_t number = waiting_.Add(batch.keys[place], homes[i]);
      const float* gradient = gradients + place * dim;
      if (number * dim == waiting_sums_.size()) {
        waiting_sums_.insert(waiting_sums_.end(), gradient, gradient + dim);
        continue;
      }
      float* __restrict sum = &waiting_sums_[number * dim];
      for (size_t k = 0; k < dim; ++k) sum[k] += gradient[k];
    }
  }
  return OkStatus();
}

Status SparseShard::ApplyAccumulated(double scale) {
  const auto factor = static_cast<float>(scale);
  for (float& x : waiting_sums_) x *= factor;
  Status pushed = Push({waiting_.keys().data(), nullptr, waiting_.size()},
                       waiting_sums_.data(), nullptr, nullptr);
  waiting_.Reset();
  waiting_sums_.clear();
  return pushed;
}

Status SparseShard::RecordChange(const KeyBatch& batch, size_t worker) {
  for (size_t other = 0; other < changes_for_.size(); ++other) {
    if (other == worker) continue;
    KeySet& changes = changes_for_[other];
    for (size_t i = 0; i < batch.count; ++i) {
      const Key key = batch.keys[batch.place(i)];
      RETURN_IF_ERROR(changes.Reserve(1));
      changes.Add(key, changes.Home(key));
    }
  }
  return OkStatus();
}

std::vector<Key> SparseShard::TakeChanges(size_t worker, size_t max_keys) {
  return changes_for_[worker].Take(max_keys);
}

Status SparseShard::Sweep(const std::function<bool(float* row)>& gone,
                          uint64_t* num_erased) {
  std::vector<std::pair<Key, uint32_t>> in_memory;
  index_.ForEach([&](Key key, uint32_t value) {
    if (value >= kCandidate) return;
    if (gone(arena_.at(value))) in_memory.emplace_back(key, value);
    if (cold_ != nullptr) flags_[value] |= kNotOnDisk;
  });
  std::vector<Key> on_disk;
  for (const auto& [key, row] : in_memory) {
    EraseFromMemory(key, row);
    erased_.push_back(key);
    on_disk.push_back(key);
  }
  *num_erased += in_memory.size();
  if (cold_ == nullptr) return OkStatus();
  std::sort(on_disk.begin(), on_disk.end());
  // A copy of a row that is still in memory is older than that; leave it.
  std::vector<float> record;
  Status visited = cold_->ForEach([&](Key key, std::span<const float> stored) {
    if (index_.Find(key) != nullptr) return OkStatus();
    if (std::binary_search(on_disk.begin(), on_disk.end(), key)) {
      return OkStatus();
    }
    record.assign(stored.begin(), stored.end());
    if (gone(record.data())) {
      erased_.push_back(key);
      ++*num_erased;
      --num_cold_rows_;
      return cold_->Erase(std::span(&key, 1));
    }
    const float* row = record.data();
    return cold_->Put(std::span(&key, 1), std::span(&row, 1));
  });
  RETURN_IF_ERROR(visited);
  return cold_->Erase(on_disk);
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
  index_.Clear();
  arena_.Clear();
  num_candidates_ = 0;
  changed_ = {};
  erased_ = {};
  keys_ = {};
  flags_ = {};
  clock_hand_ = 0;
  num_cold_rows_ = 0;
  waiting_.Clear();
  waiting_sums_ = {};
  for (KeySet& changes : changes_for_) changes.Clear();
  return OkStatus();
}

Status SparseShard::ForEachSorted(
    const std::function<Status(Key, const float* row, bool changed)>& visit) {
  if (cold_ == nullptr) {
    std::vector<KeyAndRow> sorted;
    sorted.reserve(arena_.size());
    index_.ForEach([&](Key key, uint32_t value) {
      if (value < kCandidate) sorted.push_back({key, value});
    });
    SortByKey(sorted);
    // The sorted rows are all over memory: ask for them some steps ahead.
    constexpr size_t kAhead = 16;
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i + kAhead < sorted.size()) {
        arena_.Prefetch(sorted[i + kAhead].row, layout_.stride);
      }
      const auto [key, row] = sorted[i];
      RETURN_IF_ERROR(visit(key, arena_.at(row), changed(row)));
    }
    return OkStatus();
  }
  std::vector<uint32_t> unwritten;
  index_.ForEach([&](Key, uint32_t value) {
    if (value < kCandidate && (flags_[value] & kNotOnDisk) != 0) {
      unwritten.push_back(value);
    }
  });
  constexpr size_t kWriteAtOnce = 4096;
  for (size_t i = 0; i < unwritten.size(); i += kWriteAtOnce) {
    const size_t n = std::min(kWriteAtOnce, unwritten.size() - i);
    RETURN_IF_ERROR(WriteToDisk(std::span(&unwritten[i], n)));
  }
  return cold_->ForEach([&](Key key, std::span<const float> stored) {
    return visit(key, stored.data(),
                 LoadInteger(stored.data(), layout_.stride) == mark_);
  });
}

void SparseShard::ClearMarks() {
  std::fill(changed_.begin(), changed_.end(), 0);
  erased_.clear();
  ++mark_;
}

ShardCounters SparseShard::counters() const {
  ShardCounters result;
  result.num_rows_in_memory = index_.size() - num_candidates_;
  result.num_rows = result.num_rows_in_memory + num_cold_rows_;
  result.num_candidates = num_candidates_;
  result.num_nonfinite = num_nonfinite_;
  result.byte_size = index_.byte_size() + arena_.byte_size() +
                     changed_.capacity() * 8 + erased_.capacity() * 8 +
                     keys_.capacity() * 8 + flags_.capacity() +
                     waiting_.byte_size() + waiting_sums_.capacity() * 4;
  for (const KeySet& changes : changes_for_) {
    result.byte_size += changes.byte_size();
  }
  return result;
}

}  // namespace fleet::table
