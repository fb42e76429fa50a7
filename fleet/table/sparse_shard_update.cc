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
  const uint64_t done = LoadInteger(row, layout_.done_steps);
  if (done >= step_) return;
  StoreInteger(row, layout_.done_steps, static_cast<uint32_t>(step_));
  if (optim::UpdatesOnlyGivenRows(options.rule)) return;

  // Values that did not move for so many steps never will: what moves them only
  // fades.
  constexpr uint64_t kStill = 64;
  const size_t dim = layout_.dim;
  std::vector<float> before(row, row + dim);
  const optim::Slice<float> slice = SliceOf(row, zeros_.data(), dim);
  for (uint64_t step = done; step < step_; ++step) {
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
      return FadeState(options.rule, row + dim, dim, step_ - step - 1);
    }
    before.assign(row, row + dim);
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
      const float* delta = deltas + batch.place(begin + i) * dim;
      float* row = arena_.at(located[i]);
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

Status SparseShard::Accumulate(const KeyBatch& batch, const float* gradients,
                               const float* shows, const float* clicks) {
  const size_t dim = layout_.dim;
  if (layout_.show == RowLayout::kAbsent) shows = nullptr;
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
      if (shows != nullptr) {
        waiting_shows_.resize(waiting_.size());
        waiting_clicks_.resize(waiting_.size());
        waiting_shows_[number] += shows[place];
        if (clicks != nullptr) waiting_clicks_[number] += clicks[place];
      }
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
  if (factor != 1.0f) {
    for (float& x : waiting_sums_) x *= factor;
  }
  // Shows are counts, of which the sum is what one process would have counted.
  const bool shown = !waiting_shows_.empty();
  if (shown) {
    waiting_shows_.resize(waiting_.size());
    waiting_clicks_.resize(waiting_.size());
  }
  Status pushed =
      Push({waiting_.keys().data(), nullptr, waiting_.size()},
           waiting_sums_.data(), shown ? waiting_shows_.data() : nullptr,
           shown ? waiting_clicks_.data() : nullptr);
  waiting_.Reset();
  waiting_sums_.clear();
  waiting_shows_.clear();
  waiting_clicks_.clear();
  return pushed;
}

}  // namespace fleet::table
