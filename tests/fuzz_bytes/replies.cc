// SPDX-License-Identifier: Apache-2.0

// What a server answers to a worker, message by message, and what workers read
// of it. By the first byte: which of them, or 0: the calls of a client.

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "fleet/base/log.h"
#include "fleet/channel/channel.h"
#include "fleet/ps/client.h"
#include "fleet/ps/ledger.h"
#include "fleet/ps/wire.h"

#include "tests/fuzz_bytes/bytes.h"

namespace {

namespace base = fleet::base;
namespace channel = fleet::channel;
namespace ps = fleet::ps;
using fleet::base::Deadline;

constexpr int kMaxConnections = 8;
constexpr int kMaxMessages = 64;

// What is read may be written, and is then the same.
template <typename Decode>
void RoundTrip(const Decode& decode, std::string_view bytes) {
  const auto value = decode(bytes);
  if (!value.ok()) return;
  ++fleet::fuzz::num_taken;
  const std::string encoded = ps::Encode(*value);
  const auto again = decode(encoded);
  FLEET_CHECK(again.ok(), again.status());
  FLEET_CHECK(ps::Encode(*again) == encoded);
}

// A connection whose server says what is in an input, whatever it is asked.
class Script final : public channel::Channel {
 public:
  Script(fleet::fuzz::Input& input, fleet::Status at_end)
      : Channel("server"),
        script_(input.TakePart()),
        at_end_(std::move(at_end)) {}

  fleet::Status SendParts(std::span<const channel::ConstBytes>,
                          Deadline) override {
    return fleet::OkStatus();
  }
  fleet::Result<uint64_t> NextSize(Deadline) override {
    if (!next_.has_value()) {
      if (rest_.empty() || ++num_messages_ > kMaxMessages) {
        return at_end_;
      }
      next_ = rest_.TakePart();
    }
    return next_->size();
  }
  fleet::Status Recv(channel::MutableBytes into, Deadline deadline) override {
    ASSIGN_OR_RETURN(const uint64_t size, NextSize(deadline));
    if (size != into.size()) {
      return fleet::DataLoss("a message of ", size, " bytes, not ",
                             into.size());
    }
    std::memcpy(into.data(), next_->data(), size);
    next_.reset();
    return fleet::OkStatus();
  }
  void Abort(fleet::Status) override {}

 private:
  const std::string script_;
  const fleet::Status at_end_;
  fleet::fuzz::Input rest_{reinterpret_cast<const uint8_t*>(script_.data()),
                           script_.size()};
  std::optional<std::string> next_;
  int num_messages_ = 0;
};

void CallServer(fleet::fuzz::Input& input) {
  const Deadline soon = Deadline::After(std::chrono::seconds(10));
  int num_connections = 0;
  auto client = ps::PsClient::Connect(
      1,
      [&](uint32_t,
          Deadline) -> fleet::Result<std::unique_ptr<channel::Channel>> {
        if (++num_connections > kMaxConnections || input.empty()) {
          return fleet::FailedPrecondition("no more connections");
        }
        // The first is for signs of life: it is silent then, and not gone.
        const std::string why = "the script is at its end";
        return std::make_unique<Script>(
            input, num_connections == 1 ? fleet::DeadlineExceeded(why)
                                        : fleet::Unavailable(why));
      },
      {}, soon);
  if (!client.ok()) return;
  ++fleet::fuzz::num_taken;
  const std::vector<ps::Key> keys = {1, 2, 3};
  std::vector<float> rows(6);
  const std::vector<float> gradients(6, 1.0f);
  std::vector<float> dense(10);
  const std::vector<ps::DenseValues> values = {{ps::TableId{1}, dense}};
  const std::vector<ps::DenseGradient> of_dense = {{ps::TableId{1}, dense}};
  (void)(*client)->Pull(ps::TableId{0}, keys, rows, {}, soon);
  (void)(*client)->Push(ps::TableId{0}, keys, gradients, soon);
  (void)(*client)->ExchangeDense(of_dense, values, soon);
  (void)(*client)->FinishStep(of_dense, values, soon);
  (void)(*client)->TakeChanges(ps::TableId{0}, soon);
  (void)(*client)->Shrink(ps::TableId{0}, 3, soon);
  (void)(*client)->Stats(ps::TableId{0}, soon);
  (void)(*client)->AllGather("all", "bytes", soon);
  (void)(*client)->Refresh(soon);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  base::SetMinLogSeverity(base::LogSeverity::ERROR);
  fleet::fuzz::Input input(data, size);
  switch (input.TakeByte() % 6) {
    case 1:
      RoundTrip(ps::DecodeServerInfo, input.rest());
      break;
    case 2:
      RoundTrip(ps::DecodeHelloAnswer, input.rest());
      break;
    case 3:
      RoundTrip(ps::DecodeLedger, input.rest());
      break;
    case 4:
      RoundTrip(ps::DecodeGoodbyes, input.rest());
      break;
    case 5:
      RoundTrip(ps::DecodeTableSpec, input.rest());
      break;
    default:
      CallServer(input);
  }
  return 0;
}
