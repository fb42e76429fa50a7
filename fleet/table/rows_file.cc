// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/rows_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/bytes.h"
#include "fleet/base/check.h"
#include "fleet/base/crc32c.h"
#include "fleet/base/exceptions.h"
#include "fleet/base/queue.h"

namespace fleet::table {
namespace {

using base::BytesOf;
using base::Deadline;

constexpr std::string_view kMagic = "FLEETROW";
constexpr uint32_t kVersion = 1;
// Rows of a block: enough that its checksum costs nothing, few enough that a
// reader needs little memory.
constexpr size_t kBlockRows = 4096;
constexpr size_t kBlockByteSize = size_t{1} << 20;
// Written between two rests.
constexpr size_t kLeastPiece = size_t{32} << 10;
// Blocks between the two threads: one is worked on while the other waits.
constexpr size_t kBlocksAhead = 2;
// What no header reaches.
constexpr uint32_t kMaxTextSize = 1 << 20;
constexpr uint32_t kMaxRowFloats = 1 << 24;

// The head of a file. Behind it the two texts and the checksum of all three.
struct Head {
  char magic[8];
  uint32_t version;
  uint32_t dim;
  uint32_t row_floats;
  uint32_t table_size;
  uint32_t layout_size;
  uint32_t zero;
  uint64_t num_rows;
  uint64_t num_erased;
};
static_assert(sizeof(Head) == 48);

// The head of a block. Behind it `count` keys, then their rows.
struct BlockHead {
  uint32_t count;
  uint32_t checksum;  // of keys and rows
};
static_assert(sizeof(BlockHead) == 8);

size_t RowsOfBlock(size_t row_floats) {
  const size_t rows = kBlockByteSize / (row_floats * sizeof(float) + 8);
  return std::clamp<size_t>(rows, 1, kBlockRows);
}

}  // namespace

// The file and the block that is being filled.
class RowsWriter::File final {
 public:
  File(base::AtomicFile file, const RowsHeader& header,
       std::function<bool()> rest)
      : file_(std::move(file)),
        header_(header),
        rest_(std::move(rest)),
        of_block_(RowsOfBlock(header.row_floats)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { (void)Join(); }

  Status WriteHeader() {
    Head head{};
    kMagic.copy(head.magic, 8);
    head.version = kVersion;
    head.dim = header_.dim;
    head.row_floats = header_.row_floats;
    head.table_size = static_cast<uint32_t>(header_.table.size());
    head.layout_size = static_cast<uint32_t>(header_.layout.size());
    head.num_rows = header_.num_rows;
    head.num_erased = header_.num_erased;
    RETURN_IF_ERROR(Append(BytesOf(head)));
    RETURN_IF_ERROR(Append(std::as_bytes(std::span(header_.table))));
    RETURN_IF_ERROR(Append(std::as_bytes(std::span(header_.layout))));
    const uint32_t checksum = checksum_;
    return Append(BytesOf(checksum));
  }

  Status AddRows(size_t count, const FillRows& fill) {
    const size_t stride = header_.row_floats;
    while (count > 0) {
      RETURN_IF_ERROR(BeginBlock(stride));
      const size_t n = std::min(count, of_block_ - count_);
      RETURN_IF_ERROR(fill(std::span(keys() + count_, n),
                           std::span(rows() + count_ * stride, n * stride)));
      count_ += n;
      num_added_ += n;
      count -= n;
      // Erased keys are blocks of their own.
      if (count_ == of_block_ || num_added_ == header_.num_rows) {
        RETURN_IF_ERROR(EndBlock(stride));
      }
    }
    return OkStatus();
  }

  Status AddErased(Key key) {
    RETURN_IF_ERROR(BeginBlock(0));
    keys()[count_++] = key;
    ++num_added_;
    return count_ == of_block_ ? EndBlock(0) : OkStatus();
  }

  Status Commit() {
    // What is left are erased keys: rows end their last block themselves.
    if (count_ > 0) RETURN_IF_ERROR(EndBlock(0));
    RETURN_IF_ERROR(Join());
    if (num_added_ != header_.num_rows + header_.num_erased) {
      return Internal(file_.path().string(), ": ", num_added_, " rows of ",
                      header_.num_rows + header_.num_erased);
    }
    return file_.Commit();
  }

  uint64_t byte_size() const { return file_.byte_size(); }
  uint32_t checksum() const { return checksum_; }

 private:
  using Block = std::vector<std::byte>;

  Key* keys() { return reinterpret_cast<Key*>(&block_[sizeof(BlockHead)]); }
  float* rows() { return reinterpret_cast<float*>(keys() + of_block_); }

  Status BeginBlock(size_t row_floats) {
    if (!block_.empty()) return OkStatus();
    const size_t byte_size =
        sizeof(BlockHead) +
        of_block_ * (sizeof(Key) + row_floats * sizeof(float));
    // One that has been written is used again.
    if (thread_.joinable() && num_blocks_ > kBlocksAhead) {
      ASSIGN_OR_RETURN(std::optional<Block> used,
                       written_.Pop(Deadline::Infinite()));
      if (used.has_value()) block_ = std::move(*used);
    }
    block_.resize(byte_size);
    ++num_blocks_;
    return OkStatus();
  }

  Status EndBlock(size_t row_floats) {
    // The last block is shorter, and its rows follow its keys.
    if (count_ < of_block_) {
      std::memmove(keys() + count_, rows(),
                   count_ * row_floats * sizeof(float));
    }
    block_.resize(sizeof(BlockHead) +
                  count_ * (sizeof(Key) + row_floats * sizeof(float)));
    const BlockHead head{
        static_cast<uint32_t>(count_),
        base::Crc32c(std::span(block_).subspan(sizeof(BlockHead)))};
    base::StoreAt(block_, 0, head);
    count_ = 0;
    Block block = std::exchange(block_, {});
    // A file of one block is not worth a thread.
    if (header_.num_rows + header_.num_erased <= of_block_) {
      return Write(block);
    }
    if (!thread_.joinable()) thread_ = std::jthread([this] { WriteLoop(); });
    return full_.Push(std::move(block), Deadline::Infinite());
  }

  // Until the queue is closed, or a write fails, which the caller then meets.
  // A disk has no deadline: what ends the waits is the other thread.
  void WriteLoop() {
    while (true) {
      Result<std::optional<Block>> block = full_.Pop(Deadline::Infinite());
      if (!block.ok() || !block->has_value()) return;
      const Status written = base::CatchExceptions([&]() -> Status {
        RETURN_IF_ERROR(Write(**block));
        return written_.Push(std::move(**block), Deadline::Infinite());
      });
      if (!written.ok()) {
        full_.Abort(written);
        written_.Abort(written);
        return;
      }
    }
  }

  Status Write(const Block& block) {
    const auto head = base::LoadAt<BlockHead>(block, 0);
    checksum_ = base::Crc32c(BytesOf(head), checksum_);
    // The sum over the content is known already.
    checksum_ =
        base::JoinCrc32c(checksum_, head.checksum, block.size() - sizeof(head));
    for (std::span<const std::byte> left = block; !left.empty();) {
      const size_t size = std::min(left.size(), piece_);
      RETURN_IF_ERROR(file_.Append(left.first(size)));
      left = left.subspan(size);
      const bool rested = rest_ && rest_();
      piece_ = rested ? kLeastPiece : std::min(2 * piece_, kBlockByteSize);
    }
    return OkStatus();
  }

  Status Append(std::span<const std::byte> bytes) {
    checksum_ = base::Crc32c(bytes, checksum_);
    return file_.Append(bytes);
  }

  Status Join() {
    if (!thread_.joinable()) return OkStatus();
    full_.Close();
    // Nobody takes used blocks any more.
    thread_.join();
    // A queue that was aborted says why.
    Result<std::optional<Block>> end = full_.Pop(Deadline::Infinite());
    return end.status();
  }

  // The writing thread's, while there is one.
  base::AtomicFile file_;
  uint32_t checksum_ = 0;
  size_t piece_ = kBlockByteSize;  // that is written at a time

  const RowsHeader header_;
  const std::function<bool()> rest_;
  const size_t of_block_;
  Block block_;       // empty between blocks
  size_t count_ = 0;  // rows or erased keys in it
  uint64_t num_added_ = 0;
  size_t num_blocks_ = 0;

  base::BoundedQueue<Block> full_{kBlocksAhead};
  // Never full: there are at most so many blocks.
  base::BoundedQueue<Block> written_{2 * kBlocksAhead + 2};
  std::jthread thread_;
};

RowsWriter::RowsWriter(std::unique_ptr<File> file) : file_(std::move(file)) {}
RowsWriter::RowsWriter(RowsWriter&&) noexcept = default;
RowsWriter& RowsWriter::operator=(RowsWriter&&) noexcept = default;
RowsWriter::~RowsWriter() = default;

Result<RowsWriter> RowsWriter::Create(const base::Path& path,
                                      const RowsHeader& header,
                                      std::function<bool()> rest) {
  ASSIGN_OR_RETURN(base::AtomicFile created, base::AtomicFile::Create(path));
  auto file =
      std::make_unique<File>(std::move(created), header, std::move(rest));
  RETURN_IF_ERROR(file->WriteHeader());
  return RowsWriter(std::move(file));
}

Status RowsWriter::AddRow(Key key, std::span<const float> row) {
  return file_->AddRows(1, [&](std::span<Key> keys, std::span<float> rows) {
    keys[0] = key;
    std::copy(row.begin(), row.end(), rows.begin());
    return OkStatus();
  });
}

Status RowsWriter::AddRows(size_t count, const FillRows& fill) {
  return file_->AddRows(count, fill);
}

Status RowsWriter::AddErased(Key key) { return file_->AddErased(key); }

Status RowsWriter::Commit() { return file_->Commit(); }

uint64_t RowsWriter::byte_size() const { return file_->byte_size(); }

uint32_t RowsWriter::checksum() const { return file_->checksum(); }

namespace {

// Reads a file from front to back; what is missing is DataLoss.
class Input final {
 public:
  static Result<Input> Open(const base::Path& path) {
    ASSIGN_OR_RETURN(const uint64_t byte_size, base::FileSize(path));
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return ErrnoStatus(errno, path.string());
    return Input(path, file, byte_size);
  }

