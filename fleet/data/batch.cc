// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/batch.h"

#include <cstring>

namespace fleet::data {

// Slot by slot: a column is then written from front to back, and the samples of
// a batch stay in the cache between slots.
void Batch::Fill(const std::vector<Slot>& slots,
                 std::span<const SampleView> samples) {
  num_samples_ = samples.size();
  columns_.resize(slots.size());
  cursors_.resize(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) cursors_[i] = samples[i].values();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].ragged) {
      FillRagged(slots[i], columns_[i]);
    } else {
      FillDense(slots[i], columns_[i]);
    }
  }
}

void Batch::FillRagged(const Slot& slot, Column& column) {
  const size_t width = slot.width();
  column.offsets.resize(num_samples_ + 1);
  column.offsets[0] = 0;
  for (size_t i = 0; i < num_samples_; ++i) {
    column.offsets[i + 1] =
        column.offsets[i] + static_cast<int64_t>(*cursors_[i] / width);
  }
  const size_t total = static_cast<size_t>(column.offsets.back()) * width;
  const bool is_float = slot.type == SlotType::kFloat32;
  column.floats.resize(is_float ? total : 0);
  column.ints.resize(is_float ? 0 : total);
  char* to = is_float ? reinterpret_cast<char*>(column.floats.data())
                      : reinterpret_cast<char*>(column.ints.data());
  const size_t words_of_value = is_float ? 1 : 2;
  for (const uint32_t*& cursor : cursors_) {
    const size_t words = *cursor++ * words_of_value;
    if (words == 0) continue;
    std::memcpy(to, cursor, words * sizeof(uint32_t));
    to += words * sizeof(uint32_t);
    cursor += words;
  }
}

void Batch::FillDense(const Slot& slot, Column& column) {
  const size_t width = slot.width();
  const bool is_float = slot.type == SlotType::kFloat32;
  column.offsets.clear();
  column.floats.resize(is_float ? width * num_samples_ : 0);
  column.ints.resize(is_float ? 0 : width * num_samples_);
  char* to = is_float ? reinterpret_cast<char*>(column.floats.data())
                      : reinterpret_cast<char*>(column.ints.data());
  const size_t words = width * (is_float ? 1 : 2);
  for (const uint32_t*& cursor : cursors_) {
    std::memcpy(to, cursor, words * sizeof(uint32_t));
    to += words * sizeof(uint32_t);
    cursor += words;
  }
}

}  // namespace fleet::data
