// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/watch.h"

#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <span>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "fleet/base/check.h"
#include "fleet/base/deadline.h"
#include "fleet/channel/message.h"

namespace fleet::launch {
namespace {

constexpr std::chrono::seconds kTellPatience{2};

// The first byte of a message.
enum Word : uint8_t { kWorkersEnded = 1, kDone = 2, kFailed = 3 };

}  // namespace

HostWatch::HostWatch(std::vector<HostLink> links) : links_(std::move(links)) {
  int ends[2];
  FLEET_CHECK_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  news_read_ = base::Descriptor(ends[0]);
  news_write_ = base::Descriptor(ends[1]);
  try {
    for (HostLink& link : links_) {
      listeners_.emplace_back([this, &link] { Listen(link); });
    }
  } catch (...) {
    CloseLinks();
    throw;
  }
}

HostWatch::~HostWatch() {
  CloseLinks();
  listeners_.clear();  // which waits for them
}

void HostWatch::CloseLinks() {
  for (HostLink& link : links_) link.channel->Close();
}

std::vector<HostNews> HostWatch::TakeNews() {
  base::MutexLock lock(mutex_);
  char marks[64];
  while (read(news_read_.get(), marks, sizeof(marks)) > 0) continue;
  return std::exchange(news_, {});
}

void HostWatch::TellWorkersEnded() {
  Tell(channel::MessageWriter().U8(kWorkersEnded).Take());
}

void HostWatch::TellDone() { Tell(channel::MessageWriter().U8(kDone).Take()); }

void HostWatch::TellFailure(const JobFailure& failure) {
  Tell(channel::MessageWriter()
           .U8(kFailed)
           .U32(static_cast<uint32_t>(failure.exit_code))
           .Text(failure.text)
           .Take());
}

void HostWatch::Listen(HostLink& link) {
  while (true) {
    const auto message = link.channel->RecvMessage(channel::kMaxMessageByteSize,
                                                   base::Deadline::Infinite());
    if (!message.ok()) {
      return Note(
          {HostNews::Kind::kFailed,
           {.text = base::Concat("the launcher on ", link.host,
                                 " is gone: ", message.status().message())}});
    }
    channel::MessageReader reader(std::string_view(
        reinterpret_cast<const char*>(message->data()), message->size()));
    const uint8_t word = reader.U8();
    JobFailure failure;
    if (word == kFailed) {
      const uint32_t code = reader.U32();
      // Others would be 0 to whoever waits for fleetrun.
      if (code >= 1 && code <= 255) failure.exit_code = static_cast<int>(code);
      failure.text = reader.Text();
    }
    if (word < kWorkersEnded || word > kFailed || !reader.Finish().ok()) {
      failure = {.text = base::Concat("the launcher on ", link.host,
                                      " sent a damaged message")};
    } else if (word == kDone) {
      return;
    } else if (word == kWorkersEnded) {
      Note({HostNews::Kind::kWorkersEnded, {}});
      continue;
    }
    return Note({HostNews::Kind::kFailed, std::move(failure)});
  }
}

void HostWatch::Note(HostNews news) {
  base::MutexLock lock(mutex_);
  news_.push_back(std::move(news));
  // A pipe that is full is readable, which is all that is needed.
  (void)!write(news_write_.get(), "", 1);
}

void HostWatch::Tell(const std::string& message) {
  const auto deadline = base::Deadline::After(kTellPatience);
  for (HostLink& link : links_) {
    // One that is gone is noticed by its listener.
    (void)link.channel->Send(std::as_bytes(std::span(message)), deadline);
  }
}

}  // namespace fleet::launch
