// SPDX-License-Identifier: Apache-2.0

// How gradients change the rows of a shard.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <variant>

#include "fleet/table/sparse_shard.h"

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

void SparseShard::SetPowers(
    uint64_t step, std::array<float, optim::kMaxPowers>& powers) const {
  const optim::UpdateRule& rule = setting_->options.update.rule;
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
  const UpdateOptions& options = setting_->options.update;
  // The row has 32 bits of its step, and may be one ahead.
  const auto missed = static_cast<int32_t>(
      static_cast<uint32_t>(step_) - LoadInteger(row, layout_.done_steps));
  if (missed <= 0) return;
  const uint64_t done = step_ - static_cast<uint64_t>(missed);
  StoreInteger(row, layout_.done_steps, static_cast<uint32_t>(step_));
  // A regularizer is a gradient, so it changes all rows whatever the rule is.
  const bool decays = options.decay.l1 != 0.0 || options.decay.l2 != 0.0;
  if (optim::UpdatesOnlyGivenRows(options.rule) && !decays) return;

  // Values that did not move for so many steps never will: what moves them only
  // fades. A decay goes on moving them unless the state stands still, too.
  constexpr uint64_t kStill = 64;
  const size_t dim = layout_.dim;
  const size_t watched = decays ? dim * (1 + layout_.num_state) : dim;
  std::vector<float> before(row, row + watched);
  const optim::Slice<float> slice = SliceOf(row, zeros_.data(), dim);
  for (uint64_t step = done; step < step_; ++step) {
    std::array<float, optim::kMaxPowers> powers;
    SetPowers(step, powers);
    optim::Update<float> update;
    update.slices = std::span(&slice, 1);
    update.powers = {&powers[0], &powers[1]};
    update.learning_rate = RateOfStep(options.learning_rate, step);
    update.decay = options.decay;
    optim::Apply(options.rule,
                 std::span<const optim::Update<float>>(&update, 1));
    if ((step - done + 1) % kStill != 0) continue;
    if (std::memcmp(before.data(), row, watched * sizeof(float)) == 0) {
      if (decays) return;
      return FadeState(options.rule, row + dim, dim, step_ - step - 1);
    }
    before.assign(row, row + watched);
  }
}

void SparseShard::CountShows(float* row, Key key, float show,
                             float click) const {
  const ShowClickOptions& options = *setting_->options.show_click;
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
  FillRow(setting_->options.initializer, setting_->options.seed, key, initial);
  std::copy(initial.begin() + static_cast<ptrdiff_t>(options.extended_from),
            initial.end(), row + options.extended_from);
}

size_t SparseShard::updated_columns(const float* row) const {
  if (layout_.extended == RowLayout::kAbsent) return layout_.dim;
  if (LoadInteger(row, layout_.extended) != 0) return layout_.dim;
  return std::min(setting_->options.show_click->extended_from, layout_.dim);
}

