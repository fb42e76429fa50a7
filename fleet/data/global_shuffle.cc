// SPDX-License-Identifier: Apache-2.0

// Samples to another worker are a stream of words. In each round every worker
// gives every other the next part of its stream; streams end together, when
// every worker has said that nothing is left.

#include "fleet/data/global_shuffle.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "fleet/base/bytes.h"
#include "fleet/data/shuffle.h"

namespace fleet::data {
namespace {

// The size of a part. Two times as many bytes as workers times this are in use;
// a quarter of a megabyte is enough for the speed of a network.
constexpr size_t kPartWords = size_t{64} << 10;
constexpr size_t kBlockWords = size_t{256} << 10;

struct PartHead {
  uint64_t num_words;
  uint64_t is_last;
};
constexpr size_t kHeadWords = sizeof(PartHead) / sizeof(uint32_t);

// What is said before the first round.
struct Opening {
  uint64_t num_samples = 0;
  uint64_t layout = 0;
};

// A number for the form of samples: equal for equal slots.
uint64_t LayoutOf(const std::vector<Slot>& slots) {
  uint64_t sum = 0xcbf29ce484222325u;
  auto add = [&](uint64_t value) { sum = Random(sum ^ value).Next(); };
  for (const Slot& slot : slots) {
    for (char c : slot.name) add(static_cast<unsigned char>(c));
    add(static_cast<uint64_t>(slot.type));
    add(slot.ragged ? 1 : 2);
    for (int64_t dim : slot.dims) add(static_cast<uint64_t>(dim));
  }
  return sum;
}

class Dealer final {
 public:
  Dealer(Blocks blocks, Exchange& exchange, uint64_t seed)
      : blocks_(std::move(blocks)),
        exchange_(exchange),
        size_(static_cast<size_t>(exchange.size())),
        random_(seed + static_cast<uint64_t>(exchange.rank())),
        going_(size_),
        coming_(size_) {}

  Status Open(const std::vector<Slot>& slots, base::Deadline deadline) {
    Opening mine{.layout = LayoutOf(slots)};
    for (const auto& block : blocks_) mine.num_samples += block->num_samples();
    const std::vector<Opening> from(size_, mine);
    std::vector<Opening> to(size_);
    RETURN_IF_ERROR(exchange_.AllToAll(std::as_bytes(std::span(from)),
                                       std::as_writable_bytes(std::span(to)),
                                       deadline));
    for (size_t i = 0; i < size_; ++i) {
      if (to[i].layout != mine.layout) {
        return InvalidArgument("global shuffle: worker ", i,
                               " reads other slots than worker ",
                               exchange_.rank());
      }
      if (static_cast<int>(i) < exchange_.rank()) next_ += to[i].num_samples;
    }
    return OkStatus();
  }

  Result<Blocks> Run(base::Deadline deadline) {
    const size_t part = kHeadWords + kPartWords;
    std::vector<uint32_t> from(part * size_);
    std::vector<uint32_t> to(part * size_);
    bool all_done = false;
    while (!all_done) {
      FillStreams();
      WriteParts(from, part);
      RETURN_IF_ERROR(exchange_.AllToAll(std::as_bytes(std::span(from)),
                                         std::as_writable_bytes(std::span(to)),
                                         deadline));
      ASSIGN_OR_RETURN(all_done, ReadParts(to, part));
    }
    CloseBlock();
    return std::move(received_);
  }

 private:
  // Words on their way to or from one worker.
  struct Stream {
    std::vector<uint32_t> words;
    size_t done = 0;  // of them
    size_t left() const { return words.size() - done; }
    void DropDone() {
      words.erase(words.begin(),
                  words.begin() + static_cast<std::ptrdiff_t>(done));
      done = 0;
    }
  };

  // Until one of them has a part, or all samples are dealt. Samples go round
  // over the workers in a random order inside of each block, so that all get
  // the same number of them.
  void FillStreams() {
    for (Stream& stream : going_) stream.DropDone();
    auto full = [](const Stream& s) { return s.left() >= kPartWords; };
    while (std::none_of(going_.begin(), going_.end(), full)) {
      if (in_block_ == order_.size() && !NextBlock()) return;
      const std::span<const uint32_t> sample =
          blocks_[block_]->sample(order_[in_block_++]).words();
      std::vector<uint32_t>& to = going_[next_++ % size_].words;
      to.insert(to.end(), sample.begin(), sample.end());
    }
  }

