// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/executor.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <c10/util/SmallVector.h>

namespace fleet::exec {
namespace {

bool CudaGraphsWanted() {
  const char* set = std::getenv("FLEET_CUDA_GRAPHS");
  return set == nullptr || std::string_view(set) != "0";
}

}  // namespace

void Executor::AddExtension(std::string op_type,
                            std::shared_ptr<Extension> extension) {
  extensions_[std::move(op_type)] = std::move(extension);
  entries_.clear();
}

bool Executor::Takes(const FeedSlot& slot, const at::Tensor& value) {
  if (ops::ToDType(value.scalar_type()) != slot.type.dtype) return false;
  if (slot.any_shape) return true;
  const program::Dims& wanted = slot.type.dims;
  const at::IntArrayRef given = value.sizes();
  if (given.size() != wanted.size()) return false;
  for (size_t i = 0; i < given.size(); ++i) {
    if (wanted[i] >= 0 && wanted[i] != given[i]) return false;
  }
  return true;
}

Result<std::vector<at::Tensor>> Executor::Run(
    const program::Program& program, Scope& scope,
    const std::vector<Feed>& feeds, const std::vector<std::string>& fetches) {
  ASSIGN_OR_RETURN(Entry * entry, Find(program, feeds, fetches));
  c10::SmallVector<at::Tensor, 8> values;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const FeedSlot& slot = entry->feeds[i];
    const at::Tensor& value = feeds[i].value;
    if (!value.defined()) {
      return InvalidArgument("feed ", slot.name, ": there is no value");
    }
    if (!Takes(slot, value)) {
      const program::TensorType given{ops::ToDType(value.scalar_type()),
                                      value.sizes().vec()};
      return InvalidArgument(
          "feed ", slot.name, ": got ", program::ToString(given),
          ", but the program wants ", program::ToString(slot.type));
    }
    values.push_back(value);
  }
  return entry->schedule->Run(scope, values, context_);
}

uint64_t Executor::num_replays() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.schedule->num_replays();
  return sum;
}

Result<Executor::Entry*> Executor::Find(
    const program::Program& program, const std::vector<Feed>& feeds,
    const std::vector<std::string>& fetches) {
  auto fits = [&](const Entry& entry) {
    return entry.program == program.id() &&
           entry.version == program.version() && entry.fetches == fetches &&
           std::equal(entry.feeds.begin(), entry.feeds.end(), feeds.begin(),
                      feeds.end(), [](const FeedSlot& a, const Feed& b) {
                        return a.name == b.name;
                      });
  };
  auto found = std::find_if(entries_.begin(), entries_.end(), fits);
  if (found != entries_.end()) {
    if (found != entries_.begin()) {
      entries_.splice(entries_.begin(), entries_, found);
    }
    return &entries_.front();
  }
  Entry entry{program.id(), program.version(), {}, fetches, nullptr};
  std::vector<std::string> names;
  for (const Feed& feed : feeds) {
    const program::Variable* variable = program.block(0).Find(feed.name);
    if (variable == nullptr) {
      return InvalidArgument("feed: the program has no variable ", feed.name);
    }
    names.push_back(feed.name);
    entry.feeds.push_back({feed.name, variable->type, variable->lod_level > 0});
  }
  ASSIGN_OR_RETURN(
      entry.schedule,
      Schedule::Compile(program, library_, extensions_, names, fetches,
                        options_.planning && context_.device.is_cuda()
                            ? Schedule::Target::kGpu
                            : Schedule::Target::kAny));
  entry.schedule->set_planning(options_.planning);
  entry.schedule->set_fusing(options_.fusing);
  entry.schedule->set_recording(options_.cuda_graphs && CudaGraphsWanted());
  // What older states of the program were compiled to will not be run again.
  std::erase_if(entries_, [&](const Entry& old) {
    return old.program == program.id() && old.version != program.version();
  });
  entries_.push_front(std::move(entry));
  if (entries_.size() > kMaxSchedules) entries_.pop_back();
  return &entries_.front();
}

}  // namespace fleet::exec
