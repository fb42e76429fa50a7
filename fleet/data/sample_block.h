// SPDX-License-Identifier: Apache-2.0

// Samples as they lie in memory and travel between workers: one behind the
// other in words of 32 bits, so that a sample is moved by one copy and none has
// memory of its own. A sample is
//
//   its number of words, the number of its file,
//   then for each slot: the number of its values if the slot is ragged,
//                       its values (int64: two words; float32: one)

#ifndef FLEET_DATA_SAMPLE_BLOCK_H_
#define FLEET_DATA_SAMPLE_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace fleet::data {

inline constexpr size_t kSampleHeadWords = 2;
// The file of a sample that another worker read.
inline constexpr uint32_t kForeignFile = UINT32_MAX;

// One sample, seen in the block that holds it.
class SampleView final {
 public:
  explicit SampleView(const uint32_t* words) : words_(words) {}
  uint32_t num_words() const { return words_[0]; }
  uint32_t file() const { return words_[1]; }
  const uint32_t* values() const { return words_ + kSampleHeadWords; }
  std::span<const uint32_t> words() const { return {words_, num_words()}; }

 private:
  const uint32_t* words_;
};

// Grows at its end. One thread at a time while it does; then only read.
class SampleBlock final {
 public:
  SampleBlock() = default;
  // With room for about so many bytes.
  explicit SampleBlock(size_t byte_size) { Move(byte_size / sizeof(uint32_t)); }

  size_t num_samples() const { return starts_.size(); }
  size_t num_words() const { return size_; }
  size_t byte_size() const {
    return capacity_ * sizeof(uint32_t) + starts_.capacity() * sizeof(size_t);
  }
  SampleView sample(size_t i) const {
    return SampleView(words_.get() + starts_[i]);
  }

  // A sample is begun, gets its words, and is ended or dropped.
  void Begin(uint32_t file) {
    start_ = size_;
    uint32_t* head = Grow(kSampleHeadWords);
    head[1] = file;
  }
  // Room for so many words more; they count when they are Used().
  uint32_t* Reserve(size_t num_words) {
    if (size_ + num_words > capacity_) Enlarge(size_ + num_words);
    return words_.get() + size_;
  }
  void Used(size_t num_words) { size_ += num_words; }
  uint32_t* Grow(size_t num_words) {
    uint32_t* words = Reserve(num_words);
    Used(num_words);
    return words;
  }
  void End() {
    words_[start_] = static_cast<uint32_t>(size_ - start_);
    starts_.push_back(start_);
  }
  void Drop() { size_ = start_; }
  // Nothing more comes: lets go of room that is left, if it is much.
  void Close() {
    if (capacity_ - size_ > size_ / 4) Move(size_);
    starts_.shrink_to_fit();
  }

  // A whole sample, as it was in another block.
  void Append(std::span<const uint32_t> sample) {
    start_ = size_;
    std::memcpy(Grow(sample.size()), sample.data(), sample.size_bytes());
    starts_.push_back(start_);
  }

 private:
  void Enlarge(size_t num_words) {
    Move(std::max({num_words, capacity_ * 2, size_t{16 << 10}}));
  }
  void Move(size_t capacity) {
    auto words = std::make_unique_for_overwrite<uint32_t[]>(capacity);
    if (size_ > 0) {
      std::memcpy(words.get(), words_.get(), size_ * sizeof(uint32_t));
    }
    words_ = std::move(words);
    capacity_ = capacity;
  }

  std::unique_ptr<uint32_t[]> words_;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t start_ = 0;  // of the sample that was begun last
  std::vector<size_t> starts_;
};

}  // namespace fleet::data

#endif  // FLEET_DATA_SAMPLE_BLOCK_H_
