// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/executor.h"

#include <algorithm>

namespace fleet::exec {
namespace {

Status CheckFeed(const program::Program& program, const Feed& feed) {
  const program::Variable* variable = program.block(0).Find(feed.name);
  if (variable == nullptr) {
    return InvalidArgument("feed: the program has no variable ", feed.name);
  }
  const program::TensorType given{ops::ToDType(feed.value.scalar_type()),
                                  feed.value.sizes().vec()};
  const program::TensorType& wanted = variable->type;
  bool fits = given.dtype == wanted.dtype;
  // A sequence has as many rows as its parts have together.
  if (variable->lod_level == 0) {
    fits &= given.dims.size() == wanted.dims.size();
    for (size_t i = 0; fits && i < given.dims.size(); ++i) {
      fits = wanted.dims[i] < 0 || wanted.dims[i] == given.dims[i];
    }
  }
  if (fits) return OkStatus();
  return InvalidArgument("feed ", feed.name, ": got ", program::ToString(given),
                         ", but the program wants ", program::ToString(wanted));
}

}  // namespace

void Executor::AddExtension(std::string op_type,
                            std::shared_ptr<Extension> extension) {
  extensions_[std::move(op_type)] = std::move(extension);
  entries_.clear();
}

Result<std::vector<at::Tensor>> Executor::Run(
    const program::Program& program, Scope& scope,
    const std::vector<Feed>& feeds, const std::vector<std::string>& fetches) {
  std::vector<at::Tensor> values;
  values.reserve(feeds.size());
  for (const Feed& feed : feeds) {
    RETURN_IF_ERROR(CheckFeed(program, feed));
    values.push_back(feed.value);
  }
  ASSIGN_OR_RETURN(Schedule * schedule, Find(program, feeds, fetches));
  return schedule->Run(scope, values, context_);
}

Result<Schedule*> Executor::Find(const program::Program& program,
                                 const std::vector<Feed>& feeds,
                                 const std::vector<std::string>& fetches) {
  auto fits = [&](const Entry& entry) {
    return entry.program == program.id() &&
           entry.version == program.version() && entry.fetches == fetches &&
           std::equal(entry.feeds.begin(), entry.feeds.end(), feeds.begin(),
                      feeds.end(), [](const std::string& a, const Feed& b) {
                        return a == b.name;
                      });
  };
  auto found = std::find_if(entries_.begin(), entries_.end(), fits);
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front().schedule.get();
  }
  Entry entry{program.id(), program.version(), {}, fetches, nullptr};
  for (const Feed& feed : feeds) entry.feeds.push_back(feed.name);
  ASSIGN_OR_RETURN(
      entry.schedule,
      Schedule::Compile(program, library_, extensions_, entry.feeds, fetches));
  entries_.push_front(std::move(entry));
  if (entries_.size() > kMaxSchedules) entries_.pop_back();
  return entries_.front().schedule.get();
}

}  // namespace fleet::exec