  Status Read(std::span<std::byte> into, std::string_view what) {
    const size_t got = std::fread(into.data(), 1, into.size(), file_.get());
    if (got == into.size()) {
      at_ += got;
      return OkStatus();
    }
    if (std::ferror(file_.get()) != 0) {
      return ErrnoStatus(errno, path_.string());
    }
    return Damaged("it ends after ", at_ + got, " bytes, in ", what);
  }

  Status ExpectEnd() {
    if (std::fgetc(file_.get()) == EOF) return OkStatus();
    return Damaged("more than its ", at_, " bytes");
  }

  // How many bytes are still to come.
  uint64_t rest() const { return byte_size_ > at_ ? byte_size_ - at_ : 0; }
  Status EndsIn(std::string_view what) const {
    return Damaged("it ends after ", byte_size_, " bytes, in ", what);
  }

  template <typename... Parts>
  Status Damaged(const Parts&... parts) const {
    return DataLoss(path_.string(), ": ", parts...);
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  Input(base::Path path, std::FILE* file, uint64_t byte_size)
      : path_(std::move(path)), file_(file), byte_size_(byte_size) {
    // Blocks are read whole; a buffer between would only copy.
    (void)std::setvbuf(file, nullptr, _IONBF, 0);
  }

  base::Path path_;
  std::unique_ptr<std::FILE, Closer> file_;
  uint64_t byte_size_;
  uint64_t at_ = 0;
};

// Whether `rest` bytes hold what the header promises, so that whoever asks for
// memory for its rows asks for no more than the file has.
bool HasRoomFor(const RowsHeader& header, uint64_t rest) {
  const uint64_t row_byte_size =
      sizeof(Key) + uint64_t{header.row_floats} * sizeof(float);
  if (header.num_rows > rest / row_byte_size) return false;
  rest -= header.num_rows * row_byte_size;
  return header.num_erased <= rest / sizeof(Key);
}

Result<RowsHeader> ReadHeader(Input& in) {
  Head head;
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(&head, 1)), "its head"));
  if (std::string_view(head.magic, 8) != kMagic) {
    return in.Damaged("no file of table rows");
  }
  if (head.version != kVersion) {
    return in.Damaged("version ", head.version, ", and this is ", kVersion);
  }
  if (head.table_size > kMaxTextSize || head.layout_size > kMaxTextSize ||
      head.row_floats > kMaxRowFloats || head.dim > head.row_floats) {
    return in.Damaged("its head makes no sense");
  }
  if (uint64_t{head.table_size} + head.layout_size > in.rest()) {
    return in.EndsIn("its head");
  }
  RowsHeader header;
  header.table.resize(head.table_size);
  header.layout.resize(head.layout_size);
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(header.table)), "its head"));
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(header.layout)), "its head"));
  uint32_t checksum = 0;
  RETURN_IF_ERROR(
      in.Read(std::as_writable_bytes(std::span(&checksum, 1)), "its head"));
  uint32_t real = base::Crc32c(BytesOf(head));
  real = base::Crc32c(header.table, real);
  real = base::Crc32c(header.layout, real);
  if (checksum != real) return in.Damaged("its head is damaged");
  header.dim = head.dim;
  header.row_floats = head.row_floats;
  header.num_rows = head.num_rows;
  header.num_erased = head.num_erased;
  // A row without values would look like a key that was erased.
  if (header.num_rows > 0 && header.row_floats == 0) {
    return in.Damaged("its rows have no values");
  }
  if (!HasRoomFor(header, in.rest())) {
    return in.EndsIn(base::Concat("the first of ", header.num_rows,
                                  " rows and ", header.num_erased,
                                  " erased keys"));
  }
  return header;
}