  // The block before is not needed any more.
  bool NextBlock() {
    if (begun_) blocks_[block_++].reset();
    begun_ = block_ < blocks_.size();
    in_block_ = 0;
    order_.clear();
    if (!begun_) return false;
    order_.resize(blocks_[block_]->num_samples());
    std::iota(order_.begin(), order_.end(), size_t{0});
    Shuffle(std::span(order_), random_);
    return true;
  }

  void WriteParts(std::vector<uint32_t>& from, size_t part) {
    bool done = !begun_ && block_ >= blocks_.size();
    for (const Stream& stream : going_) done &= stream.left() <= kPartWords;
    for (size_t i = 0; i < size_; ++i) {
      Stream& stream = going_[i];
      const size_t count = std::min(stream.left(), kPartWords);
      const PartHead head{count, done ? 1u : 0u};
      uint32_t* to = from.data() + i * part;
      base::StoreAt(std::as_writable_bytes(std::span(to, kHeadWords)), 0, head);
      std::copy_n(
          stream.words.begin() + static_cast<std::ptrdiff_t>(stream.done),
          count, to + kHeadWords);
      stream.done += count;
    }
  }

  // Whether all workers have said that nothing is left.
  Result<bool> ReadParts(const std::vector<uint32_t>& to, size_t part) {
    bool all_done = true;
    for (size_t i = 0; i < size_; ++i) {
      const uint32_t* words = to.data() + i * part;
      const auto head = base::LoadAt<PartHead>(
          std::as_bytes(std::span(words, kHeadWords)), 0);
      if (head.num_words > kPartWords) {
        return DataLoss("global shuffle: worker ", i, " sent a part of ",
                        head.num_words, " words");
      }
      all_done &= head.is_last != 0;
      words += kHeadWords;
      coming_[i].words.insert(coming_[i].words.end(), words,
                              words + head.num_words);
      RETURN_IF_ERROR(TakeSamples(i));
    }
    for (size_t i = 0; all_done && i < size_; ++i) {
      if (coming_[i].left() > 0) {
        return DataLoss("global shuffle: worker ", i,
                        " ended in the middle of a sample");
      }
    }
    return all_done;
  }

  // Those that are whole.
  Status TakeSamples(size_t worker) {
    Stream& stream = coming_[worker];
    while (stream.left() > 0) {
      uint32_t* sample = stream.words.data() + stream.done;
      if (sample[0] < kSampleHeadWords) {
        return DataLoss("global shuffle: worker ", worker,
                        " sent what is no sample");
      }
      if (sample[0] > stream.left()) break;
      const size_t count = sample[0];
      // Numbers of files mean something to the worker that read them.
      if (static_cast<int>(worker) != exchange_.rank()) {
        sample[1] = kForeignFile;
      }
      open_->Append({sample, count});
      stream.done += count;
      if (open_->num_words() >= kBlockWords) CloseBlock();
    }
    stream.DropDone();
    return OkStatus();
  }

  void CloseBlock() {
    if (open_->num_samples() == 0) return;
    open_->Close();
    received_.push_back(std::move(open_));
    open_ = std::make_shared<SampleBlock>();
  }

  Blocks blocks_;
  Exchange& exchange_;
  const size_t size_;
  Random random_;
  uint64_t next_ = 0;  // position of the next sample among those of all workers
  size_t block_ = 0;   // whose samples are dealt
  bool begun_ = false;
  std::vector<size_t> order_;  // of the samples in it
  size_t in_block_ = 0;
  std::vector<Stream> going_;
  std::vector<Stream> coming_;
  std::shared_ptr<SampleBlock> open_ = std::make_shared<SampleBlock>();
  Blocks received_;
};

}  // namespace

Result<Blocks> DealSamples(Blocks blocks, const std::vector<Slot>& slots,
                           Exchange& exchange, uint64_t seed,
                           base::Deadline deadline) {
  Dealer dealer(std::move(blocks), exchange, seed);
  RETURN_IF_ERROR(dealer.Open(slots, deadline));
  return dealer.Run(deadline);
}

}  // namespace fleet::data
