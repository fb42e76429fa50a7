// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/chain.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <ATen/Parallel.h>

#include "fleet/exec/direct.h"
#include "fleet/ops/sums.h"

namespace fleet::exec {
namespace {

// 4 KB: half a dozen of them fit in the first cache, and the call of an
// operation is a few percent of its work on one.
constexpr int64_t kBlock = 1024;
// What a chain has room for. The rooms lie on the stack, 96 KB; most chains use
// a few of them, those that use more still find them in the second cache.
constexpr size_t kMaxRooms = 24;
constexpr size_t kMaxPlaces = 96;
constexpr size_t kMaxLaid = 12;
constexpr size_t kMaxNumbers = 64;
constexpr size_t kMaxSums = 64;
constexpr int64_t kMaxParts = 8;
constexpr uint8_t kNowhere = kMaxPlaces;  // an operand that is absent

// The elements of a value that lie over [first, first + size) of the pass.
// `phase` is where in the value the block began that lies in `room`.
const float* Lay(const Spread& s, const float* y, int64_t first, int64_t size,
                 float* room, int64_t& phase) {
  const int64_t begin = first % (s.middle * s.inner);
  if (s.inner == 1 && begin + size <= s.middle) return y + begin;
  // No block is longer than that before it.
  if (phase == begin) return room;
  phase = begin;
  int64_t j = begin / s.inner;
  int64_t left = s.inner - begin % s.inner;
  for (int64_t i = 0; i < size;) {
    if (s.inner == 1) {
      const int64_t n = std::min(size - i, s.middle - j);
      std::copy_n(y + j, n, room + i);
      i += n;
      j = 0;
    } else {
      const int64_t n = std::min(size - i, left);
      std::fill_n(room + i, n, y[j]);
      i += n;
      left = s.inner;
      j = j + 1 == s.middle ? 0 : j + 1;
    }
  }
  return room;
}

// Adds rows of `columns` elements to the sums of the columns, a few columns at
// a time, which stay in registers. The rows are added up before: a sum of few
// blocks of few rows is nearer than one of many rows.
void AddRows(int64_t rows, int64_t columns, const float* x, float* sums) {
  constexpr int64_t kTile = 16;
  int64_t j = 0;
  for (; j + kTile <= columns; j += kTile) {
    float tile[kTile] = {};
    for (int64_t i = 0; i < rows; ++i) {
      const float* row = x + i * columns + j;
      for (int64_t k = 0; k < kTile; ++k) tile[k] += row[k];
    }
    for (int64_t k = 0; k < kTile; ++k) sums[j + k] += tile[k];
  }
  for (; j < columns; ++j) {
    float total = 0;
    for (int64_t i = 0; i < rows; ++i) total += x[i * columns + j];
    sums[j] += total;
  }
}

// Adds the elements of a block that begins at `first` to the sums over which
// they lie.
void Accumulate(const Spread& s, const float* x, int64_t first, int64_t size,
                float* sums) {
  const int64_t begin = first % (s.middle * s.inner);
  int64_t j = begin / s.inner;
  if (s.inner == 1) {
    // The end of a row, whole rows, the beginning of one.
    const int64_t before = j == 0 ? 0 : std::min(size, s.middle - j);
    AddRows(1, before, x, sums + j);
    const int64_t rows = (size - before) / s.middle;
    AddRows(rows, s.middle, x + before, sums);
    const int64_t done = before + rows * s.middle;
    AddRows(1, size - done, x + done, sums);
    return;
  }
  int64_t left = s.inner - begin % s.inner;
  for (int64_t i = 0; i < size;) {
    const int64_t n = std::min(size - i, left);
    sums[j] += static_cast<float>(ops::Total(n, x + i));
    i += n;
    left = s.inner;
    j = j + 1 == s.middle ? 0 : j + 1;
  }
}

}  // namespace

// Finds out who needs what, and gives everything a place.
class Chain::Maker {
 public:
  Maker(Chain& chain, std::span<const ChainStep> steps)
      : chain_(chain), steps_(steps), last_use_(steps.size(), kNone) {}