// Blocks of a file, checked, one after the other.
class BlockReader final {
 public:
  struct Block {
    std::vector<Key> keys;  // none: the end
    std::vector<float> rows;
  };

  BlockReader(Input& in, const RowsHeader& header) : in_(in), header_(header) {}

  Status Next(Block& block) {
    if (done_ == num_keys_ && !erased_) {
      erased_ = true;
      done_ = 0;
      num_keys_ = header_.num_erased;
    }
    if (done_ == num_keys_) {
      block.keys.clear();
      return in_.ExpectEnd();
    }
    const size_t row_floats = erased_ ? 0 : header_.row_floats;
    const std::string where = base::Concat("key ", done_, " of ", num_keys_);
    BlockHead head;
    RETURN_IF_ERROR(
        in_.Read(std::as_writable_bytes(std::span(&head, 1)), where));
    if (head.count == 0 || head.count > kBlockRows ||
        head.count > num_keys_ - done_) {
      return in_.Damaged("a block of ", head.count, " rows at ", where);
    }
    block.keys.resize(head.count);
    block.rows.resize(head.count * row_floats);
    RETURN_IF_ERROR(
        in_.Read(std::as_writable_bytes(std::span(block.keys)), where));
    RETURN_IF_ERROR(
        in_.Read(std::as_writable_bytes(std::span(block.rows)), where));
    const uint32_t checksum =
        base::Crc32c(std::as_bytes(std::span(block.rows)),
                     base::Crc32c(std::as_bytes(std::span(block.keys))));
    if (checksum != head.checksum) {
      return in_.Damaged("the block at ", where, " is damaged");
    }
    for (size_t i = 0; i < block.keys.size() && !erased_; ++i) {
      if ((done_ > 0 || i > 0) && block.keys[i] <= last_) {
        return in_.Damaged("keys do not ascend at ", where);
      }
      last_ = block.keys[i];
    }
    done_ += head.count;
    return OkStatus();
  }

