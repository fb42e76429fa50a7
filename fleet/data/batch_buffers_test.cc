// SPDX-License-Identifier: Apache-2.0
#include "fleet/data/batch_buffers.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::data {
namespace {

using base::Descriptor;
using ::testing::HasSubstr;

std::string Text(const BatchPart& part, size_t byte_size) {
  return {reinterpret_cast<const char*>(part.data), byte_size};
}

class BatchBuffers : public ::testing::Test {
 protected:
  static constexpr size_t kBuffers = 3;

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(Descriptor file, MakeBatchBuffers(kBuffers));
    writer_.emplace(Descriptor(dup(file.get())), kBuffers);
    reader_.emplace(std::move(file), kBuffers, 1);
  }

  BatchPart Write(std::string_view text) {
    BatchPart part = writer_->Add(text.size()).value();
    std::memcpy(part.data, text.data(), text.size());
    return part;
  }

  std::optional<BatchWriter> writer_;
  std::optional<BatchReader> reader_;
};

TEST_F(BatchBuffers, HoldWhatAForkedChildWrote) {
  ASSERT_OK_AND_ASSIGN(const size_t buffer, reader_->Take());
  const pid_t child = fork();
  if (child == 0) {
    writer_->Start(buffer);
    Write("first");
    const BatchPart second = Write("second");
    _exit(second.offset == 64 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_OK_AND_ASSIGN(const BatchPart first, reader_->At(buffer, 0, 5));
  ASSERT_OK_AND_ASSIGN(const BatchPart second, reader_->At(buffer, 64, 6));
  EXPECT_EQ(Text(first, 5), "first");
  EXPECT_EQ(Text(second, 6), "second");
}

TEST_F(BatchBuffers, GrowWithABatchWhoseBeginningStays) {
  writer_->Start(1);
  const BatchPart first = Write("first");
  ASSERT_OK_AND_ASSIGN(const BatchPart large, writer_->Add(5 << 20));
  EXPECT_EQ(writer_->OffsetOf(first.data), 0u);
  EXPECT_EQ(writer_->OffsetOf(large.data), 64u);
  EXPECT_EQ(writer_->OffsetOf(large.data + 7), 71u);
  EXPECT_EQ(writer_->OffsetOf(this), std::nullopt);
  EXPECT_EQ(Text(first, 5), "first");
  ASSERT_OK_AND_ASSIGN(const BatchPart read, reader_->At(1, 0, 5));
  EXPECT_EQ(Text(read, 5), "first");
  // A batch in another buffer does not reach it.
  writer_->Start(2);
  Write("other");
  EXPECT_EQ(Text(read, 5), "first");
}

TEST_F(BatchBuffers, AreFreeAgainWhenTheLastOfALoanIsGone) {
  ASSERT_OK_AND_ASSIGN(const size_t lent, reader_->Take());
  std::shared_ptr<const void> loan = reader_->Lend(lent);
  ASSERT_NE(loan, nullptr);
  ASSERT_OK_AND_ASSIGN(const size_t second, reader_->Take());
  ASSERT_OK_AND_ASSIGN(const size_t third, reader_->Take());
  EXPECT_EQ(reader_->Lend(second), nullptr) << "one is lent, and one may be";
  EXPECT_THAT(reader_->Take(), StatusIs(StatusCode::kFailedPrecondition,
                                        HasSubstr("no buffer is free")));
  std::shared_ptr<const void> copy = loan;
  loan.reset();
  EXPECT_THAT(reader_->Take(), StatusIs(StatusCode::kFailedPrecondition,
                                        HasSubstr("no buffer is free")));
  copy.reset();
  EXPECT_EQ(reader_->Take().value(), lent);
  reader_->GiveBack(third);
  EXPECT_EQ(reader_->Take().value(), third);
}

TEST_F(BatchBuffers, ALoanAndItsMemoryOutliveTheReader) {
  ASSERT_OK_AND_ASSIGN(const size_t buffer, reader_->Take());
  writer_->Start(buffer);
  Write("kept");
  ASSERT_OK_AND_ASSIGN(const BatchPart part, reader_->At(buffer, 0, 4));
  std::shared_ptr<const void> loan = reader_->Lend(buffer);
  reader_.reset();
  writer_.reset();
  EXPECT_EQ(Text(part, 4), "kept");
  loan.reset();
}

TEST_F(BatchBuffers, ABatchThatIsTooLargeIsAnError) {
  writer_->Start(0);
  Write("some");
  const Result<BatchPart> refused = writer_->Add(kBatchBufferByteSize);
  EXPECT_EQ(refused.status().error_number(), ENOMEM);
  EXPECT_THAT(refused.status().message(), HasSubstr("at most 274877906944"));
  EXPECT_THAT(
      reader_->At(0, kBatchBufferByteSize, 1),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("no buffer has")));
  EXPECT_THAT(
      reader_->At(kBuffers, 0, 1),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("no buffer has")));
}

}  // namespace
}  // namespace fleet::data
