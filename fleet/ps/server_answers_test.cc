// SPDX-License-Identifier: Apache-2.0

// What a worker that has no answer yet asks again, of a server that was killed
// and has its tables again from its log.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/testing/server_log_fixtures.h"

namespace fleet::ps {
namespace {

using testing::HasSubstr;

class ServerAnswers : public ServerLog,
                      public testing::WithParamInterface<bool> {
 protected:
  ServerAnswers() { checkpoint_byte_size_ = GetParam() ? 1 : 0; }
  // The server is killed and started again, twice: what it has written down
  // anew is enough.
  void Restart() {
    for (int life = 0; life < 2; ++life) {
      if (GetParam()) {
        ASSERT_OK(server().CheckpointIfDue());
      }
      End();
      Start();
    }
    raw_ = Raw(0, &incarnation_);
  }
  void StartWith(table::SparseTableOptions sparse) {
    Start();
    ASSERT_OK(Client(1)->CreateTables(Specs(optim::Sgd{}, sparse), Soon()));
    raw_ = Raw(0, &incarnation_);
  }
  Result<std::string> AskFor(Op op, uint64_t sequence, uint64_t count,
                             const std::string& body) {
    RequestHead head;
    head.op = op;
    head.table = kEmb;
    head.sequence = sequence;
    head.count = count;
    return Ask(*raw_, head, body, Soon());
  }
  static std::string Zeros(size_t num_keys) {
    return std::string(num_keys * (sizeof(Key) + kLogDim * sizeof(float)),
                       '\0');
  }

  uint64_t incarnation_ = 0;
  std::unique_ptr<channel::Channel> raw_;
};

// The one behind it was done, and logged.
TEST_P(ServerAnswers, AnUpdateThatFailedIsNotTakenForDone) {
  StartWith({});
  const Status failed = AskFor(Op::kPush, 1, 2, Zeros(1)).status();
  ASSERT_THAT(failed, HasCode(StatusCode::kInvalidArgument));
  ASSERT_OK(AskFor(Op::kPush, 2, 1, Zeros(1)));
  Restart();
  EXPECT_THAT(AskFor(Op::kPush, 1, 2, Zeros(1)),
              StatusIs(failed.code(), HasSubstr(failed.message())));
  EXPECT_OK(AskFor(Op::kPush, 2, 1, Zeros(1)));
  EXPECT_EQ(server().counters().num_repeated, 2u);
  EXPECT_OK(AskFor(Op::kPush, 3, 1, Zeros(1)));
  End();
}

TEST_P(ServerAnswers, APullIsCountedOnce) {
  StartWith({.entry = table::AdmitByCount{2}});
  const std::string key(sizeof(Key), '\0');
  ASSERT_OK(AskFor(Op::kPull, 7, 1, key));
  Restart();
  ASSERT_OK(AskFor(Op::kPull, 7, 1, key));
  EXPECT_EQ(server().sparse(kEmb)->stats().num_rows, 0u);
  EXPECT_EQ(server().sparse(kEmb)->stats().num_candidates, 1u);
  ASSERT_OK(AskFor(Op::kPull, 8, 1, key));
  EXPECT_EQ(server().sparse(kEmb)->stats().num_rows, 1u);
  End();
}

TEST_P(ServerAnswers, AShrinkSaysHowManyRowsItErased) {
  StartWith({.count_unseen_days = true});
  ASSERT_OK(AskFor(Op::kPush, 1, 1, Zeros(1)));
  ASSERT_OK_AND_ASSIGN(const std::string erased, AskFor(Op::kShrink, 2, 0, ""));
  ASSERT_EQ(channel::MessageReader(erased).U64(), 1u);
  Restart();
  ASSERT_OK_AND_ASSIGN(const std::string again, AskFor(Op::kShrink, 2, 0, ""));
  EXPECT_EQ(again, erased);
  End();
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutCheckpoints, ServerAnswers,
                         testing::Bool());

}  // namespace
}  // namespace fleet::ps