void SparseShard::Update(const uint32_t* rows, const float* const* gradients,
                         size_t n) {
  const UpdateOptions& options = setting_->options.update;
  std::array<optim::Slice<float>, kBatch> slices;
  for (size_t i = 0; i < n; ++i) {
    float* row = arena_.at(rows[i]);
    slices[i] = SliceOf(row, gradients[i], updated_columns(row));
  }
  optim::Update<float> update;
  update.learning_rate = learning_rate_;
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
  if (layout_.num_powers == 0) SetPowers(step_, of_step);
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
  trained_ = trained_ || batch.count > 0;
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
      BeforeChange(batch.keys[place], located[i]);
      if (touches_) {
        CatchUp(row);
        Touch(row);
        if (shows != nullptr && layout_.show != RowLayout::kAbsent) {
          CountShows(row, batch.keys[place], shows[place],
                     clicks == nullptr ? 0.0f : clicks[place]);
        }
        if (layout_.done_steps != RowLayout::kAbsent) {
          StoreInteger(row, layout_.done_steps,
                       static_cast<uint32_t>(step_ + 1));
        }
      }
      MarkChanged(located[i]);
      if (!finite && !AllFinite(gradient, dim)) {
        ++num_nonfinite_;
        if (setting_->options.update.drop_nonfinite) continue;
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
  trained_ = trained_ || batch.count > 0;
  uint32_t located[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(
        Locate(batch, begin, n, Missing::kCreate, nullptr, located));
    for (size_t i = 0; i < n; ++i) {
      const size_t place = batch.place(begin + i);
      const float* delta = deltas + place * dim;
      float* row = arena_.at(located[i]);
      BeforeChange(batch.keys[place], located[i]);
      Touch(row);
      MarkChanged(located[i]);
      if (!AllFinite(delta, dim)) {
        ++num_nonfinite_;
        if (setting_->options.update.drop_nonfinite) continue;
      }
      for (size_t k = 0; k < dim; ++k) row[k] += delta[k];
    }
  }
  return OkStatus();
}

Status SparseShard::Accumulate(size_t worker, const KeyBatch& batch,
                               const float* gradients, const float* shows,
                               const float* clicks) {
  if (layout_.show == RowLayout::kAbsent) shows = nullptr;
  if (waiting_.size() <= worker) waiting_.resize(worker + 1);
  return AddTo(waiting_[worker], batch, gradients, shows, clicks);
}

Status SparseShard::AddTo(Waiting& waiting, const KeyBatch& batch,
                          const float* gradients, const float* shows,
                          const float* clicks) const {
  const size_t dim = layout_.dim;
  size_t homes[kBatch];
  for (size_t begin = 0; begin < batch.count; begin += kBatch) {
    const size_t n = std::min(kBatch, batch.count - begin);
    RETURN_IF_ERROR(waiting.keys.Reserve(n));
    for (size_t i = 0; i < n; ++i) {
      homes[i] = waiting.keys.Home(batch.keys[batch.place(begin + i)]);
      waiting.keys.Prefetch(homes[i]);
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t place = batch.place(begin + i);
      const size_t number = waiting.keys.Add(batch.keys[place], homes[i]);
      const float* gradient = gradients + place * dim;
      if (shows != nullptr) {
        waiting.shows.resize(waiting.keys.size());
        waiting.clicks.resize(waiting.keys.size());
        waiting.shows[number] += shows[place];
        if (clicks != nullptr) waiting.clicks[number] += clicks[place];
      }
      if (number * dim == waiting.sums.size()) {
        waiting.sums.insert(waiting.sums.end(), gradient, gradient + dim);
        continue;
      }
      float* __restrict sum = &waiting.sums[number * dim];
      for (size_t k = 0; k < dim; ++k) sum[k] += gradient[k];
    }
  }
  return OkStatus();
}

void SparseShard::Waiting::Reset() {
  keys.Reset();
  sums.clear();
  shows.clear();
  clicks.clear();
}

void SparseShard::DropAccumulated(size_t worker) {
  if (worker < waiting_.size()) waiting_[worker].Reset();
}

Status SparseShard::ApplyAccumulated(double scale, const std::set<int>& later) {
  // In the order of the workers, so that the result does not depend on who came
  // first.
  Waiting* all = nullptr;
  for (size_t worker = 0; worker < waiting_.size(); ++worker) {
    Waiting& each = waiting_[worker];
    if (each.keys.size() == 0 || later.contains(static_cast<int>(worker))) {
      continue;
    }
    if (!each.shows.empty()) {
      each.shows.resize(each.keys.size());
      each.clicks.resize(each.keys.size());
    }
    if (all == nullptr) {
      all = &each;
      continue;
    }
    const bool shown = !each.shows.empty();
    RETURN_IF_ERROR(AddTo(*all,
                          {each.keys.keys().data(), nullptr, each.keys.size()},
                          each.sums.data(), shown ? each.shows.data() : nullptr,
                          shown ? each.clicks.data() : nullptr));
    each.Reset();
  }
  if (all == nullptr) return OkStatus();
  const auto factor = static_cast<float>(scale);
  if (factor != 1.0f) {
    for (float& x : all->sums) x *= factor;
  }
  // Shows are counts, of which the sum is what one process would have counted.
  const bool shown = !all->shows.empty();
  if (shown) {
    all->shows.resize(all->keys.size());
    all->clicks.resize(all->keys.size());
  }
  Status pushed = Push({all->keys.keys().data(), nullptr, all->keys.size()},
                       all->sums.data(), shown ? all->shows.data() : nullptr,
                       shown ? all->clicks.data() : nullptr);
  all->Reset();
  return pushed;
}

}  // namespace fleet::table