 private:
  Input& in_;
  const RowsHeader& header_;
  bool erased_ = false;
  uint64_t num_keys_ = header_.num_rows;
  uint64_t done_ = 0;
  Key last_ = 0;
};

// Reads and checks on a second thread, some blocks before the caller. A disk
// has no deadline: what ends the waits is the other thread.
class ReadAhead final {
 public:
  using Block = BlockReader::Block;

  explicit ReadAhead(BlockReader& reader)
      : reader_(reader), thread_([this] { ReadLoop(); }) {}
  ~ReadAhead() {
    const Status over = FailedPrecondition("reading is over");
    full_.Abort(over);
    used_.Abort(over);
    thread_.join();
  }

  // The next block. The one that it replaces is used again.
  Status Next(Block& block) {
    if (!block.keys.empty()) {
      (void)used_.Push(std::move(block), Deadline::Infinite());
    }
    ASSIGN_OR_RETURN(std::optional<Result<Block>> next,
                     full_.Pop(Deadline::Infinite()));
    FLEET_CHECK(next.has_value());  // the queues are aborted, never closed
    ASSIGN_OR_RETURN(block, *std::move(next));
    return OkStatus();
  }

 private:
  void ReadLoop() {
    const Status outcome = base::CatchExceptions([&] { return ReadAll(); });
    if (!outcome.ok()) full_.Abort(outcome);
  }
  Status ReadAll() {
    for (size_t i = 0;; ++i) {
      Block block;
      if (i > kBlocksAhead + 1) {
        ASSIGN_OR_RETURN(std::optional<Block> used,
                         used_.Pop(Deadline::Infinite()));
        FLEET_CHECK(used.has_value());
        block = *std::move(used);
      }
      const Status read = reader_.Next(block);
      const bool last = !read.ok() || block.keys.empty();
      Result<Block> item = read.ok() ? Result<Block>(std::move(block)) : read;
      RETURN_IF_ERROR(full_.Push(std::move(item), Deadline::Infinite()));
      if (last) return OkStatus();
    }
  }