  bool Make(const std::function<bool(int value)>& is_needed) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      made_[Key(steps_[i].out)] = static_cast<int>(i);
    }
    FindUses(is_needed);
    // What is laid out keeps its room from one block to the next: before all.
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (last_use_[i] == kNone) continue;
      for (const ChainOperand* operand :
           {&steps_[i].a, &steps_[i].b, &steps_[i].c}) {
        Place(*operand);
      }
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (last_use_[i] != kNone && !Add(static_cast<int>(i))) return false;
    }
    return true;
  }

 private:
  using Made = std::pair<ChainOperand::From, int>;
  static constexpr int kForever = INT32_MAX;  // it goes to memory

  static Made Key(const ChainOperand& operand) {
    return {operand.from, operand.index};
  }
  // The step that makes an operand, or kNone.
  int MakerOf(const ChainOperand& operand) const {
    auto found = made_.find(Key(operand));
    return found == made_.end() ? kNone : found->second;
  }

  void FindUses(const std::function<bool(int value)>& is_needed) {
    for (size_t i = steps_.size(); i-- > 0;) {
      const ChainStep& step = steps_[i];
      if (step.out.from == ChainOperand::kValue && is_needed(step.out.index)) {
        last_use_[i] = kForever;
      }
      if (last_use_[i] == kNone) continue;
      for (const ChainOperand* operand : {&step.a, &step.b, &step.c}) {
        const int maker = MakerOf(*operand);
        if (maker == kNone) continue;
        last_use_[maker] = std::max(last_use_[maker], static_cast<int>(i));
      }
    }
  }

  bool Add(int i) {
    const ChainStep& from = steps_[i];
    Step to{.function = base::FindBlockFunction(from.op)};
    to.a = Place(from.a);
    to.b = Place(from.b);
    to.c = Place(from.c);
    to.s = PlaceNumber(from.s);
    to.t = PlaceNumber(from.t);
    // The result may take the room of an operand that is used for the last
    // time.
    for (size_t room = 0; room < free_at_.size(); ++room) {
      if (free_at_[room] == i) free_at_[room] = kNone;
    }
    if (from.is_sum) {
      const Spread& spread = from.out.spread;
      to.function = nullptr;
      to.out = Checked(chain_.sums_.size(), kMaxSums);
      chain_.sums_.push_back(
          {from.out.index, spread, from.factor, chain_.sums_size_});
      chain_.sums_size_ += spread.middle;
      chain_.writes_.push_back(from.out.index);
    } else if (last_use_[i] == kForever) {
      to.out = PlaceValue(from.out.index);
      chain_.writes_.push_back(from.out.index);
    } else {
      to.out = TakeRoom(last_use_[i]);
    }
    places_[i] = to.out;
    chain_.steps_.push_back(to);
    return fits_;
  }

  uint8_t Place(const ChainOperand& operand) {
    if (operand.from == ChainOperand::kAbsent) return kNowhere;
    const int maker = MakerOf(operand);
    if (maker != kNone) return places_[maker];  // if it has one yet
    const bool is_new = std::find(chain_.reads_.begin(), chain_.reads_.end(),
                                  operand.index) == chain_.reads_.end();
    if (is_new) chain_.reads_.push_back(operand.index);
    if (operand.spread.same()) {
      return PlaceValue(operand.index);
    }
    return PlaceLaid(operand);
  }

  // Rooms have the first places, then come values, then those laid out.
  uint8_t PlaceValue(int value) {
    auto [found, is_new] = values_.try_emplace(value, chain_.values_.size());
    if (is_new) chain_.values_.push_back(value);
    return Checked(kMaxRooms + found->second, kMaxPlaces - kMaxLaid);
  }

  uint8_t PlaceLaid(const ChainOperand& operand) {
    const Spread& s = operand.spread;
    size_t k = 0;
    for (; k < chain_.laid_.size(); ++k) {
      const Laid& laid = chain_.laid_[k];
      if (laid.value == operand.index && laid.spread.middle == s.middle &&
          laid.spread.inner == s.inner) {
        break;
      }
    }
    if (k == chain_.laid_.size()) {
      chain_.laid_.push_back({operand.index, s, TakeRoom(kForever)});
    }
    return Checked(kMaxPlaces - kMaxLaid + k, kMaxPlaces);
  }

  uint8_t TakeRoom(int until) {
    auto room = std::find(free_at_.begin(), free_at_.end(), kNone);
    if (room == free_at_.end()) room = free_at_.insert(room, kNone);
    *room = until;
    return Checked(room - free_at_.begin(), kMaxRooms);
  }

  uint8_t PlaceNumber(const ChainOperand& operand) {
    const Number number{operand.index, operand.number};
    for (size_t k = 0; k < chain_.numbers_.size(); ++k) {
      const Number& other = chain_.numbers_[k];
      if (other.value == number.value &&
          (number.value != kNone || other.number == number.number)) {
        return Checked(k, kMaxNumbers);
      }
    }
    chain_.numbers_.push_back(number);
    if (number.value != kNone) chain_.reads_.push_back(number.value);
    return Checked(chain_.numbers_.size() - 1, kMaxNumbers);
  }

  uint8_t Checked(size_t place, size_t end) {
    fits_ = fits_ && place < end;
    return static_cast<uint8_t>(place);
  }

  Chain& chain_;
  std::span<const ChainStep> steps_;
  std::map<Made, int> made_;       // steps, by what they make
  std::vector<int> last_use_;      // by step; kNone: nobody needs it
  std::map<int, uint8_t> places_;  // by step
  std::map<int, size_t> values_;   // in Chain::values_
  std::vector<int> free_at_;       // by room: the step that ends its use
  bool fits_ = true;
};

