// SPDX-License-Identifier: Apache-2.0

// What ranks tell rank 0, and what it answers: requests to the store, joins,
// news. By the first byte: 0, requests of several callers; 1, an answer of the
// store; 2, a join; 3, news.

#include <chrono>
#include <string>
#include <vector>

#include "fleet/cluster/membership_protocol.h"
#include "fleet/cluster/remote_store.h"

#include "tests/fuzz_bytes/bytes.h"

namespace {

namespace cluster = fleet::cluster;

void AskStore(fleet::fuzz::Input& input) {
  cluster::InProcessStore store;
  cluster::StoreService service(store);
  std::vector<std::string> replies;
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    const uint64_t caller = 1 + input.TakeByte() % 3;
    const fleet::Status handled = service.Handle(
        caller, input.TakePart(),
        [&](std::string_view reply) { replies.emplace_back(reply); });
    // Who sends nonsense is shut out.
    if (!handled.ok()) store.ExpireCaller(caller);
    if (handled.ok()) ++fleet::fuzz::num_taken;
  }
  store.EndWaits(fleet::Unavailable("rank 1 died"));
  for (const uint64_t caller : {1, 2, 3}) store.ExpireCaller(caller);
  // Every answer is one.
  cluster::RemoteStore asks({.send = [](std::string_view) {}});
  for (const std::string& reply : replies) {
    FLEET_CHECK(asks.OnReply(reply).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fleet::fuzz::Input input(data, size);
  switch (input.TakeByte() % 4) {
    case 1: {
      cluster::RemoteStore asks({.send = [](std::string_view) {}});
      if (asks.OnReply(input.rest()).ok()) ++fleet::fuzz::num_taken;
      break;
    }
    case 2: {
      const auto request = cluster::DecodeJoinRequest(input.rest());
      if (!request.ok()) break;
      ++fleet::fuzz::num_taken;
      (void)request->Name();
      (void)cluster::CheckSameView(*request, {});
      FLEET_CHECK(cluster::CheckSameView(*request, *request).ok());
      break;
    }
    case 3: {
      const auto news = cluster::DecodeNews(input.rest());
      if (!news.ok()) break;
      ++fleet::fuzz::num_taken;
      (void)news->why.ToString();
      break;
    }
    default:
      AskStore(input);
  }
  return 0;
}