  BlockReader& reader_;
  base::BoundedQueue<Result<Block>> full_{kBlocksAhead};
  // Never full: there are fewer blocks.
  base::BoundedQueue<Block> used_{2 * kBlocksAhead + 2};
  std::jthread thread_;
};

}  // namespace

Status ReadRows(const base::Path& path, const VisitRows& visit,
                const std::function<Status(const RowsHeader&)>& begin) {
  ASSIGN_OR_RETURN(Input in, Input::Open(path));
  ASSIGN_OR_RETURN(const RowsHeader header, ReadHeader(in));
  if (begin) RETURN_IF_ERROR(begin(header));
  BlockReader reader(in, header);
  BlockReader::Block block;
  auto all = [&](auto next) -> Status {
    while (true) {
      RETURN_IF_ERROR(next(block));
      if (block.keys.empty()) return OkStatus();
      RETURN_IF_ERROR(visit(header, block.keys, block.rows));
    }
  };
  // A file of one block is not worth a thread.
  if (header.num_rows + header.num_erased <= kBlockRows) {
    return all([&](BlockReader::Block& into) { return reader.Next(into); });
  }
  ReadAhead ahead(reader);
  return all([&](BlockReader::Block& into) { return ahead.Next(into); });
}

}  // namespace fleet::table