std::shared_ptr<const Chain> Chain::Make(
    int64_t numel, std::span<const ChainStep> steps,
    const std::function<bool(int value)>& is_needed) {
  std::shared_ptr<Chain> chain(new Chain());
  chain->numel_ = numel;
  if (!Maker(*chain, steps).Make(is_needed)) return nullptr;
  // As many operations as make a thread of its own worth while.
  const auto work = static_cast<int64_t>(chain->steps_.size() + 1);
  chain->grain_ = std::max(65536 / work, 4 * kBlock);
  if (!chain->sums_.empty()) {
    // Not more than a sum is worth, whose parts must be added again.
    chain->num_parts_ = std::clamp<int64_t>(
        numel / std::max(chain->grain_, 8 * chain->sums_size_), 1, kMaxParts);
    chain->partial_.resize(chain->num_parts_ * chain->sums_size_);
  }
  return chain;
}

void Chain::Run(void* const* memory) const {
  std::array<float, kMaxNumbers> numbers;
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const Number& number = numbers_[i];
    numbers[i] =
        number.value == kNone ? number.number : *FloatIn(memory, number.value);
  }
  if (!sums_.empty()) {
    RunParts(memory, numbers.data());
  } else if (numel_ <= grain_) {
    RunRange(memory, numbers.data(), 0, numel_, nullptr);
  } else {
    at::parallel_for(0, numel_, grain_, [&](int64_t begin, int64_t end) {
      RunRange(memory, numbers.data(), begin, end, nullptr);
    });
  }
}

void Chain::RunParts(void* const* memory, const float* numbers) const {
  std::fill(partial_.begin(), partial_.end(), 0.0f);
  const int64_t blocks = (numel_ + kBlock - 1) / kBlock;
  const int64_t size = (blocks + num_parts_ - 1) / num_parts_ * kBlock;
  auto run = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      RunRange(memory, numbers, part * size,
               std::min((part + 1) * size, numel_),
               partial_.data() + part * sums_size_);
    }
  };
  if (num_parts_ == 1) {
    run(0, 1);
  } else {
    at::parallel_for(0, num_parts_, 1, run);
  }
  for (const Sum& sum : sums_) {
    float* out = FloatOut(memory, sum.value);
    for (int64_t j = 0; j < sum.spread.middle; ++j) {
      float total = 0;
      for (int64_t part = 0; part < num_parts_; ++part) {
        total += partial_[part * sums_size_ + sum.offset + j];
      }
      out[j] = static_cast<float>(total * sum.factor);
    }
  }
}

void Chain::RunRange(void* const* memory, const float* numbers, int64_t begin,
                     int64_t end, float* sums) const {
  alignas(64) float rooms[kMaxRooms][kBlock];
  std::array<float*, kMaxPlaces + 1> at;
  at[kNowhere] = nullptr;
  for (size_t i = 0; i < kMaxRooms; ++i) at[i] = rooms[i];
  std::array<int64_t, kMaxLaid> phases;
  phases.fill(-1);
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t size = std::min(kBlock, end - first);
    for (size_t i = 0; i < values_.size(); ++i) {
      at[kMaxRooms + i] = FloatOut(memory, values_[i]) + first;
    }
    for (size_t i = 0; i < laid_.size(); ++i) {
      const Laid& laid = laid_[i];
      // Nobody writes there.
      at[kMaxPlaces - kMaxLaid + i] =
          const_cast<float*>(Lay(laid.spread, FloatIn(memory, laid.value),
                                 first, size, rooms[laid.room], phases[i]));
    }
    for (const Step& step : steps_) {
      if (step.function == nullptr) {
        const Sum& sum = sums_[step.out];
        Accumulate(sum.spread, at[step.a], first, size, sums + sum.offset);
        continue;
      }
      step.function({.a = at[step.a],
                     .b = at[step.b],
                     .c = at[step.c],
                     .s = numbers[step.s],
                     .t = numbers[step.t],
                     .out = at[step.out],
                     .size = static_cast<size_t>(size)});
    }
  }
}

}  // namespace fleet::exec
